package ledger

import (
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// batch decides the ops of a batch in turn; of an atomic one all are done or none. What became of each is a record of its own, and the
// batch's key leads to that. A batch without an accepted op is not recorded.
func (x *run) batch(a *action) result {
	if r := x.late(a.op); r != nil {
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

// inner runs ops in turn, which have no keys of their own. If they stand or fall together the first refusal undoes them, and failed says which
// it was; else it is -1.
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

// results writes what became of each op of a batch, in parts, and gives the first part's seq.
func (x *run) results(a *action, p place, inner []result) uint64 {
	codes := make([]byte, len(inner))
	for i := range inner {
		codes[i] = byte(inner[i].code)
	}
	first := x.next()
	parts := (len(codes) + record.MaxResults - 1) / record.MaxResults
	for part := range parts {
		rec := x.record(record.OpBatch)
		rec.Named = true
		rec.Part, rec.Parts = uint16(part), uint16(parts)
		rec.Results = codes[part*record.MaxResults : min(len(codes), (part+1)*record.MaxResults)]
		x.asked(rec, a, place{flags: p.flags &^ record.FlagInner})
		if part > 0 {
			rec.Dedupe, rec.Idem, rec.Memo = record.Dedupe{}, "", ""
		}
		x.write(rec)
	}
	return first
}

// once is a settlement's permanent id, hashed.
type once struct {
	key       tables.OnceKey
	digest    [32]byte
	guard     record.Guard
	principal [8]byte
}

// settle does all ops of a settlement or none. The record of its id comes first; the ops are what follows it in its batch.
func (x *run) settle(c *share) result {
	id := x.b.once(x.r, c.once.key)
	if bound := id.cur.v; bound.Seq != 0 {
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
	seq := x.write(rec)
	x.bind(c.once, seq)
	out, failed := x.inner(c.ops, place{flags: record.FlagInner | record.FlagAtomic, unnonced: true}, true)
	if failed >= 0 {
		x.b.back(save)
		x.b.cur, x.raws = before, x.raws[:0]
		return out
	}
	out.seq = seq
	return out
}

// guarded tells whether a settlement's guard lets it pass.
func (x *run) guarded(g record.Guard) bool {
	if g == (record.Guard{}) {
		return true
	}
	bound := x.b.once(x.r, tables.OnceKey{Guard: true, Key: g.Key}).cur.v
	return bound.Seq == 0 || digest16(bound.Digest) == g.Owner
}

// bind enters a permanent id and, unless it is bound, its guard.
func (x *run) bind(o *once, seq uint64) {
	b := x.b
	id := b.once(x.r, o.key)
	b.onces.change(id, seq)
	id.cur.v = tables.Once{Seq: seq, Digest: o.digest}
	if o.guard == (record.Guard{}) {
		return
	}
	g := b.once(x.r, tables.OnceKey{Guard: true, Key: o.guard.Key})
	if g.cur.v.Seq != 0 {
		return
	}
	b.onces.change(g, seq)
	g.cur.v.Seq = seq
	copy(g.cur.v.Digest[:], o.guard.Owner[:])
}
