package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// stack proposes versions 2..n+1, each on the one before.
func (r *rig) stack(n int) []document.Proposed {
	r.t.Helper()
	out := []document.Proposed{r.propose(2, "s2")}
	for v := uint64(3); len(out) < n; v++ {
		p, err := r.e.Propose(r.ctx(), alice, deltaOn(v, fmt.Sprintf("s%d", v), out[len(out)-1].PayloadB3), "", "")
		if err != nil {
			r.t.Fatalf("stack version %d: %v", v, err)
		}
		out = append(out, p)
	}
	return out
}

func (r *rig) stateOf(p document.Proposed) string {
	r.t.Helper()
	got, err := r.e.Proposal(r.ctx(), p.ID)
	if err != nil {
		r.t.Fatalf("proposal %s: %v", p.ID, err)
	}
	return got.State
}

func TestStackCommitsInOrder(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s)
	stack := r.stack(8)
	for _, p := range stack {
		r.approve(p, s.keys[0])
	}
	if _, err := r.e.Commit(r.ctx(), alice, stack[1].ID, ""); !errors.Is(err, record.ErrVersionSkew) {
		t.Errorf("commit above an uncommitted one: %v", err)
	}
	if _, err := r.e.Propose(r.ctx(), alice, deltaOn(10, "x", stack[7].PayloadB3), "", ""); !errors.Is(err,
		record.ErrVersionSkew) {
		t.Errorf("a ninth: %v", err)
	}
	for i, p := range stack {
		if c := r.commit(p); c.Version != uint64(i+2) {
			t.Errorf("commit %d: %+v", i, c)
		}
	}
	if r.e.Head().Items.Len() != 8 {
		t.Errorf("items = %d", r.e.Head().Items.Len())
	}
}

func TestLosersGoStaleWithTheirStack(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s)
	loser := r.propose(2, "loser")
	onLoser, err := r.e.Propose(r.ctx(), alice, deltaOn(3, "child", loser.PayloadB3), "", "")
	if err != nil {
		t.Fatal(err)
	}
	winner := r.propose(2, "winner")
	onWinner, err := r.e.Propose(r.ctx(), alice, deltaOn(3, "heir", winner.PayloadB3), "", "")
	if err != nil {
		t.Fatal(err)
	}
	r.approve(winner, s.keys[0])
	r.commit(winner)
	for p, want := range map[string]string{loser.ID: document.StateStale, onLoser.ID: document.StateStale, winner.ID: document.StateCommitted,
		onWinner.ID: document.StatePending} {
		if got := r.stateOf(document.Proposed{ID: p}); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	var state *document.StateError
	if _, err := r.e.Commit(r.ctx(), alice, loser.ID, ""); !errors.As(err, &state) || state.State != document.StateStale {
		t.Errorf("commit of a stale one: %v", err)
	}
}

func TestWithdraw(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	stack := r.stack(2)
	if err := r.e.Withdraw(r.ctx(), engines.Actor{CapID: "bob"}, stack[0].ID, ""); !errors.Is(err, document.ErrForbidden) {
		t.Errorf("by another: %v", err)
	}
	if err := r.e.Withdraw(r.ctx(), engines.Actor{}, stack[0].ID, ""); !errors.Is(err, document.ErrForbidden) {
		t.Errorf("by nobody: %v", err)
	}
	if err := r.e.Withdraw(r.ctx(), alice, stack[0].ID, ""); err != nil {
		t.Fatal(err)
	}
	if got := r.stateOf(stack[0]); got != document.StateWithdrawn {
		t.Errorf("state = %s", got)
	}
	if got := r.stateOf(stack[1]); got != document.StateStale {
		t.Errorf("what stood on it is %s", got)
	}
	if err := r.e.Withdraw(r.ctx(), alice, stack[0].ID, ""); !errors.Is(err, document.ErrConflict) {
		t.Errorf("again: %v", err)
	}
	mine := r.propose(2, "of-alice")
	if err := r.e.Withdraw(r.ctx(), engines.Actor{CapID: "root", Admin: true}, mine.ID, ""); err != nil {
		t.Errorf("by an admin: %v", err)
	}
	uid := uint32(7)
	peer := engines.Actor{Principal: "uid:7", UID: &uid}
	p, err := r.e.Propose(r.ctx(), peer, delta(2, "x"), "", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.e.Withdraw(r.ctx(), peer, p.ID, ""); err != nil {
		t.Errorf("a socket peer's own: %v", err)
	}
}

func TestExpiryIsExactAndSwept(t *testing.T) {
	t.Parallel()
	r, s := newRig(t, func(c *Config) { c.Proposals.TTL = 60e9 }).start(), newSigners(1, 1)
	r.genesis(s)
	r.freeze()
	stack := r.stack(2)
	r.approve(stack[0], s.keys[0])
	r.advance(time.Minute - time.Millisecond)
	if got := r.stateOf(stack[0]); got != document.StatePending {
		t.Fatalf("before its time: %s", got)
	}
	r.advance(time.Millisecond)
	if _, err := r.e.Commit(r.ctx(), alice, stack[0].ID, ""); !errors.Is(err, document.ErrExpired) {
		t.Errorf("commit at the last instant: %v", err)
	}
	if _, err := r.e.Approve(r.ctx(), alice, stack[0].ID, s.keys[0].Sign(stack[0].PayloadB3, r.now()), ""); !errors.Is(
		err,
		document.ErrExpired,
	) {
		t.Errorf("approve after expiry: %v", err)
	}
	r.waitFor("both to be swept", func() bool { return len(r.e.pub.State.Load().Live) == 0 })
	if got := r.stateOf(stack[0]); got != document.StateExpired {
		t.Errorf("state = %s", got)
	}
	if again := r.propose(2, "s2"); again.ID == stack[0].ID {
		t.Error("an expired proposal came back to life")
	}
}

func TestIdleSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Proposals.TTL = 60e9 }).start()
		r.genesis(newSigners(1, 1))
		p := r.propose(2, "b")
		r.advance(time.Hour)
		r.waitFor("the tick to sweep", func() bool { return len(r.e.pub.State.Load().Live) == 0 })
		if got := r.stateOf(p); got != document.StateExpired {
			t.Errorf("state = %s", got)
		}
	})
}

func TestPendingLimits(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Proposals.MaxPending, c.Proposals.MaxPerCap = 3, 2 }).start()
	r.genesis(newSigners(1, 1))
	var limit *document.PendingLimitError
	propose := func(who, id string) error {
		_, err := r.e.Propose(r.ctx(), engines.Actor{CapID: who}, delta(2, id), "", "")
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
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	first := r.propose(2, "a")
	r.advance(time.Minute)
	if again := r.propose(2, "a"); again.ID != first.ID || !again.Replayed || again.PayloadB3 != first.PayloadB3 {
		t.Errorf("again: %+v, first %+v", again, first)
	}
	if other := r.propose(2, "b"); other.ID == first.ID {
		t.Error("another draft is the same proposal")
	}
	timed := fmt.Appendf(nil, `{"schema_version":"1.0.0","version":2,"created_at":%q,"mode":"delta","put":[%s]}`,
		record.FormatTime(r.now()), testItem("a"))
	if p, err := r.e.Propose(r.ctx(), alice, timed, "", ""); err != nil || p.ID == first.ID {
		t.Errorf("a draft with a time of its own: %+v, %v", p, err)
	}
}

// A commit of a child before its parent names the parent.
func TestCommitChildFirst(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	s := newSigners(1, 1)
	r.genesis(s)
	stack := r.stack(2)
	r.approve(stack[1], s.keys...)
	_, err := r.e.Commit(r.ctx(), alice, stack[1].ID, "")
	var parent *document.ParentPendingError
	if !errors.As(err, &parent) || parent.Parent != stack[0].ID || !errors.Is(err, record.ErrVersionSkew) {
		t.Errorf("err = %v, want one that names %s", err, stack[0].ID)
	}
}

// A full queue refuses at once and counts each refusal. A refused call writes nothing.
func TestFullQueueIsBusy(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Queues.Proposals = 4 }).start()
	r.genesis(newSigners(1, 1))
	r.stop()
	r.open() // and no pipeline: nothing leaves the queue
	ctx, cancel := context.WithCancel(r.ctx())
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { _, _ = r.e.Propose(ctx, alice, delta(2, fmt.Sprintf("queued%d", i)), "", "") })
	}
	r.waitFor("the queue to fill", func() bool { return r.e.proposals.Len() == 4 })
	for i := range 10 {
		if _, err := r.e.Propose(r.ctx(), alice, delta(2, fmt.Sprintf("over%d", i)), "", ""); !errors.Is(err,
			flow.ErrBusy) {
			t.Errorf("refusal %d: %v", i, err)
		}
	}
	if n := r.metric("queue_dropped_total", "queue", "proposals"); n != 10 {
		t.Errorf("queue_dropped_total = %v, want 10", n)
	}
	if n := r.metric("queue_depth", "queue", "proposals"); n != 4 {
		t.Errorf("queue_depth = %v, want 4", n)
	}
	cancel() // the callers leave while queued
	wg.Wait()
	r.start()
	r.waitFor("the queue to drain", func() bool { return r.e.proposals.Len() == 0 })
	p := r.propose(2, "after")
	if live := r.e.pub.State.Load().Live; len(live) != 1 || live[mustID(p.ID)] == nil {
		t.Errorf("%d proposals, want the last alone", len(live))
	}
	if rec := r.lastAudit(); rec.Event != "proposal.created" || rec.Seq != 2 {
		t.Errorf("last audit record = %+v: something else was written", rec)
	}
}

func mustID(s string) (id ulid.ULID) {
	id, err := tables.ParseID(s)
	if err != nil {
		panic(err)
	}
	return id
}

func TestExpiredDeadlineWritesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	r.stop()
	r.open()
	ctx, cancel := context.WithTimeout(r.ctx(), 20*time.Millisecond)
	defer cancel()
	var late *document.TimeoutError
	if _, err := r.e.Propose(ctx, alice, delta(2, "late"), "", ""); !errors.As(err, &late) {
		t.Errorf("err = %v, want a TimeoutError", err)
	}
	r.start()
	r.propose(2, "b")
	if n := len(r.e.pub.State.Load().Live); n != 1 {
		t.Errorf("%d proposals, want 1", n)
	}
	if n := r.metric("io_timeouts_total", "op", "commit"); n != 1 {
		t.Errorf("io_timeouts_total = %v", n)
	}
}

// Refusals that reach the pipeline are in the audit chain with their reason. Repeated calls are
// not.
func TestRefusalsAreChained(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(2, 2)
	r.genesis(s)
	p := r.propose(2, "b")
	r.approve(p, s.keys[0])
	if _, err := r.e.Commit(r.ctx(), alice, p.ID, "corr-q"); !errors.Is(err, record.ErrQuorum) {
		t.Fatal(err)
	}
	rec := r.lastAudit()
	if rec.Event != "commit.rejected" || rec.Reason != "quorum" || rec.Decision != record.DecisionReject ||
		rec.CorrID != "corr-q" ||
		rec.Actor.CapID != alice.CapID ||
		rec.ProposalID != p.ID {
		t.Errorf("record = %+v", rec)
	}
	r.approve(p, s.keys[1])
	r.commit(p)
	before := r.lastAudit().Seq
	r.commit(p)
	if after := r.lastAudit().Seq; after != before {
		t.Errorf("a repeat was chained: %d, %d", before, after)
	}
	if r.metric("registry_updates_total", "result", "rejected") != 1 || r.metric("governance_commits_total") != 2 {
		t.Error("counters do not agree")
	}
}

func TestRestartReadsEverythingAgain(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(2, 2)
	r.genesis(s, "a")
	done := r.propose(2, "b")
	r.approve(done, s.keys...)
	c := r.commit(done)
	waiting := r.propose(3, "c")
	r.approve(waiting, s.keys[0])
	before := r.e.Head()
	r.stop()

	r.open()
	r.start()
	head := r.e.Head()
	if string(head.JSON) != string(before.JSON) || head.ETag != before.ETag ||
		head.Items.Root() != before.Items.Root() ||
		head.GenesisB3 != before.GenesisB3 {
		t.Errorf("head = %s, was %s", head.JSON, before.JSON)
	}
	if again := r.commit(done); !again.Replayed || again.Hash != c.Hash {
		t.Errorf("commit again = %+v", again)
	}
	r.approve(waiting, s.keys[1])
	if c := r.commit(waiting); c.Version != 3 {
		t.Errorf("commit of the one that waited = %+v", c)
	}
	if r.metric("registry_recoveries_total", "kind", "startup") != 1 {
		t.Error("the recovery was not counted")
	}
}

// Every queued job is answered when the intake closes.
func TestDrainAnswersAll(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	var wg sync.WaitGroup
	answers := make([]error, 64)
	for i := range answers {
		wg.Go(func() {
			_, answers[i] = r.e.Propose(r.ctx(), engines.Actor{CapID: fmt.Sprint(i)}, delta(2, fmt.Sprint("d", i)), "",
				"")
		})
	}
	r.stop()
	wg.Wait()
	for i, err := range answers {
		if err != nil && !errors.Is(err, flow.ErrClosed) && !errors.Is(err, flow.ErrCanceled) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// poison makes the pipeline panic in the middle of a batch.
type poison struct{ commitReq }

func (poison) decide(*plan, *job) (answer, error) { panic("poisoned job") }

func TestPanicAnswersAndRestarts(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	if _, err := r.e.submit(r.ctx(), r.e.approvals, poison{}, alice, ""); !errors.Is(err, flow.ErrCanceled) {
		t.Errorf("the job that panicked: %v", err)
	}
	r.propose(2, "b")
	if r.metric("service_restarts_total", "task", taskPipeline) != 1 {
		t.Error("the pipeline was not restarted once")
	}
}

// Another writer moves HEAD under the pipeline: it notices, reads the file again and goes on.
func TestForeignWriteIsNoticed(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s)
	p := r.propose(2, "b")
	r.approve(p, s.keys[0])
	st := r.e.pub.State.Load()
	foreign := r.e.newPlan(r.ctx(), st, r.now().UTC().Truncate(time.Millisecond))
	foreign.reject(&job{req: commitReq{id: mustID(p.ID)}, actor: alice, ctx: r.ctx()}, "foreign")
	if _, err := store.Commit(r.ctx(), r.store, store.Work, foreign.batch()); err != nil {
		t.Fatal(err)
	}
	if c := r.commit(p); c.Version != 2 {
		t.Errorf("commit = %+v", c)
	}
	if n := r.metric("commit_cas_fail_total"); n != 1 {
		t.Errorf("commit_cas_fail_total = %v, want 1", n)
	}
	for _, name := range []string{"backoff_retries_total", "storage_backoff_total"} {
		if n := r.metric(name, "op", "commit"); n != 1 {
			t.Errorf("%s = %v, want 1", name, n)
		}
	}
}
