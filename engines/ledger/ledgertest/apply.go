package ledgertest

import (
	"math/big"
	"slices"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// verdict is what became of one op, before its batch is sealed.
type verdict struct {
	seq      uint64 // of the record, 0 for a refusal
	replayed bool
	reject   *ledger.Reject
	results  []verdict // of a batch or a settlement
	atomic   bool      // likewise
}

// within is what an op is part of.
type within struct {
	internal bool   // a Settle: no nonce is asked for
	flags    uint16 // of the record
	batchCap string // the token of a batch
	asker    string // the principal of a batch
}

// do decides one op and, if nothing speaks against it, writes it.
func (b *books) do(o ledger.Op, at int64, w within) verdict {
	if v, is := b.replay(o, at); is {
		return v
	}
	if v, is := b.refer(o, w); is {
		return v
	}
	var v verdict
	if o.Code == record.OpBatch {
		v = b.doBatch(o, at, w)
	} else {
		v = b.doOne(o, at, w)
	}
	if v.seq != 0 && !v.replayed && o.Dedupe.Key != "" {
		b.keys[o.Dedupe] = known{v.seq, at, o.Fingerprint}
	}
	if v.seq != 0 && !v.replayed && o.Reference != "" {
		b.refs[w.reference(&o)] = referred{v.seq, wordsOf(&o)}
	}
	return v
}

// reference is that of an op.
func (w within) reference(o *ledger.Op) referenceOf {
	if w.flags&record.FlagInner != 0 {
		return referenceOf{w.asker, o.Reference}
	}
	return referenceOf{o.Principal, o.Reference}
}

// refer returns the outcome of the record done under the op's reference.
func (b *books) refer(o ledger.Op, w within) (verdict, bool) {
	done, ok := b.refs[w.reference(&o)]
	switch {
	case !ok || o.Reference == "":
		return verdict{}, false
	case done.words != wordsOf(&o):
		return verdict{reject: refuse(record.ReferenceConflict)}, true
	}
	return b.again(done.seq), true
}

// replay returns the outcome of the record done under the op's key, if the key still counts.
func (b *books) replay(o ledger.Op, at int64) (verdict, bool) {
	k, ok := b.keys[o.Dedupe]
	switch {
	case !ok || o.Dedupe.Key == "" || k.at <= at-int64(o.TTL):
		return verdict{}, false
	case k.digest != o.Fingerprint:
		return verdict{reject: refuse(record.IdemConflict)}, true
	}
	return b.again(k.seq), true
}

// again is the outcome of a record that is there.
func (b *books) again(seq uint64) verdict {
	v := verdict{
		seq:      seq,
		replayed: true,
		results:  slices.Clone(b.entries[seq-1].results),
		atomic:   b.entries[seq-1].atomic,
	}
	for i := range v.results {
		v.results[i].replayed = v.results[i].seq != 0
		if r := v.results[i].reject; r != nil {
			v.results[i].reject = refuse(r.Code)
		}
	}
	return v
}

// doBatch decides the inner ops in turn. Of an atomic batch all are done or none.
func (b *books) doBatch(o ledger.Op, at int64, w within) verdict {
	if r := checkTime(&move{Op: o, at: at}); r != nil {
		return verdict{reject: r}
	}
	before, done := b.copy(), 0
	w.batchCap, w.asker = o.CapID, o.Principal
	if w.flags = record.FlagInner; o.Atomic {
		w.flags |= record.FlagAtomic
	}
	results := make([]verdict, 0, len(o.Ops))
	for i, inner := range o.Ops {
		v := b.do(inner, at, w)
		if results = append(results, v); v.reject == nil && !v.replayed {
			done++
		} else if v.reject != nil && o.Atomic {
			*b = before
			return b.aborted(o, i, *v.reject)
		}
	}
	if done == 0 {
		return verdict{results: results}
	}
	if w.internal {
		return verdict{results: results, atomic: true}
	}
	return verdict{seq: b.writeBatch(o, at, results), results: results, atomic: o.Atomic}
}

// aborted returns the outcome of an atomic batch after the refusal of op i. The record that used
// the op's nonce may be undone with the batch.
func (b *books) aborted(o ledger.Op, i int, why ledger.Reject) verdict {
	if why.Committed.Seq() > uint64(len(b.entries)) {
		why.Committed = record.TxID{}
	}
	results := make([]verdict, len(o.Ops))
	for k := range results {
		results[k].reject = refuse(record.Aborted)
	}
	results[i].reject = &why
	whole := why
	whole.Index = i
	return verdict{reject: &whole, results: results, atomic: true}
}

func (b *books) doOne(o ledger.Op, at int64, w within) verdict {
	m := &move{Op: o, at: at, within: w, guard: guard(w.reference(&o), &o)}
	if a, ok := b.assets[o.Asset]; ok && o.Code == record.OpAsset {
		return b.again(a.seq)
	}
	if r := b.judge(m); r != nil {
		return verdict{reject: r}
	}
	switch o.Code {
	case record.OpAsset:
		return verdict{seq: b.declare(m)}
	case record.OpScale:
		return b.scale(m)
	case record.OpFlags:
		b.opened(o.From, m)
		a := b.accounts[o.From]
		a.flags = a.flags&^o.Clear | o.Set
		b.accounts[o.From] = a
		return verdict{seq: b.write(m, nil)}
	}
	b.opened(m.from, m)
	b.opened(m.to, m)
	return verdict{seq: b.post(m)}
}

// post moves the money and writes the record of it.
func (b *books) post(m *move) uint64 {
	payer, payee := acctAsset{Account: m.from, Asset: m.Asset}, acctAsset{Account: m.to, Asset: m.Asset}
	seq := uint64(len(b.entries) + 1)
	from, to := b.of(payer), b.of(payee)
	switch m.Code {
	case record.OpIssue, record.OpTransfer, record.OpBurn:
		from.debits, to.credits = plus(from.debits, m.sum), plus(to.credits, m.sum)
		from.spend(m.day, m.sum)
	case record.OpHold:
		from.held, to.coming = plus(from.held, m.sum), plus(to.coming, m.sum)
		from.spend(m.day, m.sum)
		b.holds[seq] = hold{m.from, m.to, m.Asset, m.sum, m.at, m.at + int64(m.ExpiresIn), record.Accepted}
		b.open++
	case record.OpCapture:
		from.debits, to.credits = plus(from.debits, m.sum), plus(to.credits, m.sum)
		b.resolve(m, &from, &to, record.HoldClosed)
	case record.OpRelease:
		m.sum = new(big.Int)
		b.resolve(m, &from, &to, record.HoldClosed)
		m.sum = m.hold.amount
	case record.OpExpire:
		m.sum = new(big.Int)
		b.resolve(m, &from, &to, record.HoldExpired)
		m.sum = m.hold.amount
	}
	if m.metered() {
		b.moved[m.tokenDay()] = plus(b.movedBy(m), m.sum)
	}
	prev := [2]uint64{from.last, to.last}
	for _, s := range []*state{&from, &to} {
		s.last, s.history = seq, append(slices.Clip(s.history), seq)
	}
	b.states[payer], b.states[payee] = from, to
	if m.Nonce != 0 && spends(m.Code) {
		a := b.accounts[m.from]
		a.nonce, a.nonced = m.Nonce, seq
		b.accounts[m.from] = a
	}
	return b.write(m, []record.Image{
		{Account: b.accounts[m.from].ref, Asset: b.assets[m.Asset].ref, State: from.encoded(), Prev: prev[0]},
		{Account: b.accounts[m.to].ref, Asset: b.assets[m.Asset].ref, State: to.encoded(), Prev: prev[1]},
	})
}

// resolve ends a hold of which m.sum is taken; the rest goes back, to the day's ceiling too if it
// is still that day.
func (b *books) resolve(m *move, from, to *state, closed record.Result) {
	from.held, to.coming = minus(from.held, m.hold.amount), minus(to.coming, m.hold.amount)
	if held := uint32(m.hold.at / nsPerDay); held == m.day && from.day == m.day {
		from.dayDebits = minus(from.dayDebits, minus(m.hold.amount, m.sum))
	}
	h := m.hold
	h.closed = closed
	b.holds[m.Hold.Seq()] = h
	b.open--
}

func (s *state) spend(day uint32, sum *big.Int) {
	s.dayDebits, s.day = plus(s.spentToday(day), sum), day
}

func plus(a, b *big.Int) *big.Int  { return new(big.Int).Add(a, b) }
func minus(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }

// opened writes the opening of an account that is new.
func (b *books) opened(name string, m *move) {
	if _, ok := b.accounts[name]; ok {
		return
	}
	a := account{ref: uint64(len(b.accounts) + 1), opened: uint64(len(b.entries) + 1)}
	b.accounts[name] = a
	b.append(
		record.Record{Op: record.OpOpen, Flags: m.flags, At: m.at, From: a.ref, Name: name},
		record.Receipt{Op: record.OpOpen, From: name},
	)
}

// scale gives an asset its decimals, for good; an unknown asset is declared.
func (b *books) scale(m *move) verdict {
	if _, known := b.assets[m.Asset]; !known {
		b.declare(&move{Op: ledger.Op{Code: record.OpAsset, Asset: m.Asset}, at: m.at})
	}
	a := b.assets[m.Asset]
	_, decimals := m.Amount.Parts()
	switch {
	case a.scaled != 0 && a.decimals == int(decimals):
		return b.again(a.scaled)
	case a.scaled != 0:
		return verdict{reject: refuse(record.DecimalsSet)}
	}
	a.scaled, a.decimals = uint64(len(b.entries)+1), int(decimals)
	b.assets[m.Asset] = a
	m.sum = integer(m.Amount)
	return verdict{seq: b.write(m, nil)}
}

// declare makes an asset and its issuance account.
func (b *books) declare(m *move) uint64 {
	b.opened(engines.IssuanceAccount(m.Asset), m)
	b.assets[m.Asset] = asset{ref: uint32(len(b.assets) + 1), seq: uint64(len(b.entries) + 1)}
	return b.write(m, nil)
}
