package lverify

import (
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/merkle"
)

// chain takes records and batch headers in their order and checks all that they say of themselves and of one another. Where it can look back,
// and what it then knows of the past, its past says.
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
	settling   bool // the batch is a settlement: its ops have no nonce

	accounts accounts
	issuers  map[uint32]uint64 // asset → ref of its issuance account; 0 is not known
	open     map[uint64]held   // holds by seq
	ended    map[uint64]bool   // holds of before, where it is not whole
	totals   map[uint32]*totals
	blind    bool // a state or a hold was not in reach: the totals tell nothing
	ends     ends
	rec      record.Record
}

// past is what lies before the record at hand.
type past interface {
	// state is the state of an account in an asset after the record prev, which is the newest one to touch it, or before the first record
	// that does if prev is 0. Not ok: there is none in reach, and nothing is to be said of it.
	state(account uint64, asset uint32, prev uint64) (s record.State, ok bool, err error)
	// took keeps a state for a while.
	took(im *record.Image)
	// hold is a hold made by a record before those taken, and ended by the record by. Not ok: it is not in reach.
	hold(seq, by uint64) (h held, ok bool, err error)
}

// maxBatch is how many records a batch can have: twice what the most ops of a call make, which take two records each. It bounds what is kept
// of an export until its next header, some 26 MB.
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
		rep: rep, whole: whole, began: whole, past: p, accounts: newAccounts(whole),
		issuers: map[uint32]uint64{}, open: map[uint64]held{}, ended: map[uint64]bool{}, totals: map[uint32]*totals{}, ends: newEnds(),
	}
}

// bad notes what is wrong with the record at hand.
func (c *chain) bad(format string, args ...any) {
	c.rep.found(Finding{Where: "journal", Seq: c.rec.Seq, Detail: fmt.Sprintf(format, args...)})
}

// take checks the next record, which must be number seq. It answers whether what comes after it can be checked at all.
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
		c.settling = r.Op == record.OpOnce
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

// end checks the header behind the last record of a batch.
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
