package rewarder_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	ledgerrecord "ronbox/engines/ledger/record"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// flag sets and clears flags of an account.
func (r *rig) flag(account string, set, clear ledgerrecord.Flags) {
	r.t.Helper()
	word := fmt.Sprint("flag", funding.Add(1))
	out, err := r.model.Commit(r.ctx(), []ledger.Op{
		{
			Code:        ledgerrecord.OpFlags,
			From:        account,
			Set:         set,
			Clear:       clear,
			Idem:        word,
			Dedupe:      ledger.DedupeKey{Scope: "test", Key: word},
			Fingerprint: b3.Sum([]byte(word)),
			TTL:         time.Hour,
			Principal:   "test",
		},
	})
	if err != nil || out[0].Reject != nil {
		r.t.Fatalf("flag %s: %v %v", account, err, out)
	}
}

func (r *rig) freeze(accounts ...string) {
	for _, a := range accounts {
		r.flag(a, ledgerrecord.Frozen, 0)
	}
}

func (r *rig) unfreeze(accounts ...string) {
	for _, a := range accounts {
		r.flag(a, 0, ledgerrecord.Frozen)
	}
}

func (r *rig) emit(epoch string, skip bool) {
	r.t.Helper()
	if _, err := r.e.Emit(r.ctx(), alice, epoch, skip); err != nil {
		r.t.Fatalf("emit %s: %v", epoch, err)
	}
}

// mustSkip computes and pays an epoch, and parks refused payees.
func (r *rig) mustSkip(epoch string, in rewarder.Input, p record.Policy) {
	r.t.Helper()
	want := rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash(), SkipRefused: true}
	if _, err := r.e.Compute(r.ctx(), alice, epoch, want); err != nil {
		r.t.Fatalf("compute %s: %v", epoch, err)
	}
}

// parkedOf returns the payees of a run that were parked.
func (r *rig) parkedOf(epoch string) (all []rewarder.Parked) {
	r.t.Helper()
	for from := uint64(0); ; {
		page, err := r.e.Parked(r.ctx(), rewarder.DefaultTenant, epoch, from, 2)
		if err != nil {
			r.t.Fatal(err)
		}
		all = append(all, page.Parked...)
		if from = page.Next; from == 0 {
			return all
		}
	}
}

// conserved checks that each actor of an epoch has its allocation, that the payees in held have
// nothing, and that the checks of the file pass.
func (r *rig) conserved(epoch string, paid uint64, held ...string) {
	r.t.Helper()
	want := map[string]engines.Amount{}
	r.allocated(epoch, want)
	left := n64(funded - paid)
	for _, a := range held {
		left, _ = left.Add(want[a])
		want[a] = engines.Amount{}
	}
	for actor, amount := range want {
		if got := r.balance(actor); got != amount.String() {
			r.t.Fatalf("%s has %s, want %s", actor, got, amount)
		}
	}
	if got := r.balance(pool); got != left.String() {
		r.t.Errorf("%s has %s, want %s", pool, got, left)
	}
	if err := r.store.View(r.ctx(), rewarder.Check); err != nil {
		r.t.Error(err)
	}
}

// auditTrail keeps audit rows.
type auditTrail struct {
	mu   sync.Mutex
	rows []store.AuditRow // guarded by mu
}

func (a *auditTrail) add(rows []store.AuditRow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows = append(a.rows, rows...)
}

// find returns the last row of an event.
func (a *auditTrail) find(event string) (row store.AuditRow) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.rows {
		if one.Event.Event == rewarder.Service+"."+event {
			row = one
		}
	}
	return row
}

// A frozen payee pauses a run without SkipRefused; the run, the log, the audit and readiness name
// the account and the reason. A run with SkipRefused pays all others and parks the payee. Each
// retry pays the payees that can be paid, once.
func TestRefusedPayeesAreParked(t *testing.T) {
	var trail auditTrail
	var log bytes.Buffer
	var mu sync.Mutex
	r := newRig(t, func(r *rig) {
		r.audited = trail.add
		r.log = hclog.New(&hclog.LoggerOptions{Output: &log, Mutex: &mu, JSONFormat: true})
	})
	r.e.Look().Set(10 * time.Millisecond)
	r.e.Tick().Set(10 * time.Millisecond)
	r.start()
	p := policy()
	r.put(p)
	// payees of the first, the second and the last transaction
	frozen := []string{"acct_0000100", "acct_0000600", "acct_0001999"}
	r.freeze(frozen...)
	r.mustCompute("e", r.seal(inputOf("e", 1_000_000), many(2000)), p)

	run := r.await("e", rewarder.Quarantined)
	if q := run.Quarantine; q.Kind != rewarder.KindEgress || q.Account != frozen[0] ||
		q.Reason != "ledger: account_locked" ||
		run.PaidMinor != "0" {
		t.Errorf("%+v of %+v", q, run)
	}
	var row store.AuditRow // it is told after the rows are visible, and the line is written then
	r.eventually("the pause is audited", func() bool {
		row = trail.find("run.quarantined")
		return row.Event.Event != ""
	})
	if row.Event.Reason != "ledger: account_locked" || row.Event.Detail["account"] != frozen[0] ||
		row.Event.Detail["epoch_id"] != "e" {
		t.Errorf("audit: %+v", row)
	}
	r.eventually("readiness and the gauge say so", func() bool {
		return r.count("readyz_degraded{cause=payment}") == 1 && r.count("reward_paused_runs") == 1
	})
	r.eventually("the log names the payee", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(log.String(), "run_paused") && strings.Contains(log.String(), frozen[0])
	})

	r.emit("e", true)
	run = r.await("e", rewarder.Settled)
	if run.Parked != 3 || run.PaidActors != 1997 || run.Acked != run.Transactions {
		t.Fatalf("%+v", run)
	}
	for i, one := range r.parkedOf("e") {
		if one.Actor != frozen[i] || one.Result != rewarder.IntentParked || one.Reason != "ledger: account_locked" ||
			one.Amount == "0" {
			t.Errorf("parked %d: %+v", i, one)
		}
	}
	r.eventually("the parked payees are audited", func() bool {
		row = trail.find("run.parked")
		return row.Event.Detail["parked"] == "3"
	})
	if !strings.Contains(row.Event.Detail["accounts"], frozen[1]) {
		t.Errorf("audit: %+v", row)
	}
	r.eventually("it is ready again", func() bool {
		return r.count("readyz_degraded{cause=payment}") == 0 && r.count("reward_paused_runs") == 0
	})
	r.conserved("e", 1_000_000, frozen...)

	r.unfreeze(frozen[1])
	r.retried("e", 2)
	r.conserved("e", 1_000_000, frozen[0], frozen[2])
	r.reboot()
	r.unfreeze(frozen...)
	r.retried("e", 0)
	for _, one := range r.parkedOf("e") {
		if one.Result != rewarder.IntentAccepted || one.TxID == "" || one.Reason != "" {
			t.Errorf("%+v", one)
		}
	}
	r.conserved("e", 1_000_000)
	if again, err := r.e.Emit(r.ctx(), alice, "e", false); err != nil || again.State != rewarder.Settled ||
		again.PaidMinor != again.PayoutMinor {
		t.Errorf("a retry of a run without parked payees: %+v, %v", again, err)
	}
	r.conserved("e", 1_000_000)
}

// retried emits a settled run again and waits until it is settled with left parked payees.
func (r *rig) retried(epoch string, left uint64) {
	r.t.Helper()
	r.emit(epoch, false)
	if run := r.await(epoch, rewarder.Settled); run.Parked != left || run.SkipRefused != true {
		r.t.Fatalf("after a retry: %+v", run)
	}
}

// If no payee of a transaction can be paid, its key stays unused, and a retry pays under it.
func TestWholeTransactionIsParked(t *testing.T) {
	r := newRig(t, inMemory).start()
	p := policy()
	r.put(p)
	var all []string
	for i := range 20 {
		all = append(all, fmt.Sprintf("acct_%07d", record.ChunkRows+i))
	}
	r.freeze(all...)
	in := r.seal(inputOf("e", 1_000_000), many(record.ChunkRows+len(all)))
	r.mustSkip("e", in, p)
	if run := r.await("e", rewarder.Settled); run.Parked != 20 || run.PaidActors != record.ChunkRows {
		t.Fatalf("%+v", run)
	}
	page, err := r.e.Settlement(r.ctx(), rewarder.DefaultTenant, "e", 1, 1)
	if err != nil || page.Intents[0].Result != rewarder.IntentParked || page.Intents[0].TxID != "" {
		t.Errorf("%+v, %v", page, err)
	}
	r.conserved("e", 1_000_000, all...)
	r.retried("e", 20)
	r.unfreeze(all[3:]...)
	r.retried("e", 3)
	r.conserved("e", 1_000_000, all[:3]...)
	r.unfreeze(all[:3]...)
	r.retried("e", 0)
	r.conserved("e", 1_000_000)
}

// The executed payment decides which payees are parked, even if its answer was lost and a later
// call would pay others.
func TestLostAnswerParksTheSamePayees(t *testing.T) {
	r := newRig(t).only(rewarder.TaskScheduler, rewarder.TaskWorker)
	p := policy()
	r.put(p)
	r.freeze("acct_0000003")
	in := r.seal(inputOf("e", 1_000_000), many(10))
	r.mustSkip("e", in, p)
	r.await("e", rewarder.Sealed)
	j := rewarder.JobOf(rewarder.Scoped(rewarder.DefaultTenant, "e"), record.RunKey("e", p.Hash(), in.InputsCID))
	m, run, err := rewarder.Load(r.e, r.ctx(), j)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rewarder.PayChunk(r.e, r.ctx(), j, &m, &run, 0); err != nil { // and the node dies
		t.Fatal(err)
	}
	r.unfreeze("acct_0000003")
	r.reboot()
	run = r.await("e", rewarder.Settled)
	if all := r.parkedOf("e"); run.Parked != 1 || len(all) != 1 || all[0].Actor != "acct_0000003" ||
		all[0].Reason == "" {
		t.Fatalf("%+v, %+v", run, all)
	}
	r.conserved("e", 1_000_000, "acct_0000003")

	// An unrecorded payment of a parked payee is found again too.
	m, run, err = rewarder.Load(r.e, r.ctx(), j)
	if err != nil {
		t.Fatal(err)
	}
	if done, _, err := rewarder.PayEach(r.e, r.ctx(), j, &m, &run, r.parkedOf("e"), 0); err != nil ||
		done[0].Row(0).Result != rewarder.IntentAccepted {
		t.Fatalf("%+v, %v", done, err)
	}
	r.reboot()
	r.retried("e", 0)
	if all := r.parkedOf("e"); all[0].Result != rewarder.IntentDup {
		t.Errorf("%+v", all)
	}
	r.conserved("e", 1_000_000)
}

// closing is a ledger that has closed the periods of all settlements, once it is told to.
type closing struct {
	ledger.Client
	closed atomic.Bool
}

func (c *closing) Settle(ctx context.Context, once ledger.Once, ops []ledger.Op) (ledger.Outcome, error) {
	out, err := c.Client.Settle(ctx, once, ops)
	if err == nil && out.Replayed && c.closed.Load() {
		out = ledger.Outcome{Replayed: true, Batch: true, Atomic: true, Period: 1}
	}
	return out, err
}

// What the ledger has paid in a period that is closed since counts as paid, without a transaction
// that it could show. Nothing is paid twice.
func TestPaidInAClosedPeriod(t *testing.T) {
	var l *closing
	r := newRig(t, func(r *rig) {
		l = &closing{Client: r.ledger}
		r.ledger = l
	}).only(rewarder.TaskScheduler, rewarder.TaskWorker)
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 1_000_000), many(10))
	r.mustCompute("e", in, p)
	r.await("e", rewarder.Sealed)
	j := rewarder.JobOf(rewarder.Scoped(rewarder.DefaultTenant, "e"), record.RunKey("e", p.Hash(), in.InputsCID))
	m, run, err := rewarder.Load(r.e, r.ctx(), j)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rewarder.PayChunk(r.e, r.ctx(), j, &m, &run, 0); err != nil { // and the node dies
		t.Fatal(err)
	}
	l.closed.Store(true)
	r.reboot()
	if run = r.await("e", rewarder.Settled); run.Parked != 0 || run.PaidActors != 10 {
		t.Errorf("%+v", run)
	}
	page, err := r.e.Settlement(r.ctx(), rewarder.DefaultTenant, "e", 0, 1)
	if err != nil || page.Intents[0].Result != rewarder.IntentDup || page.Intents[0].TxID != "" {
		t.Errorf("%+v, %v", page, err)
	}
	r.conserved("e", 1_000_000)
}

// Emit is not lost if it comes while the last payment of a run is acknowledged, or while parked
// payees are paid: the parked payees are retried once more.
func TestEmitDuringTheLastAcknowledgment(t *testing.T) {
	for _, step := range []string{"settled_chunk", "settled_payee"} {
		t.Run(step, func(t *testing.T) {
			r := newRig(t).start()
			p := policy()
			r.put(p)
			r.freeze("acct_0000003")
			emit := func(s string) {
				if s != step {
					return
				}
				r.onStep(nil)
				r.unfreeze("acct_0000003")
				r.emit("e", false)
			}
			in := r.seal(inputOf("e", 1000), many(10))
			if step == "settled_chunk" {
				r.onStep(emit)
			}
			r.mustSkip("e", in, p)
			if step == "settled_payee" {
				r.await("e", rewarder.Settled)
				r.onStep(emit)
				r.emit("e", false)
			}
			run := r.await("e", rewarder.Settled)
			if all := r.parkedOf("e"); run.Parked != 0 || len(all) != 1 || all[0].Result != rewarder.IntentAccepted {
				t.Errorf("%+v, %+v", run, all)
			}
			r.conserved("e", 1000)
		})
	}
}

// A refused payer pauses a run even with SkipRefused, and is named.
func TestRefusedPayerIsNamed(t *testing.T) {
	r := newRig(t).start()
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 1000), many(10))
	r.freeze(pool)
	r.mustSkip("e", in, p)
	if q := r.await("e", rewarder.Quarantined).Quarantine; q.Account != pool || q.Reason != "ledger: account_locked" {
		t.Errorf("%+v", q)
	}
	var q *rewarder.QuarantineError
	if _, err := r.compute("e", in, p); !errors.As(err, &q) || q.Run.Quarantine.Account != pool {
		t.Errorf("compute: %v", err)
	}
	r.unfreeze(pool)
	r.emit("e", false)
	r.await("e", rewarder.Settled)
	r.conserved("e", 1000)
}
