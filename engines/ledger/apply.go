package ledger

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// post is the command that moves money: independent ops, batches among them, or one settlement.
type post struct {
	ops   []action
	once  *once // of a settlement: its ops are all done or none
	size  int   // of the records it may write, bytes
	seed  uint64
	flush flushRule
	reply *flow.Reply[*posted]

	strays *strays
	stray  bool // its caller has left; guarded by strays.mu
	over   bool // it has ended; guarded by strays.mu
}

var _ store.Command[*posted] = (*post)(nil)

// Kind names the command in metrics.
func (*post) Kind() string { return "ledger.post/1" }

// Size is the weight of the command in its group.
func (c *post) Size() int { return c.size }

// errGone is returned for a command when its caller has left before its turn.
var errGone = errors.New("ledger: the caller has left")

// Apply runs the ops in turn. If it writes nothing, the error is a refusal that holds the results.
func (c *post) Apply(r store.Reader, at store.Stamp, w *store.Writes) (*posted, error) {
	b := store.GroupOf[*books](r)
	x, err := b.start(r, at, w, c.seed)
	if err != nil {
		return nil, err
	}
	if !c.reply.Claim() {
		return nil, errGone
	}
	out := &posted{seed: c.seed}
	if c.once != nil {
		out.results = []result{x.settle(c)}
	} else {
		out.results = make([]result, len(c.ops))
		for i := range c.ops {
			out.results[i] = x.do(&c.ops[i], plain)
		}
	}
	if len(x.raws) == 0 {
		return nil, refusal{out}
	}
	out.batch = x.seal()
	out.root = b.cur.LastRoot
	x.flush(c.flush)
	w.Then(b.keep)
	return out, nil
}

// ended answers the caller with how the command ended.
func (c *post) ended(out *posted, err error) {
	if !errors.Is(err, store.ErrUnknown) {
		c.strays.end(c, err == nil, time.Now())
	}
	var none refusal
	switch {
	case errors.As(err, &none):
		c.reply.Answer(none.posted)
	case err != nil:
		c.reply.Fail(err)
	default:
		c.reply.Answer(out)
	}
}

// run is one command at work: it writes records and remembers keys, and seals what came of it into
// a batch. The books keep one and use it again.
type run struct {
	b     *books
	r     store.Reader
	w     *store.Writes
	at    int64
	first uint64 // seq of the command's first record
	no    uint64 // of the batch that its records make
	seed  uint64 // of the random bits in ids

	raws  [][]byte
	tree  merkle.Tree
	keys  []idem.Entry // dedupe keys of the command's records
	known idem.Table   // of the same keys

	rec     record.Record // of what no op alone makes
	now     current
	decider decider
}

// start begins a command. It returns ErrSafeMode in safe mode. The command's time is after that of
// the newest batch.
func (b *books) start(r store.Reader, at store.Stamp, w *store.Writes, seed uint64) (*run, error) {
	if b.barred.Load() {
		return nil, ErrSafeMode
	}
	b.undo() // a command that was refused or panicked
	b.busy, b.open = true, true
	b.before, b.event = b.cur, Committed{}
	x := &b.run
	x.r, x.w, x.at, x.seed = r, w, max(at.At, b.cur.At+1), seed
	x.first, x.no = b.cur.Seq+1, b.cur.Batches+1
	x.now = current{b: b, r: r}
	x.decider.state, x.decider.at, x.decider.batch = &x.now, x.at, x.no
	clear(x.raws)
	x.raws = x.raws[:0]
	x.known.Clear(x.keys)
	x.keys = x.keys[:0]
	return x, nil
}

// do decides one op and, if nothing speaks against it, writes its record.
func (x *run) do(a *action, p place) result {
	if a.keyed {
		if res, done := x.again(a); done {
			return res
		}
	}
	if a.reference != nil {
		if res, done := x.referred(a.reference); done {
			return res
		}
	}
	res := result{}
	if a.op.Code == record.OpBatch {
		res = x.batch(a)
	} else {
		res = x.single(a, p)
	}
	if a.keyed && res.code == record.Accepted && res.seq != 0 {
		x.keys = append(x.keys, idem.Entry{Key: a.key, Seq: res.seq})
		x.known.Put(a.key, res.seq)
	}
	return res
}

// single decides an op that is no batch, and appends and applies its records.
func (x *run) single(a *action, p place) result {
	x.now.a = a
	d := &x.decider
	res := d.decide(a, p)
	if res.code != record.Accepted {
		return res
	}
	for i := range d.records[:d.n] {
		x.append(&d.records[i])
	}
	if d.m.code == a.op.Code && d.m.metered() {
		c := x.b.meter(x.r, d.meter)
		x.b.moved.touch(c).v = plus(d.m.moved, d.m.amount)
	}
	return res
}

// again returns the outcome of the record done under the op's key, if the key still counts.
func (x *run) again(a *action) (result, bool) {
	seq := x.known.Get(a.key)
	if seq == 0 {
		var ok bool
		if seq, ok = x.b.idem.Lookup(x.r, a.key, a.checked, x.at-a.ttl); !ok {
			seq = a.found
		}
	}
	if seq <= x.b.cur.horizon.Seq { // a key that counts leads to a later record
		return result{}, false
	}
	var rec record.Record
	raw := x.raw(seq)
	if raw != nil {
		if err := rec.Decode(raw); err != nil {
			panic(&store.RowError{Bucket: "ledger/journal", Cause: err})
		}
	}
	mustLead(a.key, seq, &rec, raw != nil)
	switch {
	case rec.At <= x.at-a.ttl:
		return result{}, false
	case rec.Dedupe.Fingerprint != a.op.Fingerprint:
		return refused(refuse(record.IdemConflict)), true
	}
	return replay(seq), true
}

// mustLead ends the command or the view if the record to which the index leads a key is not there,
// or was made under another key or none.
func mustLead(k idem.Key, seq uint64, rec *record.Record, known bool) {
	if made, keyed := tables.IdemKey(rec); !known || !keyed || made != k {
		panic(
			&store.RowError{
				Bucket: "ledger/idem",
				Key:    k[:],
				Cause:  fmt.Errorf("it leads to record %d, which it did not make", seq),
			},
		)
	}
}

// record begins a record that no op alone makes: of a settlement, or of a batch.
func (x *run) record(op record.Op) *record.Record {
	x.rec = record.Record{Op: op, At: x.at, Batch: x.no, Seq: x.b.cur.Seq + 1}
	return &x.rec
}

// append adds rec to the journal and applies it.
func (x *run) append(rec *record.Record) uint64 {
	cur := &x.b.cur
	if rec.Seq != cur.Seq+1 {
		panic("ledger: a record out of turn")
	}
	rec.Rand = randOf(x.seed, rec.Seq)
	raw := rec.Append(x.b.arena.room(record.MaxRecord))
	x.b.arena.used += len(raw)
	x.raws = append(x.raws, raw)
	cur.Seq = rec.Seq
	switch rec.Op {
	case record.OpOpen:
		cur.Accounts++
	case record.OpAsset:
		cur.Assets++
	case record.OpHold:
		cur.OpenHolds++
	case record.OpCapture, record.OpRelease, record.OpExpire:
		cur.OpenHolds--
	}
	if err := x.now.evolve(rec); err != nil {
		panic("ledger: a record contradicts the rows: " + err.Error())
	}
	return rec.Seq
}

// randOf returns the random bits in the id of the record seq.
func randOf(seed, seq uint64) uint16 {
	n := seed + seq
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	return uint16(n ^ n>>33)
}

// raw returns the bytes of a record, of this command or an earlier one; nil if there is no record.
func (x *run) raw(seq uint64) []byte {
	if seq >= x.first {
		if i := seq - x.first; i < uint64(len(x.raws)) {
			return x.raws[i]
		}
		return nil
	}
	return tables.Raw(x.r, seq)
}

// seal makes a batch of the command's records, which there must be, hands both to the store, and
// begins the event of the batch.
func (x *run) seal() record.Batch {
	cur := &x.b.cur
	for _, raw := range x.raws {
		x.tree.Add(raw)
	}
	h := record.Batch{
		No: x.no, First: x.first, Count: uint64(len(x.raws)), At: x.at, Merkle: x.tree.Root(), Prev: cur.LastRoot,
	}
	tables.PutBatch(x.w, &cur.Head, &h, x.raws)
	tables.PutHead(x.w, cur.Head)
	if len(x.b.moved.undo) > 0 {
		x.b.putMoved(x.r, x.w, dayOf(x.at))
	}
	if err := cur.log.add(x.r, h.No-1, cur.LastRoot); err != nil {
		panic(err)
	}
	x.b.event = Committed{First: h.First, Last: cur.Seq, Batch: h.No, Root: cur.LastRoot, At: h.At}
	return h
}

// action is an op as a command carries it, with the names, hashes and rows that its caller has
// looked up.
type action struct {
	op        *Op
	from, to  party  // as far as they were known and in memory
	asset     *asset // nil: not known yet
	hold      uint64 // seq of the op's hold; 0: there is no such hold
	key       idem.Key
	keyed     bool
	ttl       int64      // how long the key counts, ns
	found     uint64     // seq of the record that the key led to; 0: none
	checked   uint64     // up to which records were looked at for the key
	reference *reference // nil: the op has none
	principal [8]byte
	capID     [8]byte
	inner     []action // of a batch
	known     *Outcome // outcome by key or reference; nil: not decided yet
}

// result is what became of an action.
type result struct {
	code   record.Result
	seq    uint64  // of the record: accepted, replayed; of a batch its first part
	nonce  uint64  // that the record used: accepted; 0: it used none
	payer  uint64  // ref of the account with the last nonce that the record used: nonce_reused
	reject *Reject // refused
	inner  []result
}

func accepted(seq uint64) result { return result{code: record.Accepted, seq: seq} }

func replay(seq uint64) result { return result{code: record.Replayed, seq: seq} }

func refused(r *Reject) result { return result{code: r.Code, reject: r} }

// posted is what became of a command.
type posted struct {
	results []result
	batch   record.Batch // No 0: no batch was written
	root    b3.Digest
	seed    uint64
}

// refusal is the error of a command that wrote nothing: it takes no stamp, and needs no sync of its
// own.
type refusal struct{ *posted }

func (refusal) Error() string { return "ledger: every op was refused or had been done before" }

// party is one side of a move as the books have it. Ref 0 is not known; cells that are not there,
// or not looked for, are nil.
type party struct {
	ref     uint64
	account *cell[uint64, tables.Account]
	state   *cell[tables.StateKey, tables.Balance]
	rows    *rows // values for the cells if memory lacks them; nil: read the file
}
