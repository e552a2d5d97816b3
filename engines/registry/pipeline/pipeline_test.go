package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/pipeline"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/store"
)

func TestStackCommitsInOrder(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	stack := r.Stack(8)
	for _, p := range stack {
		r.Approve(p, s.Keys[0])
	}
	if _, err := r.Engine.Commit(r.Ctx(), alice, stack[1].ID, ""); !errors.Is(err, record.ErrVersionSkew) {
		t.Errorf("commit above an uncommitted one: %v", err)
	}
	if _, err := r.Engine.Propose(r.Ctx(), alice, deltaOn(10, "x", stack[7].PayloadB3), "", ""); !errors.Is(err,
		record.ErrVersionSkew) {
		t.Errorf("a ninth: %v", err)
	}
	for i, p := range stack {
		if c := r.Commit(p); c.Version != uint64(i+2) {
			t.Errorf("commit %d: %+v", i, c)
		}
	}
	if r.Engine.Head().Items.Len() != 8 {
		t.Errorf("items = %d", r.Engine.Head().Items.Len())
	}
}

func TestLosersGoStaleWithTheirStack(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	loser := r.Propose(2, "loser")
	onLoser, err := r.Engine.Propose(r.Ctx(), alice, deltaOn(3, "child", loser.PayloadB3), "", "")
	if err != nil {
		t.Fatal(err)
	}
	winner := r.Propose(2, "winner")
	onWinner, err := r.Engine.Propose(r.Ctx(), alice, deltaOn(3, "heir", winner.PayloadB3), "", "")
	if err != nil {
		t.Fatal(err)
	}
	r.Approve(winner, s.Keys[0])
	r.Commit(winner)
	for p, want := range map[string]string{
		loser.ID: document.StateStale, onLoser.ID: document.StateStale, winner.ID: document.StateCommitted,
		onWinner.ID: document.StatePending,
	} {
		if got := r.StateOf(document.Proposed{ID: p}); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	var state *document.StateError
	if _, err := r.Engine.Commit(r.Ctx(), alice, loser.ID, ""); !errors.As(err, &state) ||
		state.State != document.StateStale {
		t.Errorf("commit of a stale one: %v", err)
	}
}

func TestWithdraw(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	stack := r.Stack(2)
	if err := r.Engine.Withdraw(r.Ctx(), engines.Actor{CapID: "bob"}, stack[0].ID, ""); !errors.Is(err, document.ErrForbidden) {
		t.Errorf("by another: %v", err)
	}
	if err := r.Engine.Withdraw(r.Ctx(), engines.Actor{}, stack[0].ID, ""); !errors.Is(err, document.ErrForbidden) {
		t.Errorf("by nobody: %v", err)
	}
	if err := r.Engine.Withdraw(r.Ctx(), alice, stack[0].ID, ""); err != nil {
		t.Fatal(err)
	}
	if got := r.StateOf(stack[0]); got != document.StateWithdrawn {
		t.Errorf("state = %s", got)
	}
	if got := r.StateOf(stack[1]); got != document.StateStale {
		t.Errorf("what stood on it is %s", got)
	}
	if err := r.Engine.Withdraw(r.Ctx(), alice, stack[0].ID, ""); !errors.Is(err, document.ErrConflict) {
		t.Errorf("again: %v", err)
	}
	mine := r.Propose(2, "of-alice")
	if err := r.Engine.Withdraw(r.Ctx(), engines.Actor{CapID: "root", Admin: true}, mine.ID, ""); err != nil {
		t.Errorf("by an admin: %v", err)
	}
	uid := uint32(7)
	peer := engines.Actor{Principal: "uid:7", UID: &uid}
	p, err := r.Engine.Propose(r.Ctx(), peer, delta(2, "x"), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Engine.Withdraw(r.Ctx(), peer, p.ID, ""); err != nil {
		t.Errorf("a socket peer's own: %v", err)
	}
}

func TestExpiryIsExactAndSwept(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t, func(c *registry.Config) { c.Proposals.TTL = 60e9 }).Start(), newSigners(1, 1)
	r.Genesis(s)
	r.Freeze()
	stack := r.Stack(2)
	r.Approve(stack[0], s.Keys[0])
	r.Advance(time.Minute - time.Millisecond)
	if got := r.StateOf(stack[0]); got != document.StatePending {
		t.Fatalf("before its time: %s", got)
	}
	r.Advance(time.Millisecond)
	if _, err := r.Engine.Commit(r.Ctx(), alice, stack[0].ID, ""); !errors.Is(err, document.ErrExpired) {
		t.Errorf("commit at the last instant: %v", err)
	}
	if _, err := r.Engine.Approve(r.Ctx(), alice, stack[0].ID, s.Keys[0].Sign(stack[0].PayloadB3, r.Now()), ""); !errors.Is(
		err,
		document.ErrExpired,
	) {
		t.Errorf("approve after expiry: %v", err)
	}
	r.WaitFor("both to be swept", func() bool { return len(r.Engine.Pub().State.Load().Live) == 0 })
	if got := r.StateOf(stack[0]); got != document.StateExpired {
		t.Errorf("state = %s", got)
	}
	if again := r.Propose(2, "s2"); again.ID == stack[0].ID {
		t.Error("an expired proposal came back to life")
	}
}

func TestIdleSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := registrytest.New(t, func(c *registry.Config) { c.Proposals.TTL = 60e9 }).Start()
		r.Genesis(newSigners(1, 1))
		p := r.Propose(2, "b")
		r.Advance(time.Hour)
		r.WaitFor("the tick to sweep", func() bool { return len(r.Engine.Pub().State.Load().Live) == 0 })
		if got := r.StateOf(p); got != document.StateExpired {
			t.Errorf("state = %s", got)
		}
	})
}

func TestPendingLimits(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t, func(c *registry.Config) { c.Proposals.MaxPending, c.Proposals.MaxPerCap = 3, 2 }).Start()
	r.Genesis(newSigners(1, 1))
	var limit *document.PendingLimitError
	propose := func(who, id string) error {
		_, err := r.Engine.Propose(r.Ctx(), engines.Actor{CapID: who}, delta(2, id), "", "")
		return err
	}
	for _, tt := range []struct{ who, id, limit string }{
		{"a", "1", ""}, {"a", "2", ""}, {"a", "3", "proposals.max_per_cap"}, {"b", "4", ""},
		{"c", "5", "proposals.max_pending"},
	} {
		err := propose(tt.who, tt.id)
		if (err == nil) != (tt.limit == "") || err != nil && (!errors.As(err, &limit) || limit.Limit != tt.limit) {
			t.Errorf("%s proposes %s: %v, want %q", tt.who, tt.id, err, tt.limit)
		}
	}
}

// A draft that is sent again after a lost answer returns its first proposal, unless it names
// another time.
func TestSameDraftTwice(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	first := r.Propose(2, "a")
	r.Advance(time.Minute)
	if again := r.Propose(2, "a"); again.ID != first.ID || !again.Replayed || again.PayloadB3 != first.PayloadB3 {
		t.Errorf("again: %+v, first %+v", again, first)
	}
	if other := r.Propose(2, "b"); other.ID == first.ID {
		t.Error("another draft is the same proposal")
	}
	timed := fmt.Appendf(nil, `{"schema_version":"1.0.0","version":2,"created_at":%q,"mode":"delta","put":[%s]}`,
		record.FormatTime(r.Now()), registrytest.Item("a"))
	if p, err := r.Engine.Propose(r.Ctx(), alice, timed, "", ""); err != nil || p.ID == first.ID {
		t.Errorf("a draft with a time of its own: %+v, %v", p, err)
	}
}

// A commit of a child before its parent names the parent.
func TestCommitChildFirst(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	s := newSigners(1, 1)
	r.Genesis(s)
	stack := r.Stack(2)
	r.Approve(stack[1], s.Keys...)
	_, err := r.Engine.Commit(r.Ctx(), alice, stack[1].ID, "")
	var parent *document.ParentPendingError
	if !errors.As(err, &parent) || parent.Parent != stack[0].ID || !errors.Is(err, record.ErrVersionSkew) {
		t.Errorf("err = %v, want one that names %s", err, stack[0].ID)
	}
}

// A full queue refuses at once and counts each refusal. A refused call writes nothing.
func TestFullQueueIsBusy(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t, func(c *registry.Config) { c.Queues.Proposals = 4 }).Start()
	r.Genesis(newSigners(1, 1))
	r.Stop()
	r.Open() // and no pipeline: nothing leaves the queue
	ctx, cancel := context.WithCancel(r.Ctx())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			_, _ = r.Engine.Propose(ctx, alice, delta(2, fmt.Sprintf("queued%d", i)), "", "")
		})
	}
	r.WaitFor("the queue to fill", func() bool { return r.Engine.Proposing().Len() == 4 })
	for i := range 10 {
		if _, err := r.Engine.Propose(r.Ctx(), alice, delta(2, fmt.Sprintf("over%d", i)), "", ""); !errors.Is(err,
			flow.ErrBusy) {
			t.Errorf("refusal %d: %v", i, err)
		}
	}
	if n := r.Metric("queue_dropped_total", "queue", "proposals"); n != 10 {
		t.Errorf("queue_dropped_total = %v, want 10", n)
	}
	if n := r.Metric("queue_depth", "queue", "proposals"); n != 4 {
		t.Errorf("queue_depth = %v, want 4", n)
	}
	cancel() // the callers leave while queued
	wg.Wait()
	r.Start()
	r.WaitFor("the queue to drain", func() bool { return r.Engine.Proposing().Len() == 0 })
	p := r.Propose(2, "after")
	if live := r.Engine.Pub().State.Load().Live; len(live) != 1 || live[mustID(p.ID)] == nil {
		t.Errorf("%d proposals, want the last alone", len(live))
	}
	if rec := r.LastAudit(); rec.Event != "proposal.created" || rec.Seq != 2 {
		t.Errorf("last audit record = %+v: something else was written", rec)
	}
}

func TestExpiredDeadlineWritesNothing(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	r.Stop()
	r.Open()
	ctx, cancel := context.WithTimeout(r.Ctx(), 20*time.Millisecond)
	defer cancel()
	var late *document.TimeoutError
	if _, err := r.Engine.Propose(ctx, alice, delta(2, "late"), "", ""); !errors.As(err, &late) {
		t.Errorf("err = %v, want a TimeoutError", err)
	}
	r.Start()
	r.Propose(2, "b")
	if n := len(r.Engine.Pub().State.Load().Live); n != 1 {
		t.Errorf("%d proposals, want 1", n)
	}
	if n := r.Metric("io_timeouts_total", "op", "commit"); n != 1 {
		t.Errorf("io_timeouts_total = %v", n)
	}
}

// Refusals that reach the pipeline are in the audit chain with their reason. Repeated calls are
// not.
func TestRefusalsAreChained(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(2, 2)
	r.Genesis(s)
	p := r.Propose(2, "b")
	r.Approve(p, s.Keys[0])
	if _, err := r.Engine.Commit(r.Ctx(), alice, p.ID, "corr-q"); !errors.Is(err, record.ErrQuorum) {
		t.Fatal(err)
	}
	rec := r.LastAudit()
	if rec.Event != "commit.rejected" || rec.Reason != "quorum" || rec.Decision != record.DecisionReject ||
		rec.CorrID != "corr-q" ||
		rec.Actor.CapID != alice.CapID ||
		rec.ProposalID != p.ID {
		t.Errorf("record = %+v", rec)
	}
	r.Approve(p, s.Keys[1])
	r.Commit(p)
	before := r.LastAudit().Seq
	r.Commit(p)
	if after := r.LastAudit().Seq; after != before {
		t.Errorf("a repeat was chained: %d, %d", before, after)
	}
	if r.Metric("registry_updates_total", "result", "rejected") != 1 || r.Metric("governance_commits_total") != 2 {
		t.Error("counters do not agree")
	}
}

func TestRestartReadsEverythingAgain(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(2, 2)
	r.Genesis(s, "a")
	done := r.Propose(2, "b")
	r.Approve(done, s.Keys...)
	c := r.Commit(done)
	waiting := r.Propose(3, "c")
	r.Approve(waiting, s.Keys[0])
	before := r.Engine.Head()
	r.Stop()

	r.Open()
	r.Start()
	head := r.Engine.Head()
	if string(head.JSON) != string(before.JSON) || head.ETag != before.ETag ||
		head.Items.Root() != before.Items.Root() ||
		head.GenesisB3 != before.GenesisB3 {
		t.Errorf("head = %s, was %s", head.JSON, before.JSON)
	}
	if again := r.Commit(done); !again.Replayed || again.Hash != c.Hash {
		t.Errorf("commit again = %+v", again)
	}
	r.Approve(waiting, s.Keys[1])
	if c := r.Commit(waiting); c.Version != 3 {
		t.Errorf("commit of the one that waited = %+v", c)
	}
	if r.Metric("registry_recoveries_total", "kind", "startup") != 1 {
		t.Error("the recovery was not counted")
	}
}

// Every queued job is answered when the intake closes.
func TestDrainAnswersAll(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	var wg sync.WaitGroup
	answers := make([]error, 64)
	for i := range answers {
		wg.Go(func() {
			_, answers[i] = r.Engine.Propose(r.Ctx(), engines.Actor{CapID: fmt.Sprint(i)}, delta(2, fmt.Sprint("d", i)), "",
				"")
		})
	}
	r.Stop()
	wg.Wait()
	for i, err := range answers {
		if err != nil && !errors.Is(err, flow.ErrClosed) && !errors.Is(err, flow.ErrCanceled) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// poison makes the pipeline panic in the middle of a batch.
func poison(*pipeline.Plan, *pipeline.Job) error { panic("poisoned job") }

func TestPanicAnswersAndRestarts(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	if _, err := submit(r.Ctx(), r, pipeline.Call(poison)); !errors.Is(err, flow.ErrCanceled) {
		t.Errorf("the job that panicked: %v", err)
	}
	r.Propose(2, "b")
	if r.Metric("service_restarts_total", "task", pipeline.TaskName) != 1 {
		t.Error("the pipeline was not restarted once")
	}
}

// Another writer moves HEAD under the pipeline: it notices, reads the file again and goes on.
func TestForeignWriteIsNoticed(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	p := r.Propose(2, "b")
	r.Approve(p, s.Keys[0])
	st := r.Engine.Pub().State.Load()
	foreign := pipeline.NewPlan(r.Engine.Pipeline(), r.Ctx(), st, r.Now().UTC().Truncate(time.Millisecond))
	commit := pipeline.CommitOf(mustID(p.ID))
	pipeline.Reject(foreign, pipeline.NewJob(r.Ctx(), commit, r.Now()), "foreign")
	if _, err := store.Commit(r.Ctx(), r.Store, store.Work, pipeline.Batch(foreign)); err != nil {
		t.Fatal(err)
	}
	if c := r.Commit(p); c.Version != 2 {
		t.Errorf("commit = %+v", c)
	}
	if n := r.Metric("commit_cas_fail_total"); n != 1 {
		t.Errorf("commit_cas_fail_total = %v, want 1", n)
	}
	for _, name := range []string{"backoff_retries_total", "storage_backoff_total"} {
		if n := r.Metric(name, "op", "commit"); n != 1 {
			t.Errorf("%s = %v, want 1", name, n)
		}
	}
}
