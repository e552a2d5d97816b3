package index_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// Lookups arrive while the service stops: each is answered exactly once at any time, and all places
// of the queue are released.
func TestStopUnderEverySchedule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		starts := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 10, 149, 150, 151, 1200}), 1, 12).Draw(rt, "starts")
		stop := rapid.SampledFrom([]int{0, 1, 10, 150, 160, 1199, 1200, 1300}).Draw(rt, "stop")
		within := rapid.SampledFrom([]int{0, 1, 100, 3000}).Draw(rt, "drain")
		call := rapid.SampledFrom([]func(context.Context, b3.Digest) ([]name.Provider, error){hangs, knows(seedKey(9), good), fails(name.ErrTransient, 0)}).
			Draw(rt, "peers")
		bubble(
			t,
			all(
				withPeers(&fake{providers: call}, &fake{providers: call}),
				setting(func(c *index.Config) { c.Resolver.Workers = 1 }),
			),
			func(r *rig) {
				ends := make(chan error, len(starts))
				for i, at := range starts {
					go func() {
						time.Sleep(time.Duration(at) * time.Millisecond)
						_, err := r.e.Providers(r.ctx(), digest("%d", i%4), name.ProvidersOptions{})
						ends <- err
					}()
				}
				time.Sleep(time.Duration(stop) * time.Millisecond)
				r.catalog.CloseFedBy(service, flow.HTTP)
				r.sup.CancelBackground()
				r.sup.Drain(service, time.Duration(within)*time.Millisecond, time.Second)
				time.Sleep(5 * time.Second)
				for range starts {
					err := <-ends
					known := false
					for _, want := range []error{nil, name.ErrUpstream, name.ErrTimeout, flow.ErrCanceled, flow.ErrClosed, flow.ErrBusy} {
						known = known || errors.Is(err, want)
					}
					if _, open := errors.AsType[*name.BreakerOpenError](err); !known && !open {
						rt.Errorf("answered %v", err)
					}
				}
				queued, running := r.e.Line()
				if r.e.Flights() != 0 || r.turns() != 0 || queued != 0 || running != 0 ||
					r.count("dht_legs_inflight") != 0 {
					rt.Errorf("%d flights, %d jobs, %v calls", r.e.Flights(), r.turns(),
						r.count("dht_legs_inflight"))
				}
			},
		)
	})
}

// A reader of the configuration sees one of two swapped values, never a mix.
func TestConfigSwap(t *testing.T) {
	r := newRig(t, nil)
	a, b := r.cfg, r.cfg
	a.DHT = index.DHTConfig{Alpha: 1, Beta: 1, HedgeMS: 100, DeadlineMS: 1000}
	b.DHT = index.DHTConfig{Alpha: 2, Beta: 2, HedgeMS: 200, DeadlineMS: 2000}
	r.e.Reload(a)
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.e.Reload(b)
				r.e.Reload(a)
			}
		}
	})
	reads := 1_000_000
	if testing.Short() {
		reads /= 10
	}
	seen := map[int]int{}
	for deadline := time.Now().Add(time.Minute); reads > 0 || len(seen) < 2 && time.Now().Before(deadline); reads-- {
		c, pace, deadline := r.e.Live()
		if n := c.DHT.Alpha; c.DHT.Beta != n || pace.Hedge != time.Duration(n)*100*time.Millisecond ||
			deadline != time.Duration(n)*time.Second {
			t.Fatalf("torn: %+v, %+v, %v", c, pace, deadline)
		}
		seen[c.DHT.Alpha]++
	}
	close(stop)
	group.Wait()
	if len(seen) != 2 {
		t.Errorf("saw %v", seen)
	}
}

// A reader of an unsynced row blocks until the row is synced.
func TestReadsWaitForTheSync(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		docs := key("name:docs.example")
		cmd := tables.PutName{Key: docs, Manifest: digest("1")} // its sync is not told
		if _, err := store.Commit(r.ctx(), r.store, store.Work, cmd); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(r.ctx(), time.Second)
		defer cancel()
		if _, err := r.e.Name(ctx, docs); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unsynced: %v", err)
		}
		if _, err := r.e.Resolve(r.ctx(), docs, name.ResolveOptions{}); !errors.Is(err, name.ErrTimeout) ||
			r.count("io_timeouts_total", "op", "read") != 1 {
			t.Errorf("unsynced: %v", err)
		}
		if _, err := r.e.Names(ctx, "", "", 10); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("unsynced: %v", err)
		}
		got := make(chan error, 2)
		go func() { _, err := r.e.Name(r.ctx(), docs); got <- err }()
		go func() { _, err := r.e.Names(r.ctx(), "", "", 10); got <- err }()
		synctest.Wait()
		if len(got) > 0 {
			t.Errorf("unsynced: %v", <-got)
		}
		r.put("name:next.example", digest("2"))
		for range 2 {
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
	})
}
