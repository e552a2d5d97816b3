package lverify

import "ronbox/engines/ledger/record"

// inside is the batch request, or the settlement, that is under way.
type inside struct {
	begun    bool   // a record of it was taken
	atomic   uint16 // FlagAtomic, or not: of all its records
	ops      int    // that were done
	next, of uint16 // parts of its results
	accepted int    // ops that the parts so far call done
}

// member checks the record's place in its batch: inner ops come one after the other, and then the results that tell of them.
func (c *chain) member() {
	r, in := &c.rec, &c.inside
	inner := r.Flags&record.FlagInner != 0
	switch {
	case in.of != 0 && r.Op != record.OpBatch:
		c.bad("it stands between the parts of a batch's results")
	case in.begun && !inner && r.Op != record.OpBatch:
		c.bad("it stands between the ops of a batch, or between them and their results")
	case in.begun && r.Flags&record.FlagAtomic != in.atomic:
		c.bad("it belongs to a batch that stands or falls as a whole, and does not say so, or the other way round")
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
	case r.Op == record.OpOnce || inner:
		in.begun, in.atomic = true, r.Flags&record.FlagAtomic
		if inner && r.Op != record.OpOpen {
			in.ops++
		}
	}
}

// never are results that no op of a batch can have once the batch is recorded.
func never(code record.Result, atomic bool) bool {
	switch code {
	case record.Replayed, record.Aborted, record.IdemConflict, record.OnceConflict:
		return true
	}
	return atomic && code != record.Accepted
}

// results checks a part of what became of a batch's ops.
func (c *chain) results() {
	r, in := &c.rec, &c.inside
	if r.Part != in.next || in.of != 0 && r.Parts != in.of {
		c.bad("part %d of %d of a batch's results, part %d was to come", r.Part, r.Parts, in.next)
	}
	in.next, in.of = r.Part+1, r.Parts
	for _, code := range r.Results {
		if record.Result(code) == record.Accepted {
			in.accepted++
		}
		if never(record.Result(code), r.Flags&record.FlagAtomic != 0) {
			c.bad("an op of the batch is said to be %s, and the batch was recorded", record.Result(code))
			break
		}
	}
	if in.next != r.Parts {
		return
	}
	if in.accepted != in.ops || in.ops == 0 {
		c.bad("the batch's results say that %d ops were done, and %d were", in.accepted, in.ops)
	}
	*in = inside{}
}

// batchEnds checks that nothing is left open at the end of a batch.
func (c *chain) batchEnds(b record.Batch) {
	bad := func(detail string) { c.rep.found(Finding{Where: "batches", Batch: b.No, Detail: detail}) }
	switch in := &c.inside; {
	case c.opened.ref != 0:
		bad("it ends with an account that is opened for nothing")
	case c.cut:
	case c.settling && in.ops == 0:
		bad("it settles nothing")
	case in.of != 0 || in.begun && !c.settling:
		bad("it ends before the results of a batch request in it")
	}
	c.inside, c.opened, c.settling = inside{}, opening{}, false
}
