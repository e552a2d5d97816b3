package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// payer is one of many concurrent payers. Each pays from its own account, and often leaves before
// it is answered.
type payer struct {
	*rig
	name  string
	dice  *rand.Rand
	nonce uint64 // the last one used
	paid  *atomic.Uint64
}

// pay makes one payment and compares every answer with the journal.
func (p *payer) pay(i int) {
	op := keyed(transfer(p.name, "shop", p.dice.Uint64N(4), p.nonce+1), fmt.Sprint(p.name, "-", i))
	if op.Fingerprint[2] = byte(i); op.Amount.IsZero() {
		op.Amount = amount(1 << 40) // more than there is
	}
	ctx, cancel := context.WithCancel(p.ctx())
	defer cancel()
	var leaves sync.WaitGroup
	if p.dice.IntN(2) == 0 {
		turns := p.dice.IntN(400)
		leaves.Go(func() {
			for range turns {
				runtime.Gosched()
			}
			cancel()
		})
	}
	outs, err := p.l.Commit(ctx, []ledger.Op{op})
	leaves.Wait()
	var gone *ledger.UnavailableError
	for errors.As(err, &gone) && gone.Unknown {
		outs, err = p.l.Commit(p.ctx(), []ledger.Op{op})
	}
	done, found, e := p.l.Find(p.ctx(), op.Dedupe, op.Fingerprint, 0)
	switch {
	case e != nil:
		p.t.Errorf("find: %v", e)
	case errors.As(err, &gone):
		if found {
			p.t.Errorf("%s: it is said that nothing was done: %s", op.Dedupe.Key, receipts(done))
		}
	case err != nil:
		p.t.Errorf("%s: %v", op.Dedupe.Key, err)
	case outs[0].Reject != nil:
		if outs[0].Reject.Code != record.InsufficientFunds || op.Amount != amount(1<<40) || found {
			p.t.Errorf("%s: %v", op.Dedupe.Key, outs[0].Reject)
		}
	case !found || receipts(done) != receipts(outs[0]) || outs[0].Receipt.Idem != op.Idem || outs[0].Receipt.Amount != op.Amount:
		p.t.Errorf("%s: %s, the journal has %s", op.Dedupe.Key, receipts(outs[0]), receipts(done))
	default:
		_, n := op.Amount.Parts()
		p.nonce++
		p.paid.Add(n)
	}
}

// Many callers pay at once, some leave at any moment, and some commands panic. Each caller learns
// the outcome of its own op.
func TestCallersThatLeave(t *testing.T) {
	const payers, payments = 12, 60
	r := newRig(t, nil).declare("ron")
	var paid atomic.Uint64
	for i := range payers {
		name := fmt.Sprint("user", i)
		r.accept(issue(name, 4*payments, uint64(i+1)))
		p := &payer{rig: r, name: name, dice: rand.New(rand.NewPCG(1, uint64(i))), paid: &paid}
		r.bg.Go(func() {
			for i := range payments {
				p.pay(i)
			}
		})
	}
	r.bg.Go(func() {
		for range payments {
			if err := r.l.CommitBug(r.ctx(), transfer("user0", "shop", 1, 1)); !errors.Is(err, store.ErrInternal) {
				t.Errorf("the bug: %v", err)
			}
		}
	})
	r.bg.Wait()
	if b, err := r.l.Balance(r.ctx(), "shop", "ron", 0); err != nil || b.Posted != amount(paid.Load()) {
		t.Errorf("the shop has %v, %v, want %d", b.Posted, err, paid.Load())
	}
	if n := r.l.Strays(); n != 0 {
		t.Errorf("%d keys are on their way", n)
	}
	r.verify()
}
