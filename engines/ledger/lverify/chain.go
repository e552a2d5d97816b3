package lverify

import (
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// chain takes records and batch headers in order and checks each by itself and against the ones
// before. It reads earlier states and holds through its past.
type chain struct {
	rep   *Report
	whole bool // it began with the first record
	past  past

	seq, batch uint64 // last taken
	at         int64  // of that batch
	root       b3.Digest
	began      bool   // seq and batch follow on something: always, but before the first record of a part of an export
	cut        bool   // the batch under way is the first of a part of an export, which may have lost its first records
	count      uint64 // records of the batch under way
	tree       merkle.Tree
	first      record.Record // of the batch under way: its Op, Seq and At
	inside     inside
	opened     opening
	settling   bool   // the batch is a settlement: its ops have no nonce
	closing    bool   // the batch closes a period: it has no other record
	period     uint64 // the last one closed
	counted    bool   // period is known

	accounts accounts
	issuers  map[uint32]uint64 // asset → ref of its issuance account; 0 is not known
	scales   map[uint32]bool   // assets with decimals
	open     map[uint64]held   // holds by seq
	ended    map[uint64]bool   // holds of before, where it is not whole
	totals   map[uint32]*totals
	blind    bool // a state or a hold was not in reach: the totals tell nothing
	ends     ends
	rec      record.Record
}

// past is what lies before the record at hand.
type past interface {
	// state returns the state of an account in an asset after the record prev, the newest record
	// that changed it, or the zero state if prev is 0. It is not ok if the state is not available.
	state(account uint64, asset uint32, prev uint64) (s record.State, ok bool, err error)
	// took keeps a state for a while.
	took(im *record.Image)
	// hold is a hold made by a record before those taken, and ended by the record by. Not ok: it is
	// not in reach.
	hold(seq, by uint64) (h held, ok bool, err error)
}

// maxBatch bounds the records of a batch: twice as many as the most ops of a call make, two each.
// It bounds the memory for an export until its next header, some 26 MB.
const maxBatch = 1 << 15

// held is a hold as the record that ends it needs it.
type held struct {
	from, to uint64
	asset    uint32
	amount   engines.Amount
	at       int64
	expires  int64
}

func newChain(rep *Report, p past, whole bool) *chain {
	return &chain{
		rep:      rep,
		whole:    whole,
		began:    whole,
		counted:  whole,
		past:     p,
		accounts: newAccounts(whole),
		issuers:  map[uint32]uint64{},
		scales:   map[uint32]bool{},
		open:     map[uint64]held{},
		ended:    map[uint64]bool{},
		totals:   map[uint32]*totals{},
		ends:     newEnds(),
	}
}

// bad adds a finding about the record at hand.
func (c *chain) bad(format string, args ...any) {
	c.rep.found(Finding{Where: "journal", Seq: c.rec.Seq, Detail: fmt.Sprintf(format, args...)})
}

// take checks the next record, which must be number seq. It answers whether what comes after it can
// be checked at all.
func (c *chain) take(seq uint64, raw []byte) bool {
	if err := c.rec.Decode(raw); err != nil {
		c.rep.found(Finding{Where: "journal", Seq: seq, Detail: err.Error()})
		return false
	}
	r := &c.rec
	if !c.began {
		c.began, c.cut, c.seq, c.batch = true, true, r.Seq-1, r.Batch-1
	}
	switch {
	case r.Seq != seq:
		c.rep.found(Finding{Where: "journal", Seq: seq, Detail: fmt.Sprintf("it says that it is record %d", r.Seq)})
		return false
	case r.Seq != c.seq+1:
		c.rep.found(Finding{Where: "journal", Seq: seq, Detail: fmt.Sprintf("it follows on record %d", c.seq)})
		return false
	case r.Batch != c.batch+1:
		c.bad("it says that it is of batch %d, the batch is %d", r.Batch, c.batch+1)
		return false
	}
	if c.count == maxBatch {
		c.bad("it is one more than the %d that a batch has at most", maxBatch)
		return false
	}
	if c.count == 0 {
		c.first = record.Record{Op: r.Op, Seq: r.Seq, At: r.At}
		c.settling = r.Op == record.OpOnce && !repeats(r)
		c.closing = r.Op == record.OpClose
	} else if r.At != c.first.At {
		c.bad("its time is not that of record %d of its batch", c.first.Seq)
	}
	c.tree.Add(raw)
	c.count++
	c.seq = seq
	c.rep.Records++
	c.form()
	c.opens()
	if !c.cut {
		c.member()
	}
	c.judge()
	return true
}

// end checks the header after the last record of a batch.
func (c *chain) end(b record.Batch) bool {
	bad := func(format string, args ...any) {
		c.rep.found(Finding{Where: "batches", Batch: b.No, Detail: fmt.Sprintf(format, args...)})
	}
	switch {
	case b.No != c.batch+1:
		bad("it follows on batch %d", c.batch)
		return false
	case b.Last() != c.seq || b.First > c.first.Seq || b.First < c.first.Seq && !c.cut:
		bad("it says records %d to %d, and has %d to %d", b.First, b.Last(), c.first.Seq, c.seq)
		return false
	}
	if merkle := c.tree.Root(); b.First == c.first.Seq && b.Merkle != merkle {
		bad("its Merkle root is not that of its records")
	}
	if b.Prev != c.root {
		bad("it does not name the root of the batch before it")
	}
	if b.At != c.first.At || b.At <= c.at {
		bad("its time is not that of its records, or not after that of the batch before it")
	}
	c.batchEnds(b)
	c.batch, c.at, c.root, c.count, c.cut = b.No, b.At, b.Root(), 0, false
	c.rep.Batches++
	return true
}

// inside is the batch request, or the settlement, that is under way.
type inside struct {
	begun    bool   // a record of it was taken
	atomic   uint16 // FlagAtomic, or not: of all its records
	ops      int    // that were done
	repeats  int    // that were done before
	next, of uint16 // parts of its results
	accepted int    // ops that the parts so far call done
	replayed int    // ops that the parts so far call done before
}

// repeats reports whether r stands for an op of a batch that was done before, under its reference.
func repeats(r *record.Record) bool {
	return r.Op == record.OpOnce && r.Flags&record.FlagInner != 0
}

// member checks the record's place in its batch: inner ops follow one another, then come repeated
// ops and the results.
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
	again := repeats(r)
	settles := r.Op == record.OpOnce && !again
	switch {
	case settles && c.count != 1:
		c.bad("a settlement begins in the middle of a batch")
	case again && (c.settling || in.ops == 0):
		c.bad("it repeats an op, and is not behind the ops of a batch")
	case in.repeats != 0 && !again && r.Op != record.OpBatch:
		c.bad("it stands between the ops that a batch repeats, or between them and its results")
	}
	if c.settling && r.Op != record.OpOnce && !inner {
		c.bad("it is in the batch of a settlement, and not part of it")
	}
	closes := r.Op == record.OpClose
	if (settles || closes) != (r.Dedupe.Kind == record.DedupeOnce) {
		c.bad("a permanent id and its record do not belong together")
	}
	if (closes || c.closing) && c.count != 1 {
		c.bad("the closing of a period is not alone in its batch")
	}
	switch {
	case r.Op == record.OpBatch:
		c.results()
	case again:
		in.repeats++
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
	case record.Aborted, record.IdemConflict, record.OnceConflict:
		return true
	}
	return atomic && code.Refused()
}

// results checks a part of what became of a batch's ops.
func (c *chain) results() {
	r, in := &c.rec, &c.inside
	if r.Part != in.next || in.of != 0 && r.Parts != in.of {
		c.bad("part %d of %d of a batch's results, part %d was to come", r.Part, r.Parts, in.next)
	}
	in.next, in.of = r.Part+1, r.Parts
	for _, code := range r.Results {
		switch record.Result(code) {
		case record.Accepted:
			in.accepted++
		case record.Replayed:
			in.replayed++
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
	if in.replayed != in.repeats {
		c.bad("the batch's results say that %d ops were done before, and %d were", in.replayed, in.repeats)
	}
	*in = inside{}
}

// batchEnds checks that a batch does not end inside a batch request, a settlement or an opening.
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

// closed checks that periods are closed in their order. A ledger that was imported with the files
// of its periods closes them again from the first on.
func (c *chain) closed() {
	_, period := c.rec.Amount.Parts()
	if c.counted && period != c.period+1 && period != 1 {
		c.bad("it closes period %d, the next one is %d", period, c.period+1)
	}
	c.period, c.counted = period, true
}

// accounts holds accounts without balances, as the records make them. If the chain began with the
// first record, it has three numbers for each account, by ref; else it has the accounts seen so
// far.
type accounts struct {
	whole  bool
	opened uint64
	blocks []*block // blockSize accounts each: growing copies no block
	seen   map[uint64]seen
}

const blockSize = 4096

type block struct {
	nonces [blockSize]uint64
	seqs   [blockSize]uint64 // of the record that opened it, changed its flags or used a nonce last
	flags  [blockSize]record.Flags
}

// at is where an account that was opened is.
func (a *accounts) at(ref uint64) (b *block, i uint64) {
	return a.blocks[(ref-1)/blockSize], (ref - 1) % blockSize
}

type seen struct {
	nonce uint64
	flags record.Flags
}

func newAccounts(whole bool) accounts { return accounts{whole: whole, seen: map[uint64]seen{}} }

// count is how many were opened.
func (a *accounts) count() uint64 { return a.opened }

// open enters the next account; not ok for another ref than the next.
func (a *accounts) open(ref, seq uint64) bool {
	if !a.whole {
		a.seen[ref] = seen{}
		return true
	}
	if ref != a.count()+1 {
		return false
	}
	if a.opened%blockSize == 0 {
		a.blocks = append(a.blocks, new(block))
	}
	a.opened++
	b, i := a.at(ref)
	b.seqs[i] = seq
	return true
}

// known reports whether an account was opened, or may have been before the first record seen.
func (a *accounts) known(ref uint64) bool { return ref != 0 && (!a.whole || ref <= a.count()) }

// set changes the flags of an account that is known.
func (a *accounts) set(ref, seq uint64, set, clear record.Flags) {
	if a.whole {
		b, i := a.at(ref)
		b.flags[i], b.seqs[i] = b.flags[i]&^clear|set, seq
		return
	}
	s := a.seen[ref]
	s.flags = s.flags&^clear | set
	a.seen[ref] = s
}

// of are the flags of an account that is known; those that were not seen count as not set.
func (a *accounts) of(ref uint64) record.Flags {
	if a.whole {
		b, i := a.at(ref)
		return b.flags[i]
	}
	return a.seen[ref].flags
}

// use sets the nonce of a known account, and returns the nonce before, 0 if it has seen none.
func (a *accounts) use(ref, nonce, seq uint64) (before uint64) {
	if a.whole {
		b, i := a.at(ref)
		before = b.nonces[i]
		b.nonces[i], b.seqs[i] = nonce, seq
		return before
	}
	s := a.seen[ref]
	before, s.nonce = s.nonce, nonce
	a.seen[ref] = s
	return before
}
