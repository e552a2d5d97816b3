package ledger

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// post is the command that moves money: independent ops, batches among them, or one settlement.
type post struct {
	ops     []action
	once    *once // of a settlement: its ops are all done or none
	size    int   // of the records it may write, bytes
	touched []Mark
	seed    uint64
	flush   flushRule
	reply   *flow.Reply[*posted]

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
	if b.event.All = len(c.touched) > MaxTouched; !b.event.All {
		b.event.Touched = c.touched
	}
	if f := c.flush; f.dirtyMax != 0 && b.cur.hand.pass != nil && b.dirty() >= f.dirtyMax {
		x.slice(max(f.rows, b.states.soiled+b.accounts.soiled))
	}
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
		x.b.moved.touch(c)
		c.cur.v = plus(d.m.moved, d.m.amount)
	}
	return res
}

// again returns the outcome of the record done under the op's key, if the key still counts.
func (x *run) again(a *action) (result, bool) {
	seq := x.known.Get(a.key)
	if seq == 0 {
		var ok bool
		if seq, ok = x.b.idem.Lookup(x.r, a.key, a.checked, x.at-int64(a.op.TTL)); !ok {
			seq = a.found
		}
	}
	if seq == 0 {
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
	case rec.At <= x.at-int64(a.op.TTL):
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

// action is an op as a command carries it: what can be looked up or hashed before it is queued has
// been.
type action struct {
	op        *Op
	from, to  party  // as far as they were known and in memory
	asset     uint32 // ref; 0 was not known
	hold      uint64 // seq of the op's hold; 0: there is no such hold
	key       idem.Key
	keyed     bool
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
	state   *cell[tables.StateKey, balance]
	rows    *rows // values for the cells if memory lacks them; nil: read the file
}

// batch decides the ops of a batch in turn; of an atomic one all are done or none. What became of
// each is a record of its own, and the batch's key leads to that. A batch without an accepted op is
// not recorded.
func (x *run) batch(a *action) result {
	if r := x.decider.late(a.op); r != nil {
		return refused(r)
	}
	p := place{flags: record.FlagInner, token: a.capID}
	if a.op.Atomic {
		p.flags |= record.FlagAtomic
	}
	out, failed := x.inner(a.inner, p, a.op.Atomic)
	if failed >= 0 {
		return out
	}
	for i := range out.inner {
		if out.inner[i].code == record.Accepted {
			out.seq = x.results(a, p, out.inner)
			break
		}
	}
	return out
}

// inner runs ops without keys of their own, in order. If they stand or fall together, the first
// refusal undoes them and failed is its index; else failed is -1.
func (x *run) inner(ops []action, p place, together bool) (out result, failed int) {
	before, save, raws := x.b.cur, x.b.save(), len(x.raws)
	out = result{code: record.Accepted, inner: make([]result, len(ops))}
	for i := range ops {
		out.inner[i] = x.do(&ops[i], p)
		if !together || !out.inner[i].code.Refused() {
			continue
		}
		x.b.back(save)
		x.b.cur, x.raws = before, x.raws[:raws]
		if out.inner[i].seq > before.Seq {
			out.inner[i].seq = 0 // a record that was taken back
		}
		return aborted(out.inner, i), i
	}
	return out, -1
}

// aborted is the outcome of ops that stand or fall together, when op i was refused.
func aborted(inner []result, i int) result {
	why, sibling := inner[i].reject, refuse(record.Aborted)
	for k := range inner {
		if k != i {
			inner[k] = refused(sibling)
		}
	}
	whole := *why
	whole.Index = i
	return result{code: why.Code, reject: &whole, inner: inner, seq: inner[i].seq}
}

// results writes the results of a batch, in parts, and returns the seq of the first part.
func (x *run) results(a *action, p place, inner []result) uint64 {
	codes := make([]byte, len(inner))
	for i := range inner {
		codes[i] = byte(inner[i].code)
	}
	x.repeats(a.inner, inner, p)
	first := x.b.cur.Seq + 1
	parts := (len(codes) + record.MaxResults - 1) / record.MaxResults
	for part := range parts {
		rec := x.record(record.OpBatch)
		rec.Named = true
		rec.Part, rec.Parts = uint16(part), uint16(parts)
		rec.Results = codes[part*record.MaxResults : min(len(codes), (part+1)*record.MaxResults)]
		a.note(rec, place{flags: p.flags &^ record.FlagInner})
		if part > 0 {
			rec.Dedupe, rec.Idem, rec.Memo = record.Dedupe{}, "", ""
		}
		x.append(rec)
	}
	return first
}
