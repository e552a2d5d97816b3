package ledger

import (
	"context"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

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
	return result{code: why.Code, reject: &whole, inner: inner, seq: inner[i].seq, payer: inner[i].payer}
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

// batch turns the result of a batch into its outcome.
func (s *answers) batch(out *Outcome, a *action, res *result, p *posted) {
	out.Batch, out.Atomic = true, a.op.Atomic
	if res.reject != nil && (res.seq != 0 || res.code == record.PeriodClosed) {
		s.later = append(s.later, later{out: out, seq: res.seq, reject: true, payer: res.payer})
	}
	if res.inner == nil {
		return
	}
	out.Results = make([]Outcome, len(a.inner))
	for i := range a.inner {
		if res.inner[i].code == record.PeriodClosed { // as when the batch is read again
			out.Results[i].Reject = refuse(record.PeriodClosed)
			s.l.m.refused(record.PeriodClosed)
			continue
		}
		s.one(&out.Results[i], &a.inner[i], &res.inner[i], p)
	}
}

// Settle applies ops all or not at all, once for ever; see Client.
func (l *Local) Settle(ctx context.Context, o Once, ops []Op) (Outcome, error) {
	if err := checkSettle(&o, ops); err != nil {
		return Outcome{}, err
	}
	s, actions, err := l.resolve(ctx, ops)
	if err != nil {
		return Outcome{}, err
	}
	sent, err := l.send(ctx, &post{once: hashOnce(&o), size: s.size}, actions)
	if err != nil {
		return Outcome{}, err
	}
	sent.actions = []action{{op: &Op{Code: record.OpBatch, Atomic: true}, inner: actions}}
	outs, err := sent.Wait(ctx)
	if err != nil {
		return Outcome{}, err
	}
	return outs[0], nil
}

// maxOnceWord bounds the words that name a settlement, bytes.
const maxOnceWord = 128

func checkSettle(o *Once, ops []Op) error {
	if n := len(ops); n == 0 || n > MaxPostings {
		return &OpError{Field: "ops", Reason: fmt.Sprintf("a settlement has 1 to %d, not %d", MaxPostings, n)}
	}
	for _, w := range [...]struct{ field, word string }{{"once.domain", o.Domain}, {"once.id", o.ID}} {
		if w.word == "" || len(w.word) > maxOnceWord {
			return &OpError{Field: w.field, Reason: fmt.Sprintf("must be of 1 to %d bytes", maxOnceWord)}
		}
	}
	for i := range ops {
		if field, reason := ops[i].check(true); field != "" {
			return &OpError{Index: i, Field: field, Reason: reason}
		}
		if ops[i].Reference != "" {
			return &OpError{Index: i, Field: "reference", Reason: "an op of a settlement has none"}
		}
	}
	return nil
}

// The purposes for which permanent ids and guards are hashed. They need no key: who names them is
// the node itself, and an import into a ledger with another key must find them again.
var (
	onceIDs     = b3.Derive("ronbox ledger once id v1")
	onceGuards  = b3.Derive("ronbox ledger once guard v1")
	onceOwners  = b3.Derive("ronbox ledger once owner v1")
	onceDivider = []byte{0}
)

func hashOnce(o *Once) *once {
	h := &once{digest: o.Digest, principal: hash8(o.Principal)}
	h.key = tables.OnceKey{
		Key: digest16(onceIDs.Sum([]byte{byte(len(o.Domain))}, []byte(o.Domain), onceDivider, []byte(o.ID))),
	}
	if o.Guard.Key != "" {
		h.guard = record.Guard{
			Key:   digest16(onceGuards.Sum([]byte(o.Guard.Key))),
			Owner: digest16(onceOwners.Sum([]byte(o.Guard.Owner))),
		}
	}
	return h
}

// once is a settlement's permanent id, hashed.
type once struct {
	key       tables.OnceKey
	digest    [32]byte
	guard     record.Guard
	principal [8]byte
}

// settle does all ops of a settlement or none. The record of its id comes first; the ops are what
// follows it in its batch.
func (x *run) settle(c *post) result {
	id := x.b.once(x.r, c.once.key)
	if bound := x.b.onces.cur(id).v; bound.Seq != 0 {
		if bound.Digest != c.once.digest {
			return refused(refuse(record.OnceConflict))
		}
		return replay(bound.Seq)
	}
	if !x.guarded(c.once.guard) {
		return refused(refuse(record.OnceConflict))
	}
	rec := x.record(record.OpOnce)
	rec.Flags, rec.Principal, rec.Guard = record.FlagAtomic, c.once.principal, c.once.guard
	rec.Dedupe = record.Dedupe{Kind: record.DedupeOnce, Key: c.once.key.Key, Fingerprint: c.once.digest}
	before, save := x.b.cur, x.b.save()
	seq := x.append(rec)
	out, failed := x.inner(c.ops, place{flags: record.FlagInner | record.FlagAtomic, unnonced: true}, true)
	if failed >= 0 {
		x.b.back(save)
		x.b.cur, x.raws = before, x.raws[:0]
		return out
	}
	out.seq = seq
	return out
}

// guarded reports whether the guard of a settlement is free or belongs to its owner.
func (x *run) guarded(g record.Guard) bool {
	if g == (record.Guard{}) {
		return true
	}
	bound := x.b.onceRow(x.r, tables.OnceKey{Guard: true, Key: g.Key})
	return bound.Seq == 0 || digest16(bound.Digest) == g.Owner
}
