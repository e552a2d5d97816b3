package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Writers, readers and tasks run concurrently, with boots without a flush. No unit is created or
// lost, no balance becomes negative, and no answer changes.
func TestBusy(t *testing.T) {
	r := newRig(t, nil, func(c *ledger.Config) {
		c.FlushSlice, c.DirtyMaxAccounts, c.SlotMax = 16, 64, 256
		c.FlushEvery = 2_000_000 // 2 ms
	}).declare("ron")
	r.l.Forgetful(8)
	r.start()
	names := make([]string, 40)
	var fund []ledger.Op
	for i := range names {
		names[i] = fmt.Sprintf("user/%02d", i)
		fund = append(fund, issue(names[i], 1000, uint64(i+1)))
	}
	r.accept(fund...)
	nonces := make([]uint64, len(names))
	for round := range 2 {
		var wg sync.WaitGroup
		for w := range 4 {
			wg.Go(func() { r.work(names, nonces, w, round) })
		}
		stop := make(chan struct{})
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() { r.look(names, stop) })
		}
		wg.Wait()
		close(stop)
		readers.Wait()
		r.conserved(names, 1000*uint64(len(names)))
		r.reopen()
		r.start()
		r.conserved(names, 1000*uint64(len(names)))
	}
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Error(err)
	}
	r.verify()
}

// work moves money between accounts. It debits only its own accounts, so that it knows their
// nonces.
func (r *rig) work(names []string, nonces []uint64, w, round int) {
	dice := rand.New(rand.NewPCG(uint64(w), uint64(round)))
	for step := range 15 {
		var ops []ledger.Op
		for range 1 + dice.IntN(20) {
			from := w + 4*dice.IntN(10)
			to := (from + 1 + dice.IntN(len(names)-1)) % len(names)
			nonces[from]++
			o := transfer(names[from], names[to], 1+dice.Uint64N(3), nonces[from])
			ops = append(ops, keyed(o, fmt.Sprintf("%d-%d-%d-%d", w, round, step, len(ops))))
		}
		outs, err := r.l.Commit(r.ctx(), ops)
		if err != nil {
			r.t.Errorf("commit: %v", err)
			return
		}
		for i, out := range outs {
			if out.Reject != nil {
				if out.Reject.Code != record.InsufficientFunds && out.Reject.Code != record.NonceGap {
					r.t.Errorf("%+v: %v", ops[i], out.Reject)
				}
				for k := range names {
					if names[k] == ops[i].From {
						nonces[k] = min(nonces[k], ops[i].Nonce-1)
					}
				}
			}
		}
		again, err := r.l.Commit(r.ctx(), ops[:1])
		if err != nil || outs[0].Reject == nil && (receipts(again[0]) != receipts(outs[0]) || !again[0].Replayed) {
			r.t.Errorf("again: %+v, %v; first %+v", again, err, outs[0])
		}
	}
}

// look reads everything until stop.
func (r *rig) look(names []string, stop chan struct{}) {
	for i := 0; ; i++ {
		select {
		case <-stop:
			return
		default:
		}
		head, err := r.l.Head(r.ctx())
		if err != nil {
			r.t.Errorf("head: %v", err)
			return
		}
		b, err := r.l.Balance(r.ctx(), names[i%len(names)], "ron", head.Seq)
		if err != nil || b.Seq < head.Seq {
			r.t.Errorf("balance: %+v, %v, want it after %d", b, err, head.Seq)
		}
		page, err := r.l.History(
			r.ctx(),
			ledger.HistoryQuery{Account: names[i%len(names)], Asset: "ron", Limit: 5, NewestFirst: true},
		)
		if err != nil {
			r.t.Errorf("history: %v", err)
			return
		}
		for _, e := range page.Entries {
			r.proven(e.Receipt)
		}
	}
}

func (r *rig) proven(receipt record.Receipt) {
	p, err := r.l.Prove(r.ctx(), receipt.TxID, 0)
	if err != nil {
		r.t.Errorf("prove: %v", err)
		return
	}
	got, err := p.Verify()
	if err != nil || got != receipt {
		r.t.Errorf("the proof shows %+v, %v; the receipt is %+v", got, err, receipt)
	}
}

// conserved checks that the balances of names and the issued amount equal want.
func (r *rig) conserved(names []string, want uint64) {
	r.t.Helper()
	var sum engines.Amount
	for _, name := range names {
		b, err := r.l.Balance(r.ctx(), name, "ron", 0)
		if err != nil {
			r.t.Fatal(err)
		}
		sum, _ = sum.Add(b.Posted)
	}
	assets, err := r.l.Assets(r.ctx())
	if err != nil || sum != amount(want) || assets[0].Issued != amount(want) {
		r.t.Fatalf("all have %v, %v is out, %v; want %d", sum, assets, err, want)
	}
}

// No call waits longer than its context allows.
func TestContexts(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	gone, cancel := context.WithCancel(r.ctx())
	cancel()
	_, err := r.l.Commit(gone, []ledger.Op{issue("alice", 1, 1)})
	var none *ledger.UnavailableError
	if !errors.As(err, &none) || none.Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v", err)
	}
	if _, err := r.l.Balance(gone, "alice", "ron", 0); !errors.Is(err, context.Canceled) {
		t.Errorf("balance: %v", err)
	}
	soon, cancel := context.WithTimeout(r.ctx(), time.Millisecond)
	defer cancel()
	if _, err := r.l.Balance(soon, "alice", "ron", 1000); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("balance after a record that never comes: %v", err)
	}
	if err := r.l.Close(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.l.Commit(r.ctx(), []ledger.Op{issue("alice", 1, 1)}); !errors.As(err, &none) || none.Unknown {
		t.Errorf("commit after Close: %v", err)
	}
}
