package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// One command of a group panics after its ops are applied, another is refused, and the last one
// flushes. Memory matches the file, whether or not the file has room for the group.
func TestGroupWithoutRoom(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	memory := store.DefaultAmnesiaConfig()
	memory.MaxBytes = 32 << 20
	r := newRig(t, nil)
	r.stop()
	r.memory = &memory
	r.open()
	r.declare("ron")
	r.accept(issue("alice", 1_000_000, 1))
	memo := strings.Repeat("x", record.MaxMemo)
	given, failed := uint64(0), false
	for round := 0; !failed; round++ {
		was := r.books("alice", "bob", "carol", fmt.Sprint("new", round))
		var calls sync.WaitGroup
		var accepted, full, refused, bugs atomic.Int64
		first := newStop()
		r.hold(first)
		<-first.in
		call := func(i uint64, do func() ([]ledger.Outcome, error)) {
			calls.Go(func() {
				outs, err := do()
				switch {
				case errors.Is(err, ledger.ErrFull):
					full.Add(1)
				case errors.Is(err, store.ErrInternal):
					bugs.Add(1)
				case err != nil:
					t.Errorf("command %d: %v", i, err)
				case outs[0].Reject != nil:
					refused.Add(1)
				default:
					accepted.Add(1)
				}
			})
			waitFor(t, func() bool { return r.backlog() == int(i) })
		}
		each := uint64(600) // too many to share a command: some 3 MB a group, and at last one of 7 MB
		if st, err := r.store.Stats(r.ctx()); err != nil {
			t.Fatal(err)
		} else if st.UsedBytes > 27<<20 {
			each = 1400
		}
		for i := range uint64(7) {
			ops := make([]ledger.Op, each)
			for k := range ops {
				ops[k] = transfer("alice", "bob", 1, given+each*i+uint64(k)+1)
				ops[k].Memo = memo
			}
			call(i+1, func() ([]ledger.Outcome, error) { return r.l.Commit(r.ctx(), ops) })
		}
		lost := ledger.Op{Code: record.OpFlags, From: fmt.Sprint("new", round), Set: record.NoDebit}
		call(8, func() ([]ledger.Outcome, error) { return nil, r.l.Break(r.ctx(), lost) })
		call(9, func() ([]ledger.Outcome, error) {
			return r.l.Commit(r.ctx(), []ledger.Op{transfer("carol", "alice", 5, 1)})
		})
		close(first.out)
		calls.Wait()
		switch {
		case full.Load() == 9 || full.Load() == 8 && refused.Load() == 0:
			failed = true
			if is := r.books("alice", "bob", "carol", fmt.Sprint("new", round)); is != was {
				t.Fatalf("after a group that has no room:\n%s\nbefore it:\n%s", is, was)
			}
		case accepted.Load() == 7 && refused.Load() == 1 && bugs.Load() == 1:
			given += 7 * each
		default:
			t.Fatalf("accepted %d, full %d, refused %d, bugs %d", accepted.Load(), full.Load(), refused.Load(),
				bugs.Load())
		}
		if a, err := r.l.Account(r.ctx(), fmt.Sprint("new", round)); err != nil || a.Known {
			t.Fatalf("what panicked has left %+v, %v", a, err)
		}
	}
	if b, err := r.l.Balance(r.ctx(), "bob", "ron", 0); err != nil || b.Posted != amount(given) {
		t.Errorf("bob has %v, %v, want %d", b.Posted, err, given)
	}
	r.verify()
}

// Many callers spend from one account at once, each with the nonce that it expects to be next. Each
// nonce is used once, no amount is spent twice, and the final balance is zero.
func TestConcurrentSpenders(t *testing.T) {
	r := newRig(t, nil, func(c *ledger.Config) {
		c.FlushSlice, c.FlushEvery = 4, 1_000_000
	}).declare("ron").start()
	r.l.Forgetful(1)
	const funds, spenders = 60, 12
	r.accept(issue("purse", funds, 1))
	var spent atomic.Int64
	var wg sync.WaitGroup
	for w := range spenders {
		wg.Go(func() {
			for {
				a, err := r.l.Account(r.ctx(), "purse")
				if err != nil {
					t.Error(err)
					return
				}
				op := keyed(transfer("purse", fmt.Sprint("w", w), 1, a.LastNonce+1), fmt.Sprint(w, "-", a.LastNonce+1))
				outs, err := r.l.Commit(r.ctx(), []ledger.Op{op})
				switch {
				case err != nil:
					t.Error(err)
					return
				case outs[0].Reject == nil:
					spent.Add(1)
				case outs[0].Reject.Code == record.InsufficientFunds:
					return
				case outs[0].Reject.Code != record.NonceReused:
					t.Errorf("%v", outs[0].Reject)
				}
			}
		})
	}
	wg.Wait()
	b, err := r.l.Balance(r.ctx(), "purse", "ron", 0)
	if err != nil || !b.Posted.IsZero() || spent.Load() != funds {
		t.Errorf("%d of %d were spent, the purse has %v, %v", spent.Load(), funds, b.Posted, err)
	}
	if a, err := r.l.Account(r.ctx(), "purse"); err != nil || a.LastNonce != funds {
		t.Errorf("the last nonce is %d, %v", a.LastNonce, err)
	}
	r.verify()
}

// Many callers that send the same op with the same key at once apply it once, and all receive the
// same bytes.
func TestConcurrentDuplicates(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 100, 1))
	for round := range uint64(5) {
		op := keyed(transfer("alice", "bob", 3, round+1), fmt.Sprint("k", round))
		other := keyed(transfer("alice", "carol", 3, round+1), fmt.Sprint("k", round))
		other.Fingerprint[5] = 1
		var mu sync.Mutex
		got, conflicts, fresh := map[string]int{}, 0, 0
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				one := op
				if i%4 == 3 {
					one = other
				}
				ctx, cancel := context.WithCancel(r.ctx())
				defer cancel()
				outs, err := r.l.Commit(ctx, []ledger.Op{one, one}) // twice in one call, too
				mu.Lock()
				defer mu.Unlock()
				for _, out := range outs {
					switch {
					case out.Reject == nil:
						got[receipts(out)]++
						if !out.Replayed {
							fresh++
						}
					case out.Reject.Code == record.IdemConflict:
						conflicts++
					default:
						t.Errorf("%v", out.Reject)
					}
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(got) != 1 || fresh != 1 || conflicts != 6 && conflicts != 18 {
			t.Errorf("%d receipts, %d of them new, %d conflicts", len(got), fresh, conflicts)
		}
	}
	head, err := r.l.Head(r.ctx())
	if err != nil || head.Seq != 2+2+5+2 && head.Seq != 2+2+5+1 {
		t.Errorf("the head is %+v, %v", head, err)
	}
	r.verify()
}
