package rewarder_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// only starts a subset of the engine's tasks.
func (r *rig) only(names ...string) *rig {
	for _, task := range r.e.Tasks() {
		for _, n := range names {
			if task.Name == n {
				r.sup.Start(task)
			}
		}
	}
	return r
}

// The slot table: the answer of Compute for each state of the epoch.
func TestSlotTable(t *testing.T) {
	r := newRig(t).only(rewarder.TaskScheduler)
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 1000), usage("a requests 1", "b requests 3"))
	other := r.seal(inputOf("e", 1001), usage("a requests 1", "b requests 3"))

	first := r.mustCompute("e", in, p)
	if first.State != rewarder.Accepted || first.Joined || first.Replayed ||
		first.RunKey != record.RunKey("e", p.Hash(), in.InputsCID) {
		t.Errorf("an empty slot: %+v", first)
	}
	if again := r.mustCompute("e", in, p); !again.Joined || again.Replayed || again.RunKey != first.RunKey {
		t.Errorf("the same run in flight: %+v", again)
	}
	conflict := func(when string) {
		t.Helper()
		var c *rewarder.ConflictError
		if _, err := r.compute("e", other, p); !errors.As(err, &c) || c.Has != first.RunKey.String() ||
			c.Given == c.Has {
			t.Errorf("another run %s: %v", when, err)
		}
	}
	conflict("in flight")

	r.only(rewarder.TaskWorker)
	r.await("e", rewarder.Sealed)
	if again := r.mustCompute("e", in, p); !again.Replayed || again.State != rewarder.Sealed {
		t.Errorf("the same run, sealed: %+v", again)
	}
	conflict("sealed")

	r.only(rewarder.TaskEmitter)
	run := r.await("e", rewarder.Settled)
	if again := r.mustCompute("e", in, p); !again.Replayed || again.State != rewarder.Settled ||
		again.Commitment != run.Commitment {
		t.Errorf("the same run, settled: %+v", again)
	}
	conflict("settled")

	// The balance has moved, so that the same usage is sealed with another ledger ref: it is the
	// same run.
	moved := r.seal(inputOf("e", 1000), nil)
	if moved.InputsCID == in.InputsCID || moved.AccountingCID != in.AccountingCID {
		t.Fatalf("sealed again: %+v", moved)
	}
	if again := r.mustCompute("e", moved, p); !again.Replayed || again.RunKey != first.RunKey {
		t.Errorf("the same usage and policy: %+v", again)
	}
	if got := r.balance("b"); got != "750" {
		t.Errorf("b has %s", got)
	}
}

func TestQuarantinedSlotAnswersSo(t *testing.T) {
	r := newRig(t).start()
	p := policy(func(p *record.Policy) { p.Guarantee = n64(600) })
	r.put(p)
	in := r.seal(inputOf("e", 1000), usage("a requests 1", "b requests 3"))
	r.accept("e", in, p)
	run := r.await("e", rewarder.Quarantined)
	if q := run.Quarantine; q.Kind != rewarder.KindInvariant || q.Reason != "guarantee" || q.Has != "1000" ||
		q.Need != "1200" ||
		run.Transactions != 0 ||
		run.ResidualMinor != "1000" {
		t.Errorf("%+v of %+v", q, run)
	}
	var q *rewarder.QuarantineError
	if _, err := r.compute("e", in,
		p); !errors.As(err, &q) || q.Run.Quarantine.Reason != "guarantee" || q.Run.RunKey != run.RunKey ||
		q.Run.Commitment != run.Commitment {
		t.Errorf("compute: %v", err)
	}
	if _, err := r.e.Emit(r.ctx(), alice, "e", false); !errors.As(err, &q) {
		t.Errorf("emit: %v", err)
	}
	if got := r.balance("a"); got != "0" {
		t.Errorf("a has %s", got)
	}
	// counted after the state is visible
	r.eventually("the quarantine is counted", func() bool { return r.count("quarantine_total{epoch=e}") == 1 })
}

// A run fails when its deadline passes, and its epoch is free for the next run.
func TestDeadlineFreesTheSlot(t *testing.T) {
	t.Parallel()
	r := newRig(t).only(rewarder.TaskScheduler)
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 1000), usage("a requests 1"))
	// runs that are accepted now are past their deadline by the clock of the worker
	r.clock.Store(-int64(time.Hour))
	soon := rewarder.ComputeRequest{
		InputsCID:  in.InputsCID,
		PolicyID:   p.ID,
		PolicyHash: p.Hash(),
		Deadline:   r.now().Add(time.Minute),
	}
	c, err := r.e.Compute(r.ctx(), alice, "e", soon)
	if err != nil || c.DeadlineAt != rewarder.Instant(soon.Deadline) {
		t.Fatalf("%+v, %v, want the deadline %v", c.DeadlineAt, err, soon.Deadline)
	}
	r.clock.Store(0)
	r.only(rewarder.TaskWorker)
	if run := r.await("e", rewarder.Failed); run.Reason != "timeout" || run.Attempt != 1 {
		t.Errorf("%+v", run)
	}
	r.eventually("the deadline is counted", func() bool { return r.count("io_timeouts_total{op=compute}") == 1 })
	began := r.now()
	c = r.mustCompute("e", in, p)
	end, _ := time.Parse(time.RFC3339Nano, c.DeadlineAt)
	if half := r.cfg.EpochDuration.D() / 2; end.Before(began.Add(half)) || end.After(r.now().Add(half)) {
		t.Errorf("deadline %v, begun %v", c.DeadlineAt, began)
	}
	r.only(rewarder.TaskEmitter)
	if run := r.await("e", rewarder.Settled); run.Attempt != 2 || run.RunKey != c.RunKey {
		t.Errorf("%+v", run)
	}
	soon.Deadline = r.now().Add(-time.Second)
	if _, err := r.e.Compute(r.ctx(), alice, "late", soon); !errors.Is(err, rewarder.ErrLate) {
		t.Errorf("past deadline: %v", err)
	}
	if n := r.count("io_timeouts_total{op=compute}"); n != 2 {
		t.Errorf("%v deadlines are counted", n)
	}
}

// Parts that do not fit each other are refused by name, and no run is accepted.
func TestComputeRefusals(t *testing.T) {
	r := newRig(t).start()
	p, foreign := policy(), policy(func(p *record.Policy) { p.ID, p.Account = "rev2", "pool:other" })
	euro := policy(func(p *record.Policy) { p.ID, p.Asset = "rev3", "eur" })
	for _, p := range []record.Policy{p, foreign, euro} {
		r.put(p)
	}
	in := r.seal(inputOf("e", 1000), usage("a requests 1"))
	two := inputOf("two", 1000)
	two.Metrics = []string{"cpu_units", "requests"}
	unweighed := r.seal(two, usage("a cpu_units 1"))
	for _, tt := range []struct {
		name, epoch string
		want        rewarder.ComputeRequest
		field       string
		is          error
	}{
		{"unknown policy", "e", rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: "rev9", PolicyHash: p.Hash()}, "",
			rewarder.ErrNotFound},
		{"stale hash", "e", rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: foreign.Hash()},
			"policy_hash", nil},
		{"unknown inputs", "e", rewarder.ComputeRequest{InputsCID: b3.Sum(nil), PolicyID: p.ID, PolicyHash: p.Hash()}, "",
			rewarder.ErrNotFound},
		{"another epoch", "f", rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash()},
			"inputs_cid", nil},
		{"another account", "e",
			rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: foreign.ID, PolicyHash: foreign.Hash()}, "account", nil},
		{"another asset", "e", rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: euro.ID, PolicyHash: euro.Hash()},
			"asset", nil},
		{"a metric without weight", "two",
			rewarder.ComputeRequest{InputsCID: unweighed.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash()}, "metrics", nil},
		{"no epoch id", "a/b", rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash()},
			"epoch_id", nil},
	} {
		_, err := r.e.Compute(r.ctx(), alice, tt.epoch, tt.want)
		var f *rewarder.FieldError
		if errors.As(err, &f) != (tt.field != "") || f != nil && f.Field != tt.field ||
			tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if page, err := r.e.Epochs(r.ctx(), rewarder.DefaultTenant, "", 10); err != nil || len(page.Epochs) != 0 {
		t.Errorf("epochs %+v, %v", page, err)
	}
	other := alice
	other.Tenant = "other"
	if _, err := r.e.Compute(r.ctx(), other, "e",
		rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash()}); !errors.Is(
		err,
		rewarder.ErrNotFound,
	) {
		t.Errorf("another tenant: %v", err)
	}
	if _, err := r.e.Input(r.ctx(), "other", in.InputsCID); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("input of another tenant: %v", err)
	}
}

// A full work_req refuses requests at once, and so does a draining node.
func TestIntake(t *testing.T) {
	r := newRig(t)
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 1000), usage("a requests 1"))
	for range rewarder.QueueCap {
		if err := r.e.Requests().TrySend(rewarder.NewRequest(rewarder.Call{}, rewarder.Job{},
			rewarder.ComputeRequest{})); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.compute("e", in, p); !errors.Is(err, flow.ErrBusy) {
		t.Errorf("full: %v", err)
	}
	if n, depth := r.count("queue_dropped_total{queue=work_req}"), r.count("queue_depth{queue=work_req}"); n != 1 ||
		depth != rewarder.QueueCap {
		t.Errorf("%v dropped, %v deep", n, depth)
	}
	r.catalog.CloseFedBy(rewarder.Service, flow.HTTP)
	if _, err := r.compute("e", in, p); !errors.Is(err, rewarder.ErrDraining) {
		t.Errorf("draining: %v", err)
	}
}

// A request that is not begun in 2 s, although its caller would wait longer, is refused because the
// storage is slow, without effects. No deadline has passed.
func TestComputeAnswersInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 1000), usage("a requests 1"))
	*r.e.Answers() = rewarder.AnswerWithin
	ctx, cancel := context.WithTimeout(r.ctx(), patience)
	defer cancel()
	if _, err := r.e.Compute(ctx, alice, "e",
		rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID,
			PolicyHash: p.Hash()}); !errors.Is(err, store.ErrSlow) ||
		ctx.Err() != nil || r.count("io_timeouts_total{op=compute}") != 0 {
		t.Errorf("err = %v", err)
	}
	*r.e.Answers() = patience
	r.start()
	r.mustCompute("other", r.seal(inputOf("other", 10), usage("a requests 1")), p)
	if _, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "e"); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("the run that nobody waited for: %v", err)
	}
}

// With 512 runs in work, the next request waits once for 50 to 150 ms, and is then refused and
// counted, unless there is room by then.
func TestWorkRetriesOnceThenDrops(t *testing.T) {
	t.Parallel()
	r := newRig(t).only(rewarder.TaskScheduler)
	p := policy()
	r.put(p)
	accepted := 0
	for ; accepted < rewarder.QueueCap; accepted++ {
		id := "e" + strings.Repeat("x", accepted%7) + time.Duration(accepted).String()
		r.mustCompute(id, r.seal(inputOf(id, 1000), usage("a requests 1")), p)
		if accepted == 3 { // the rest are handles of nothing, which cost less
			for ; accepted+1 < rewarder.QueueCap; accepted++ {
				if err := r.e.Todo(rewarder.ToCompute).TrySend(rewarder.JobOf("none", b3.Digest{})); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	in := r.seal(inputOf("last", 1000), usage("a requests 1"))
	if _, err := r.compute("last", in, p); !errors.Is(err, flow.ErrBusy) {
		t.Errorf("full twice: %v", err)
	}
	if dropped, retries := r.count("queue_dropped_total{queue=work}"), r.count(
		"backoff_retries_total{op=work}",
	); dropped != 1 ||
		retries != 1 {
		t.Errorf("%v dropped after %v retries", dropped, retries)
	}
	if _, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "last"); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("a run that was dropped: %v", err)
	}
	for range 10_000 {
		if d := rewarder.RoomDelay(0); d < 50*time.Millisecond || d > 150*time.Millisecond {
			t.Fatalf("delay %v", d)
		}
		if d := rewarder.CallSpec(r.e).Delay(0); d < 100*time.Millisecond || d > 250*time.Millisecond {
			t.Fatalf("delay of a call %v", d)
		}
	}
	r.only(rewarder.TaskWorker, rewarder.TaskEmitter, rewarder.TaskWriter)
	r.eventually("room", func() bool {
		_, err := r.compute("last", in, p)
		return err == nil
	})
	r.await("last", rewarder.Settled)
}

func TestEventsLag(t *testing.T) {
	r := newRig(t)
	sub := r.e.Events().Subscribe("http")
	defer sub.Close()
	for range 1024 + 7 {
		rewarder.Publish(r.e, rewarder.Run{})
	}
	if _, lagged, ok := sub.Next(); !ok || lagged != 7 {
		t.Errorf("lagged by %d, %v", lagged, ok)
	}
	if n := r.count("bus_lagged_total{bus=events}"); n != 7 {
		t.Errorf("bus_lagged_total = %v", n)
	}
}
