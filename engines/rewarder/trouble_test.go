package rewarder_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	ledgerrecord "ronbox/engines/ledger/record"
	"ronbox/engines/rewarder"
	"ronbox/store"
)

// fillers are rows that fill a file.
var fillers = store.NewTable(&store.Bucket{Name: "fill"}, store.U64(), store.Raw())

// fill writes rows until the file is full, smaller ones at the end, and returns a function that
// frees the room.
func (r *rig) fill() (free func()) {
	n := uint64(0)
	commit := func(lane store.Lane, do func(*store.Writes)) error {
		_, err := store.Commit(
			r.ctx(),
			r.store,
			lane,
			rewarder.Command("fill", 1, func(_ store.Reader, w *store.Writes) (none struct{}, err error) {
				do(w)
				return none, nil
			}),
		)
		return err
	}
	for size := 256 << 10; size >= 256; {
		err := commit(store.Work, func(w *store.Writes) { fillers.Put(w, n, make([]byte, size)) })
		switch n++; {
		case errors.Is(err, store.ErrFull):
			size /= 4
		case err != nil:
			r.t.Error(err)
			return nil
		}
	}
	return func() {
		if err := commit(store.Control, func(w *store.Writes) {
			for i := range n {
				fillers.Delete(w, i)
			}
		}); err != nil {
			r.t.Error(err)
		}
	}
}

// A run waits at any step for which the file has no room. Readiness reports it, and the run goes on
// once there is room.
func TestRunsWaitForRoom(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"staging", "seal_before", "settled_chunk", "artifact_temp"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(r *rig) {
				memory := store.DefaultAmnesiaConfig()
				// large enough that the freed pages of the last commits do not make room again
				memory.MaxBytes = 64 << 20
				r.memory, r.before = &memory, func(r *rig) { r.store.Declare(rewarder.Service, fillers.Bucket()) }
			})
			r.e.Look().Set(20 * time.Millisecond)
			r.e.Tick().Set(20 * time.Millisecond)
			var free atomic.Pointer[func()]
			r.onStep(func(s string) {
				if s == at && free.Load() == nil {
					f := r.fill()
					free.Store(&f)
				}
			})
			r.start()
			p := policy()
			r.put(p)
			r.mustCompute("e", r.seal(inputOf("e", 1000), usage("a requests 1", "b requests 3")), p)
			r.eventually(
				"store_ok fails",
				func() bool { return free.Load() != nil && r.count("readyz_degraded{cause=store_ok}") == 1 },
			)
			run, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "e")
			if err != nil || run.State == rewarder.Failed || run.State == rewarder.Quarantined {
				t.Errorf("meanwhile: %+v, %v", run, err)
			}
			(*free.Load())()
			r.await("e", rewarder.Settled)
			r.eventually("it is ready again", func() bool {
				run, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "e")
				return err == nil && run.Artifact == rewarder.ArtifactDone && r.count("readyz_degraded{cause=store_ok}") == 0
			})
			if a, b := r.balance("a"), r.balance("b"); a != "250" || b != "750" {
				t.Errorf("a has %s, b %s", a, b)
			}
		})
	}
}

// Rows that a disk has changed are errors for callers and tasks. No task dies, nothing is paid from
// them, and the node is not ready.
func TestDamagedRows(t *testing.T) {
	for _, bucket := range rewarder.Buckets() {
		t.Run(strings.TrimPrefix(bucket.Name, "rw/"), func(t *testing.T) {
			t.Parallel()
			r := newRig(t).only(rewarder.TaskScheduler, rewarder.TaskHealth)
			r.e.Look().Set(20 * time.Millisecond)
			r.e.Tick().Set(20 * time.Millisecond)
			p := policy()
			r.put(p)
			in := r.seal(inputOf("e", 1000), many(600))
			fresh := r.seal(inputOf("fresh", 1000), many(2))
			r.mustCompute("e", in, p)
			r.only(rewarder.TaskWorker)
			r.await("e", rewarder.Sealed)
			rows := store.NewTable(bucket, store.Bytes(), store.Raw())
			damaged, first := map[string]bool{}, true
			flip := func() {
				_, err := store.Commit(
					r.ctx(),
					r.store,
					store.Work,
					rewarder.Command("damage", 1, func(rd store.Reader, w *store.Writes) (none struct{}, err error) {
						for key, row := range rows.All(rd) {
							if row = slices.Clone(row); first || damaged[string(key)] {
								damaged[string(key)] = true
								row[len(row)/2] ^= 4
								rows.Put(w, key, row)
							}
						}
						return none, nil
					}),
				)
				if first = false; err != nil {
					t.Fatal(err)
				}
			}
			flip()
			for what, call := range map[string]func() error{
				"epoch":       func() error { _, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "e"); return err },
				"epochs":      func() error { _, err := r.e.Epochs(r.ctx(), rewarder.DefaultTenant, "", 9); return err },
				"allocations": func() error { _, err := r.e.Allocations(r.ctx(), rewarder.DefaultTenant, "e", "", 9); return err },
				"proof":       func() error { _, err := r.e.Proof(r.ctx(), rewarder.DefaultTenant, "e", "acct_0000007"); return err },
				"settlement":  func() error { _, err := r.e.Settlement(r.ctx(), rewarder.DefaultTenant, "e", 0, 9); return err },
				"policy":      func() error { _, err := r.e.Policy(r.ctx(), rewarder.DefaultTenant, p.ID); return err },
				"input":       func() error { _, err := r.e.Input(r.ctx(), rewarder.DefaultTenant, in.InputsCID); return err },
				"again":       func() error { _, err := r.compute("e", in, p); return err },
				"compute":     func() error { _, err := r.compute("fresh", fresh, p); return err },
			} {
				if err := call(); err != nil && !errors.Is(err, store.ErrCorrupt) {
					t.Errorf("%s: %v", what, err)
				}
			}
			failing := func() {
				r.eventually("store_ok fails", func() bool { return r.count("readyz_degraded{cause=store_ok}") == 1 })
			}
			if bucket == rewarder.TodoRows.Bucket() {
				failing() // before the queues, which have the run, let it delete its rows
			}
			r.only(rewarder.TaskEmitter, rewarder.TaskWriter)
			switch bucket {
			case rewarder.TodoRows.Bucket():
			// the run is paid without them; the writer alone reads chunks
			case rewarder.UploadRows.Bucket(), rewarder.IntentRows.Bucket(), rewarder.ParkedRows.Bucket(),
				rewarder.StartedRows.Bucket(), rewarder.ChunkRows.Bucket():
				r.await("e", rewarder.Settled)
			default:
				failing()
				if got := r.balance("acct_0000007"); got != "0" {
					t.Errorf("an actor has %s meanwhile", got)
				}
			}
			flip() // back
			r.await("e", rewarder.Settled)
			r.eventually("it is ready again", func() bool { return r.count("readyz_degraded{cause=store_ok}") == 0 })
			for _, task := range []string{rewarder.TaskScheduler, rewarder.TaskWorker, rewarder.TaskEmitter,
				rewarder.TaskWriter} {
				if n := r.count(fmt.Sprintf("service_restarts_total{task=%s}", task)); n != 0 {
					t.Errorf("%s died %v times", task, n)
				}
			}
			if left := r.balance(pool); left != fmt.Sprint(funded-1000) && left != fmt.Sprint(funded-2000) {
				t.Errorf("%s is left", left)
			}
		})
	}
}

// between calls f once, before the second chunk of a run is paid.
type between struct {
	ledger.Client
	settles atomic.Int64
	f       func()
}

func (b *between) Settle(ctx context.Context, once ledger.Once, ops []ledger.Op) (ledger.Outcome, error) {
	if b.settles.Add(1) == 2 {
		b.f()
	}
	return b.Client.Settle(ctx, once, ops)
}

// drain moves n out of the funding account.
func (r *rig) drain(n uint64) {
	a, err := r.model.Account(r.ctx(), pool)
	if err != nil {
		r.t.Error(err)
	}
	r.operate("drain", ledger.Op{
		Code:   ledgerrecord.OpTransfer,
		From:   pool,
		Nonce:  a.LastNonce + 1,
		To:     "elsewhere",
		Asset:  asset,
		Amount: engines.AmountOf(0, n),
	})
}

// operate has the ledger execute op once under a key.
func (r *rig) operate(word string, op ledger.Op) {
	op.Idem, op.Dedupe, op.Fingerprint = word, ledger.DedupeKey{Scope: "test", Key: word}, b3.Sum([]byte(word))
	op.TTL, op.Principal = time.Hour, "test"
	out, err := r.model.Commit(r.ctx(), []ledger.Op{op})
	if err != nil || out[0].Reject != nil {
		r.t.Errorf("%s: %v %v", word, err, out)
	}
}

// emitPaysOnce resumes a run and compares all balances with its allocations, and the pool with
// left.
func (r *rig) emitPaysOnce(epoch string, left uint64) {
	r.t.Helper()
	if _, err := r.e.Emit(r.ctx(), alice, epoch, false); err != nil {
		r.t.Fatal(err)
	}
	r.await(epoch, rewarder.Settled)
	want := map[string]engines.Amount{}
	r.allocated(epoch, want)
	r.paidOnce(want, n64(left))
}

// allocated adds the allocations of an epoch to want.
func (r *rig) allocated(epoch string, want map[string]engines.Amount) {
	r.t.Helper()
	for after := ""; ; {
		page, err := r.e.Allocations(r.ctx(), rewarder.DefaultTenant, epoch, after, rewarder.MaxPage)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, a := range page.Allocations {
			want[a.Actor], _ = want[a.Actor].Add(a.Amount)
		}
		if after = page.Next; after == "" {
			return
		}
	}
}

// stopsAfterOne waits until a run of three chunks is paused after its first chunk was paid and
// recorded.
func (r *rig) stopsAfterOne(epoch, reason string) {
	r.t.Helper()
	run := r.await(epoch, rewarder.Quarantined)
	if q := run.Quarantine; q.Kind != rewarder.KindEgress || q.Reason != reason || run.Acked != 1 ||
		run.Transactions != 3 {
		r.t.Errorf("%+v of %+v", q, run)
	}
	page, err := r.e.Settlement(r.ctx(), rewarder.DefaultTenant, epoch, 0, 9)
	if err != nil || len(page.Intents) != 3 || page.Intents[0].Result != rewarder.IntentAccepted ||
		page.Intents[1].Result != rewarder.IntentPending {
		r.t.Errorf("%+v, %v", page, err)
	}
	if first, second := r.balance("acct_0000511"), r.balance("acct_0000512"); first == "0" || second != "0" {
		r.t.Errorf("the last actor of the first chunk has %s, the first of the second %s", first, second)
	}
}

// If the pool shrinks between two chunks, the run is paused: the paid chunks are recorded, and
// after Emit no actor was paid twice.
func TestPoolShrinksBetweenChunks(t *testing.T) {
	t.Parallel()
	b := &between{}
	r := newRig(t, func(r *rig) { b.Client, r.ledger = r.model, b })
	b.f = func() { r.drain(funded - 60_000) } // leaves 60,000 after the first chunk was paid
	r.start()
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 110_000), many(1100))
	r.mustCompute("e", in, p)
	r.stopsAfterOne("e", "ledger: insufficient_funds")
	r.fund(funded)
	r.emitPaysOnce("e", funded+60_000-110_000)
}

// If the account of the payer or of an actor is frozen between two chunks, the run is paused, and
// paused again by an Emit while the account is frozen. After it is unfrozen, no actor was paid
// twice.
func TestFrozenBetweenChunks(t *testing.T) {
	for who, account := range map[string]string{"pool": pool, "actor": "acct_0000600"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			b := &between{}
			r := newRig(t, func(r *rig) { b.Client, r.ledger = r.model, b })
			b.f = func() {
				r.operate("freeze", ledger.Op{Code: ledgerrecord.OpFlags, From: account, Set: ledgerrecord.Frozen})
			}
			r.start()
			p := policy()
			r.put(p)
			in := r.seal(inputOf("e", 110_000), many(1100))
			r.mustCompute("e", in, p)
			r.stopsAfterOne("e", "ledger: account_locked")
			if _, err := r.e.Emit(r.ctx(), alice, "e", false); err != nil {
				t.Fatal(err)
			}
			r.stopsAfterOne("e", "ledger: account_locked")
			r.operate("thaw", ledger.Op{Code: ledgerrecord.OpFlags, From: account, Clear: ledgerrecord.Frozen})
			r.emitPaysOnce("e", funded-110_000)
		})
	}
}
