package rewarder_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/rewarder"
)

// A refusal of the ledger pauses the run in the file. Emit resumes it with the same keys.
func TestRefusedRunIsPausedUntilEmit(t *testing.T) {
	r := newRig(t).start()
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", funded), many(1200)) // all that there is
	second := r.seal(inputOf("f", funded), many(1200))
	r.mustCompute("e", in, p)
	run := r.await("e", rewarder.Settled)
	if run.Transactions != 3 || run.Actors != 1200 || run.ResidualMinor != "0" || r.balance(pool) != "0" {
		t.Errorf("%+v", run)
	}
	one, err := engines.ParseAmount(r.balance("acct_0000007"))
	if err != nil || one.IsZero() {
		t.Fatal(one, err)
	}
	r.mustCompute("f", second, p)
	run = r.await("f", rewarder.Quarantined)
	if q := run.Quarantine; q.Kind != rewarder.KindEgress || q.Reason != "ledger: insufficient_funds" || run.Acked != 0 {
		t.Errorf("%+v of %+v", q, run)
	}
	var q *rewarder.QuarantineError
	if _, err := r.compute("f", second, p); !errors.As(err, &q) || q.Run.Quarantine.Kind != rewarder.KindEgress {
		t.Errorf("compute: %v", err)
	}
	r.reboot()
	if run := r.await("f", rewarder.Quarantined); run.Quarantine == nil {
		t.Errorf("after a restart: %+v", run)
	}
	r.fund(funded)
	if _, err := r.e.Emit(r.ctx(), alice, "f", false); err != nil {
		t.Fatal(err)
	}
	r.await("f", rewarder.Settled)
	if two, _ := one.Add(one); r.balance("acct_0000007") != two.String() {
		t.Errorf("an actor of both has %s, not %s", r.balance("acct_0000007"), two)
	}
	if again, err := r.e.Emit(r.ctx(), alice, "f", false); err != nil || again.State != rewarder.Settled {
		t.Errorf("emit of a settled run: %+v, %v", again, err)
	}
	page, err := r.e.Settlement(r.ctx(), rewarder.DefaultTenant, "f", 1, 1)
	if err != nil || len(page.Intents) != 1 || page.Next != 2 || page.Intents[0].Index != 1 ||
		page.Intents[0].Result != rewarder.IntentAccepted ||
		page.Intents[0].TxID == "" {
		t.Errorf("settlement %+v, %v", page.Intents, err)
	}
}

// Three calls without an answer pause the run and are counted.
func TestSilentLedger(t *testing.T) {
	t.Parallel()
	var faulty *ledgertest.Faulty
	r := newRig(t, func(r *rig) {
		faulty = ledgertest.NewFaulty(r.model, ledgertest.Faults{})
		r.ledger = faulty
	}).start()
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 1000), usage("a requests 1"))
	faulty.Pause()
	r.hearLedger(30 * time.Millisecond)
	r.mustCompute("e", in, p)
	if run := r.await("e", rewarder.Quarantined); run.Quarantine.Kind != rewarder.KindEgress ||
		run.Quarantine.Reason != "ledger: no answer" {
		t.Errorf("%+v", run.Quarantine)
	}
	if timeouts, retries := r.count("io_timeouts_total{op=settle,peer=ledger}"), r.count(
		"backoff_retries_total{op=settle}",
	); timeouts != 3 ||
		retries != 2 {
		t.Errorf("%v timeouts, %v retries", timeouts, retries)
	}
	faulty.Resume()
	r.hearLedger(time.Minute)
	if _, err := r.e.Emit(r.ctx(), alice, "e", false); err != nil {
		t.Fatal(err)
	}
	r.await("e", rewarder.Settled)
	if got := r.balance("a"); got != "1000" {
		t.Errorf("a has %s", got)
	}
}

// deaf is a ledger that fails while told to.
type deaf struct {
	ledger.Client
	ill func() bool
}

func (d deaf) Settle(ctx context.Context, once ledger.Once, ops []ledger.Op) (ledger.Outcome, error) {
	if d.ill() {
		return ledger.Outcome{}, &ledger.UnavailableError{Cause: errors.New("down")}
	}
	return d.Client.Settle(ctx, once, ops)
}

func (d deaf) Balance(ctx context.Context, account, asset string, seq uint64) (ledger.BalanceView, error) {
	if d.ill() {
		return ledger.BalanceView{}, &ledger.UnavailableError{Cause: errors.New("down")}
	}
	return d.Client.Balance(ctx, account, asset, seq)
}

// While the breaker is open, runs are accepted and sealed, but neither sent nor paused. When the
// ledger is back, all are paid.
func TestOpenBreakerKeepsRunsPending(t *testing.T) {
	t.Parallel()
	var ill syncBool
	r := newRig(t, func(r *rig) { r.ledger = deaf{r.model, ill.Load} })
	r.e.Look().Set(50 * time.Millisecond)
	r.start()
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 1000), usage("a requests 1"))
	later := inputOf("later", 1000)
	up, err := r.e.OpenInput(r.ctx(), alice, later)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.e.PutPart(r.ctx(), alice, up.ID, 0, false, usage("a requests 1")); err != nil {
		t.Fatal(err)
	}
	ill.Store(true)
	r.eventually("the breaker opens", func() bool {
		_, err := r.e.SealInput(r.ctx(), alice, up.ID)
		if !errors.Is(err, rewarder.ErrNoLedger) {
			t.Fatalf("seal: %v", err)
		}
		return r.e.LedgerIsShut()
	})
	c := r.mustCompute("e", in, p)
	if !c.Held {
		// the breaker may be half-open by now, and then its probe opens it again
		r.eventually("an answer while it is open", func() bool { return r.mustCompute("e", in, p).Held })
	}
	run := r.await("e", rewarder.Sealed, rewarder.Quarantined)
	r.eventually("ledger_ok fails", func() bool { return r.count("readyz_degraded{cause=ledger_ok}") == 1 })
	if n := r.count("circuit_open_total{svc=ledger}"); n < 1 {
		t.Errorf("circuit_open_total = %v", n)
	}
	ill.Store(false)
	if run.State == rewarder.Sealed {
		r.eventually("it is paid, or was paused by a half-open probe", func() bool {
			run := r.await("e", rewarder.Sealed, rewarder.Settling, rewarder.Settled, rewarder.Quarantined)
			if run.State == rewarder.Quarantined {
				_, _ = r.e.Emit(r.ctx(), alice, "e", false)
			}
			return run.State == rewarder.Settled
		})
	}
	if _, err := r.e.Emit(r.ctx(), alice, "e", false); err != nil {
		t.Fatal(err)
	}
	r.await("e", rewarder.Settled)
	if got := r.balance("a"); got != "1000" {
		t.Errorf("a has %s", got)
	}
}

// A run that finds no room in intents in time is paused.
func TestFullIntentsPauseARun(t *testing.T) {
	t.Parallel()
	r := newRig(t).only(rewarder.TaskScheduler)
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 1000), usage("a requests 1"))
	for range rewarder.QueueCap {
		if err := r.e.Todo(rewarder.ToPay).TrySend(rewarder.JobOf("none", b3.Digest{})); err != nil {
			t.Fatal(err)
		}
	}
	r.hearLedger(50 * time.Millisecond)
	r.only(rewarder.TaskWorker)
	soon := rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash()}
	run := rewarder.Run{State: rewarder.Failed}
	for wait := time.Second; run.State == rewarder.Failed &&
		wait < 2*time.Minute; wait *= 2 { // a busy machine takes longer to seal a row
		soon.Deadline = r.now().Add(wait)
		if _, err := r.e.Compute(r.ctx(), alice, "e", soon); err != nil && !errors.Is(err, rewarder.ErrLate) {
			t.Fatal(err)
		} else if err == nil {
			run = r.await("e", rewarder.Quarantined, rewarder.Failed)
		}
	}
	if run.Quarantine.Kind != rewarder.KindEgress || run.Quarantine.Reason != "intents: no room" {
		t.Errorf("%+v", run.Quarantine)
	}
	r.hearLedger(time.Minute)
	r.only(rewarder.TaskEmitter)
	if _, err := r.e.Emit(r.ctx(), alice, "e", false); err != nil {
		t.Fatal(err)
	}
	r.await("e", rewarder.Settled)
}

// A ledger that is late, loses answers or repeats calls changes only the duration of payments.
func TestFaultyLedgerPaysOnce(t *testing.T) {
	seeds := 6
	if testing.Short() {
		seeds = 3
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			var faulty *ledgertest.Faulty
			r := newRig(t, inMemory, func(r *rig) {
				faulty = ledgertest.NewFaulty(r.model, ledgertest.Faults{
					Seed:     uint64(seed),
					Refuse:   .1,
					Lose:     .1,
					Forget:   .15,
					Late:     .1,
					Repeat:   .1,
					Stall:    .1,
					MaxStall: 60 * time.Millisecond,
				})
				r.ledger, r.cfg.ReadTimeout = faulty, unit.Duration(40*time.Millisecond)
			}).start()
			p := policy()
			r.put(p)
			const epochs, actors, paid = 3, 1100, 110_000
			for i := range epochs {
				var in rewarder.Input
				epoch := fmt.Sprint("e", i)
				r.eventually("sealed", func() (ok bool) {
					up, err := r.e.OpenInput(r.ctx(), alice, inputOf(epoch, paid))
					if err == nil && up.Parts == 0 {
						_, err = r.e.PutPart(r.ctx(), alice, up.ID, 0, false, many(actors))
					}
					if err == nil {
						in, err = r.e.SealInput(r.ctx(), alice, up.ID)
					}
					return err == nil
				})
				r.mustCompute(epoch, in, p)
			}
			want := map[string]engines.Amount{}
			for i := range epochs {
				epoch := fmt.Sprint("e", i)
				r.eventually(epoch+" is settled", func() bool {
					run := r.await(epoch, rewarder.Sealed, rewarder.Settling, rewarder.Settled, rewarder.Quarantined)
					if run.State == rewarder.Quarantined {
						_, _ = r.e.Emit(r.ctx(), alice, epoch, false)
					}
					return run.State == rewarder.Settled
				})
				r.allocated(epoch, want)
			}
			if err := faulty.Close(r.ctx()); err != nil { // late calls are executed now
				t.Fatal(err)
			}
			r.paidOnce(want, n64(funded-epochs*paid))
		})
	}
}
