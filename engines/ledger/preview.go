package ledger

import (
	"context"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// preview is the committed state as far as some ops look at it, with what the ones before them would change.
type preview struct {
	l        *Local
	r        store.Reader
	accounts map[uint64]*tables.Account
	states   map[tables.StateKey]*record.State
	holds    map[uint64]*tables.Hold
	named    map[string]uint64 // refs made up for accounts that are not known
	tip      *tip
	at       int64
}

// Preview judges ops in order by the rules of Apply, on the committed state and without a trace: an early filter, so that what is bound to be
// refused costs no commit. A nil Reject is no promise. Nonces are left to Apply, since those before them may still be on their way, and so
// are batches and dedupe keys.
func (l *Local) Preview(ctx context.Context, ops []Op) ([]*Reject, error) {
	if err := l.readable(ctx); err != nil {
		return nil, err
	}
	if err := checkOps(ops); err != nil {
		return nil, err
	}
	out := make([]*Reject, len(ops))
	tip := l.books.view.Load()
	err := l.view(ctx, func(r store.Reader) error {
		p := &preview{
			l: l, r: r, tip: tip, at: max(l.now().UnixNano(), tip.At+1), accounts: map[uint64]*tables.Account{},
			states: map[tables.StateKey]*record.State{}, holds: map[uint64]*tables.Hold{}, named: map[string]uint64{},
		}
		for i := range ops {
			if o := &ops[i]; o.Code != record.OpBatch && o.Code != record.OpAsset && o.Code != record.OpFlags {
				out[i] = p.judge(o)
			}
		}
		return nil
	})
	return out, l.readError(err)
}

func (p *preview) judge(o *Op) *Reject {
	m := &move{
		code: o.Code, at: p.at, amount: o.Amount, unnonced: true, until: o.ValidUntil, limits: o.Limits, daily: o.Daily, open: p.tip.OpenHolds,
	}
	m.from.account, m.to.account = &tables.Account{}, &tables.Account{}
	m.from.state, m.to.state = &record.State{}, &record.State{}
	if resolves(o.Code) {
		p.ending(m, o)
	} else if declared := p.tip.assets.get(o.Asset); declared != nil {
		from, to := declared.issuer, declared.issuer
		if o.Code != record.OpIssue {
			from = p.ref(o.From)
		}
		if o.Code != record.OpBurn {
			to = p.ref(o.To)
		}
		p.sides(m, declared, from, to)
	}
	r := m.judge()
	if r == nil {
		m.post(p.tip.Seq + 1)
	}
	return r
}

func (p *preview) sides(m *move, a *asset, from, to uint64) {
	m.asset = a.ref
	m.from, m.to = p.side(from, a), p.side(to, a)
}

// ending finds the hold that an op ends, and whom it is between.
func (p *preview) ending(m *move, o *Op) {
	rec, err := p.l.given(p.r, o.Hold)
	if err != nil || rec.Op != record.OpHold {
		return
	}
	h := p.holds[rec.Seq]
	if h == nil {
		v, ok := p.l.books.holds.read(rec.Seq)
		if !ok {
			v, _ = tables.GetHold(p.r, rec.Seq)
		}
		h = &v
		p.holds[rec.Seq] = h
	}
	if a := p.tip.assets.of(h.Asset); a != nil {
		m.hold = h
		p.sides(m, a, h.From, h.To)
	}
}

func (p *preview) side(ref uint64, a *asset) side {
	s := side{account: p.accounts[ref], issues: ref == a.issuer}
	if s.account == nil {
		v, ok := p.l.books.accounts.read(ref)
		if !ok {
			v, _ = tables.GetAccount(p.r, ref)
		}
		s.account = &v
		p.accounts[ref] = s.account
	}
	k := tables.StateKey{Account: ref, Asset: a.ref}
	if s.state = p.states[k]; s.state == nil {
		v, ok := p.l.books.states.read(k)
		if !ok {
			v.Balance, _ = tables.GetBalance(p.r, k.Account, k.Asset)
		}
		s.state = &v.State
		p.states[k] = s.state
	}
	return s
}

// ref is that of an account; one that is not known gets a ref that nobody has.
func (p *preview) ref(name string) uint64 {
	ref := p.l.refOf(p.r, name)
	if ref != 0 {
		return ref
	}
	if ref = p.named[name]; ref == 0 {
		ref = ^uint64(0) - uint64(len(p.named))
		p.named[name] = ref
	}
	return ref
}
