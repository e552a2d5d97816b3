package index_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
)

// order is a peer that records the order of its calls, and blocks while it is held.
type order struct {
	fake
	mu   sync.Mutex
	list []b3.Digest
	held chan struct{}
}

func newOrder() *order {
	o := &order{held: make(chan struct{})}
	o.target = "order:1"
	o.fake.providers = func(ctx context.Context, cid b3.Digest) ([]name.Provider, error) {
		o.mu.Lock()
		o.list = append(o.list, cid)
		o.mu.Unlock()
		select {
		case <-o.held:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		return []name.Provider{{Record: signed(seedKey(9), cid, "", time.Now(), time.Hour)}}, nil
	}
	return o
}

// hotHits is the number of hits of one entry that make its key hot.
const hotHits = 5

// bg_tx holds 64 jobs and its producer waits. No job of it begins while work_tx has one.
func TestBackgroundYields(t *testing.T) {
	var o *order
	bubble(
		t,
		all(
			func(r *rig) { o = newOrder(); r.peers = []name.Peer{o} },
			setting(func(c *index.Config) { c.Resolver.Workers = 1; c.DHT.DeadlineMS = 5000 }),
		),
		func(r *rig) {
			ends := make(chan error, 101)
			ask := func(cid b3.Digest) {
				_, _, err := r.ask(cid, name.ProvidersOptions{})
				ends <- err
			}
			go ask(digest("first"))
			synctest.Wait()
			var background []b3.Digest
			var texts []string
			for i := range 200 {
				background = append(background, digest("bg %d", i))
				texts = append(texts, name.CIDText(background[i]))
			}
			if n, err := r.e.Reindex(r.ctx(), alice, texts, "c"); n != 200 || err != nil {
				t.Fatal(n, err)
			}
			synctest.Wait()
			if _, bg, reindexes := r.e.Queued(); bg != 64 || r.count("queue_depth", "queue", "bg") != 64 || reindexes != 0 {
				t.Errorf("%d jobs in bg_tx", bg)
			}
			for i := range 100 {
				go ask(digest("%d", i))
			}
			synctest.Wait()
			close(o.held)
			for range 101 {
				if err := <-ends; err != nil {
					t.Error(err)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			o.mu.Lock()
			defer o.mu.Unlock()
			if len(o.list) != 301 {
				t.Fatalf("%d asked", len(o.list))
			}
			for _, cid := range background {
				if at := slices.Index(o.list, cid); at < 101 {
					t.Errorf("a job of bg_tx was begun %d., before those of work_tx", at)
				}
			}
			if r.count("index_background_total") != 200 {
				t.Errorf("%v counted", r.count("index_background_total"))
			}
		},
	)
}

// A full work_tx refuses lookups at once, without effects, and counts them.
func TestFullQueue(t *testing.T) {
	bubble(
		t,
		all(withPeers(&fake{providers: hangs}), setting(func(c *index.Config) { c.Resolver.Workers = 1 })),
		func(r *rig) {
			ends := make(chan error, 2000)
			ask := func(i int) {
				_, _, err := r.ask(digest("%d", i), name.ProvidersOptions{})
				ends <- err
			}
			go ask(0)
			synctest.Wait()
			for i := range workCap {
				go ask(i + 1)
			}
			synctest.Wait()
			if r.count("queue_depth", "service", service, "queue", "work") != workCap ||
				r.count("queue_capacity", "service", service, "queue", "work") != 512 {
				t.Errorf("depth %v", r.count("queue_depth", "service", service, "queue", "work"))
			}
			if _, took, err := r.ask(digest("one more"), name.ProvidersOptions{}); !errors.Is(err, flow.ErrBusy) ||
				took != 0 {
				t.Errorf("%v after %v", err, took)
			}
			if r.count("queue_dropped_total", "service", service, "queue", "work") != 1 {
				t.Errorf("%v dropped", r.count("queue_dropped_total", "service", service, "queue", "work"))
			}
			late, busy := 0, 0
			for range workCap + 1 {
				err := <-ends
				late, busy = late+tally(err, name.ErrTimeout), busy+tally(err, flow.ErrBusy)
			}
			if late != 1 || busy != workCap || r.count("resolve_deadline_hit") != 1 {
				t.Errorf("%d late, %d busy", late, busy)
			}
			// The places of callers who leave early are free again.
			ctx, leave := context.WithCancel(r.ctx())
			const callers = 4 // more could not be begun in time behind lookups as slow as those before
			for i := range callers {
				go func() {
					_, err := r.e.Providers(ctx, digest("left %d", i), name.ProvidersOptions{})
					ends <- err
				}()
			}
			synctest.Wait()
			leave()
			for range callers {
				if err := <-ends; !errors.Is(err, context.Canceled) {
					t.Errorf("answered %v", err)
				}
			}
			time.Sleep(3 * time.Second)
			if queued, _ := r.e.Line(); queued != 0 ||
				r.count("tasks_canceled_total", "kind", taskWorker) < callers-1 {
				t.Errorf("%v canceled", r.count("tasks_canceled_total", "kind", taskWorker))
			}
		},
	)
}

// Too many reindexes and invalid keys are refused.
func TestReindexBounds(t *testing.T) {
	r := newRig(t, nil) // no task takes them
	for i := range reindexCap {
		if n, err := r.e.Reindex(r.ctx(), alice, []string{"name:a", "b3:" + digest("x").String()[3:]}, "c"); n != 3 ||
			err != nil {
			t.Fatal(i, n, err)
		}
	}
	if _, err := r.e.Reindex(r.ctx(), alice, []string{"name:a"}, "c"); !errors.Is(err, flow.ErrBusy) {
		t.Error(err)
	}
	if _, err := r.e.Reindex(r.ctx(), alice, []string{"a"}, "c"); err == nil {
		t.Error("a key that is none was taken")
	}
	if _, err := r.e.Reindex(r.ctx(), alice, make([]string, index.MaxReindex+1), "c"); err == nil {
		t.Error("too many keys were taken")
	}
}

// Warm-up keys are cached at boot. Hot keys are known, and a reindex without keys looks them up
// again. A purge forgets everything.
func TestWarmupHotKeysPurge(t *testing.T) {
	var o *order
	cid := digest("warm")
	bubble(
		t,
		all(
			func(r *rig) { o = newOrder(); close(o.held); r.peers = []name.Peer{o} },
			setting(func(c *index.Config) { c.Cache.WarmupKeys = []string{cid.String()} }),
		),
		func(r *rig) {
			synctest.Wait()
			r.e.Settle()
			if set, _, err := r.ask(cid, name.ProvidersOptions{}); err != nil || set.Source != name.SourceCache ||
				r.count("index_cache_hits_total") == 0 {
				t.Errorf("%+v, %v", set, err)
			}
			for range hotHits {
				_, _, _ = r.ask(cid, name.ProvidersOptions{})
			}
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			if m := r.e.Meta(); !slices.Equal(m.Hot, []string{name.CIDText(cid)}) || m.Tracked == 0 ||
				r.count("index_cache_entries") != float64(m.Tracked) {
				t.Errorf("%+v", m)
			}
			sent := o.sends.Load()
			if n, err := r.e.Reindex(r.ctx(), alice, nil, "c"); err != nil || n != 1 {
				t.Errorf("%d, %v", n, err)
			}
			time.Sleep(time.Second)
			if o.sends.Load() != sent+1 {
				t.Errorf("%d sends", o.sends.Load()-sent)
			}
			r.e.Purge()
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			if m := r.e.Meta(); m.Purges != 1 || m.Tracked != 0 || len(m.Hot) != 0 {
				t.Errorf("after a purge: %+v", m)
			}
			if set, _, err := r.ask(cid, name.ProvidersOptions{}); err != nil || set.Source != name.SourcePeer {
				t.Errorf("after a purge: %+v, %v", set, err)
			}
		},
	)
}

// The cache janitor evicts "not found" entries after two seconds, other entries after the stale
// time, and entries outdated by a write.
func TestCacheJanitorEvicts(t *testing.T) {
	bubble(t, setting(func(c *index.Config) { c.Cache.StaleMS = 0 }), func(r *rig) {
		_, err := r.e.Resolve(r.ctx(), key("name:nobody"), name.ResolveOptions{})
		if !errors.Is(err, name.ErrNotFound) {
			t.Error(err)
		}
		r.put("name:docs.example", digest("1"))
		r.resolve("name:docs.example")
		r.put("name:moved.example", digest("1"))
		r.resolve("name:moved.example")
		r.e.Settle()
		r.put("name:moved.example", digest("2"))
		_, _ = r.e.Resolve(r.ctx(), key("name:nobody"), name.ResolveOptions{})
		if r.count("index_cache_hits_total") != 1 {
			t.Errorf("%v hits: a negative one is missing", r.count("index_cache_hits_total"))
		}
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		if got := r.count("index_cache_evicted_total"); got != 1 {
			t.Errorf("%v evicted after a second", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := r.count("index_cache_evicted_total"); got != 2 {
			t.Errorf("%v evicted after three", got)
		}
		time.Sleep(9 * time.Second)
		synctest.Wait()
		if got := r.count("index_cache_evicted_total"); got != 3 || r.e.Meta().Tracked != 0 {
			t.Errorf("%v evicted after twelve", got)
		}
	})
}

// events_tx drops the oldest events of a slow reader. The observer counts lost ones.
func TestEventsLag(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		sub := r.e.Subscribe("test")
		defer sub.Close()
		synctest.Wait() // the observer has begun
		r.put("name:docs.example", digest("1"))
		synctest.Wait()
		if r.count("index_events_total", "kind", name.EventPut) != 1 {
			t.Error("the observer has not seen a put")
		}
		for range eventsCap + 76 {
			r.e.Publish(name.Event{Kind: name.EventFailed})
		}
		if _, lagged, err := sub.Recv(r.ctx()); lagged != 77 || err != nil {
			t.Errorf("%d lagged, %v", lagged, err)
		}
		synctest.Wait()
		if r.count("bus_lagged_total", "consumer", "test") != 77 {
			t.Errorf("%v counted", r.count("bus_lagged_total", "consumer", "test"))
		}
	})
}
