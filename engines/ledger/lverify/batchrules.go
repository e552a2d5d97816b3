package lverify

import "ronbox/engines/ledger/record"

// parts is what the parts of a batch request's results have said so far.
type parts struct {
	next, of uint16
	accepted int
}

// member checks the record's place in its batch: inner ops come before the results that tell of them.
func (c *chain) member() {
	r := &c.rec
	inner := r.Flags&record.FlagInner != 0
	if c.parts.of != 0 && r.Op != record.OpBatch {
		c.bad("it stands between the parts of a batch's results")
	}
	if inner && r.Dedupe.Kind != record.DedupeNone {
		c.bad("it is inside a batch and has a key of its own")
	}
	if r.Op == record.OpOnce && c.count != 1 {
		c.bad("a settlement begins in the middle of a batch")
	}
	if c.settling && r.Op != record.OpOnce && !inner {
		c.bad("it is in the batch of a settlement, and not part of it")
	}
	if (r.Op == record.OpOnce) != (r.Dedupe.Kind == record.DedupeOnce) {
		c.bad("a permanent id and its record do not belong together")
	}
	switch {
	case r.Op == record.OpBatch:
		c.results()
	case inner && r.Op != record.OpOpen:
		c.inner++
	}
}

// results checks a part of what became of a batch's ops.
func (c *chain) results() {
	r := &c.rec
	if r.Part != c.parts.next || c.parts.of != 0 && r.Parts != c.parts.of {
		c.bad("part %d of %d of a batch's results, part %d was to come", r.Part, r.Parts, c.parts.next)
	}
	c.parts.next, c.parts.of = r.Part+1, r.Parts
	for _, code := range r.Results {
		if record.Result(code) == record.Accepted {
			c.parts.accepted++
		}
	}
	if c.parts.next != r.Parts {
		return
	}
	if c.parts.accepted != c.inner {
		c.bad("the batch's results say that %d ops were done, and %d were", c.parts.accepted, c.inner)
	}
	c.parts, c.inner = parts{}, 0
}

// batchEnds checks that nothing is left open at the end of a batch.
func (c *chain) batchEnds(b record.Batch) {
	if c.parts.of != 0 || c.inner != 0 && !c.settling {
		c.rep.found(Finding{Where: "batches", Batch: b.No, Detail: "it ends before the results of a batch request in it"})
	}
	c.parts, c.inner, c.settling = parts{}, 0, false
}
