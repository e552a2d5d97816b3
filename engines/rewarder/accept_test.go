package rewarder_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// stall keeps the committer busy until release is called.
func (r *rig) stall() (release func()) {
	r.t.Helper()
	begun, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := store.Commit(
			r.ctx(),
			r.store,
			store.Work,
			rewarder.Command("stall", 1, func(store.Reader, *store.Writes) (none struct{}, err error) {
				close(begun)
				<-end
				return none, nil
			}),
		); err != nil {
			r.t.Error(err)
		}
	})
	<-begun
	return sync.OnceFunc(func() { close(end); wg.Wait() })
}

// Accepts do not wait for each other: all requests that arrive while the committer is busy are
// handed to it and answered. A concurrent request for the same run joins it.
func TestAcceptsShareASync(t *testing.T) {
	r := newRig(t).only(rewarder.TaskScheduler)
	p := policy()
	r.put(p)
	const n = 64
	var all []rewarder.Input
	for i := range n {
		all = append(all, r.seal(inputOf(fmt.Sprint("e", i), 10), usage("a requests 1")))
	}
	release := r.stall()
	defer release()
	var wg sync.WaitGroup
	var joined, accepted syncCount
	for i := range n {
		for range 2 {
			wg.Go(func() {
				run, err := r.compute(fmt.Sprint("e", i), all[i], p)
				switch {
				case err != nil || run.State != rewarder.Accepted:
					t.Errorf("%+v, %v", run, err)
				case run.Joined:
					joined.Add(1)
				default:
					accepted.Add(1)
				}
			})
		}
	}
	r.eventually("all are in flight", func() bool { return r.e.Admitting() == 2*n })
	release()
	wg.Wait()
	if joined.Load() != n || accepted.Load() != n {
		t.Errorf("%d accepted, %d joined", accepted.Load(), joined.Load())
	}
	r.eventually("none is in flight", func() bool { return r.e.Admitting() == 0 })
	if depth := r.e.Todo(rewarder.ToCompute).Len(); depth != n {
		t.Errorf("work has %d runs", depth)
	}
}

// If the deadline of a caller passes before its request has its turn in the committer, the request
// is not begun: the caller is told so, which is counted, and the epoch is free.
func TestAcceptIsNotBegunLate(t *testing.T) {
	r := newRig(t).only(rewarder.TaskScheduler)
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 10), usage("a requests 1"))
	release := r.stall()
	defer release()
	ctx, leave := context.WithTimeout(r.ctx(), 50*time.Millisecond)
	defer leave()
	want := rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash()}
	if _, err := r.e.Compute(ctx, alice, "e", want); !errors.Is(err, rewarder.ErrLate) {
		t.Errorf("while the committer is busy: %v", err)
	}
	if n := r.count("io_timeouts_total{op=compute}"); n != 1 {
		t.Errorf("%v deadlines are counted", n)
	}
	release()
	r.eventually("it was handed back", func() bool { return r.e.Admitting() == 0 })
	if _, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, "e"); !errors.Is(err, rewarder.ErrNotFound) {
		t.Errorf("an epoch whose caller heard that it is late: %v", err)
	}
	if run := r.mustCompute("e", in, p); run.Joined || run.State != rewarder.Accepted {
		t.Errorf("%+v", run)
	}
}

// A run that cannot pay any actor is refused before its epoch is taken, unless EmptyOK accepts an
// empty run.
func TestEmptyRunsAreRefused(t *testing.T) {
	r := newRig(t).start()
	p := policy()
	costly := policy(func(p *record.Policy) { p.ID, p.Guarantee = "rev2", n64(11) })
	r.put(p)
	r.put(costly)
	for _, tt := range []struct {
		epoch, field string
		pool         uint64
		rows         []byte
		policy       record.Policy
		taken        bool // accepted with EmptyOK
	}{
		{"no-rows", "inputs_cid", 10, nil, p, true},
		{"no-pool", "pool_minor", 0, usage("a requests 1"), p, true},
		{"guarantee", "guarantee", 10, usage("a requests 1"), costly, false},
		{"guarantees", "guarantee", 21, usage("a requests 1", "b requests 2"), costly, false},
	} {
		in := r.seal(inputOf(tt.epoch, tt.pool), tt.rows)
		want := rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: tt.policy.ID, PolicyHash: tt.policy.Hash()}
		_, err := r.e.Compute(r.ctx(), alice, tt.epoch, want)
		if field, ok := asA[*rewarder.FieldError](err); !ok || field.Field != tt.field {
			t.Errorf("%s: %v", tt.epoch, err)
		}
		if _, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, tt.epoch); !errors.Is(err, rewarder.ErrNotFound) {
			t.Errorf("%s: its epoch is taken: %v", tt.epoch, err)
		}
		want.EmptyOK = true
		if _, err = r.e.Compute(r.ctx(), alice, tt.epoch, want); (err == nil) != tt.taken {
			t.Errorf("%s, empty_ok: %v", tt.epoch, err)
		}
		if tt.taken {
			if run := r.await(tt.epoch, rewarder.Settled); run.PaidMinor != "0" {
				t.Errorf("%+v", run)
			}
		}
	}
}

// Actors without a score get no guarantee. A run is accepted if its pool covers the others.
func TestGuaranteeCountsActorsWithAScore(t *testing.T) {
	r := newRig(t, inMemory).start()
	p := policy(func(p *record.Policy) {
		p.Guarantee = n64(11)
		p.Metrics = map[string]record.Weight{"requests": {Num: 1, Den: 10}}
	})
	r.put(p)
	in := r.seal(inputOf("e", 21), usage("a requests 9", "b requests 10", "c requests 9"))
	r.mustCompute("e", in, p)
	if run := r.await("e", rewarder.Settled, rewarder.Quarantined); run.State != rewarder.Settled || run.Actors != 1 ||
		run.PayoutMinor != "21" {
		t.Errorf("%+v", run)
	}
}

// A token with max_runs starts at most that many runs. Runs that it joins or repeats are not
// counted, nor are runs of other tokens. The count survives a restart.
func TestMaxRuns(t *testing.T) {
	r := newRig(t).start()
	p := policy()
	r.put(p)
	var g engines.Grant
	g.NarrowRuns(2)
	bounded := alice
	bounded.By.Grant = &g
	start := func(by rewarder.Call, epoch string) error {
		in := r.seal(inputOf(epoch, 10), usage("a requests 1"))
		_, err := r.e.Compute(r.ctx(), by, epoch,
			rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash()})
		return err
	}
	for _, epoch := range []string{"e1", "e2", "e1", "e2"} {
		if err := start(bounded, epoch); err != nil {
			t.Errorf("%s: %v", epoch, err)
		}
		r.await(epoch, rewarder.Settled)
	}
	r.reboot()
	var refused *engines.GrantError
	if err := start(bounded, "e3"); !errors.As(err, &refused) || refused.Caveat != "max_runs" {
		t.Errorf("a third run: %v", err)
	}
	if err := start(alice, "e3"); err != nil {
		t.Errorf("the same token, not bounded: %v", err)
	}
	r.await("e3", rewarder.Settled)
	if err := start(bounded, "e3"); err != nil {
		t.Errorf("a run that stands: %v", err)
	}
}

// A number of shards other than 1 is refused with the reason.
func TestShardsAreRefused(t *testing.T) {
	cfg := rewarder.DefaultConfig()
	cfg.Shard.Shards = 2
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "one worker computes a run") {
		t.Errorf("err = %v", err)
	}
}
