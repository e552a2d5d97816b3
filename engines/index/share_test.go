package index_test

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/index"
	"ronbox/engines/index/lookup"
	"ronbox/engines/index/name"
)

// network returns the n-th network of a test.
func network(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }

// lookups starts n lookups of a network with different keys, and returns a channel of their errors.
func (r *rig) lookups(from, n int) chan error {
	ends := make(chan error, n)
	for i := range n {
		go func() {
			_, err := r.e.Providers(r.ctx(), digest("%d %d", from, i),
				name.ProvidersOptions{From: name.Caller{Network: network(from), Cost: 1}})
			ends <- err
		}()
		if i < 4 { // the workers take theirs before the queue fills
			synctest.Wait()
		}
	}
	synctest.Wait()
	return ends
}

// A call that the deadline ends early does not count against its peer. A call that had the whole
// fair time without an answer is a failure, and ten of them open the breaker.
func TestFairBlame(t *testing.T) {
	slow := &fake{providers: hangs}
	bubble(t, all(withPeers(slow), setting(func(c *index.Config) { c.Stale = false })), func(r *rig) {
		_, pace, _ := r.e.Live()
		ask := func(n int, left time.Duration) {
			for i := range n {
				ask := lookup.Call{
					Text:     "p" + string(rune(i)),
					CID:      digest("%d %v", i, left),
					Deadline: time.Now().Add(left),
					Order:    r.e.Set().Peers,
				}
				r.e.Ask(r.ctx(), pace, ask)
			}
			time.Sleep(time.Second) // a step of the breaker
		}
		for _, left := range []time.Duration{time.Millisecond, 100 * time.Millisecond, pace.Fair - 1} {
			ask(50, left)
			if p := r.e.Peers()[0]; p.Breaker != "closed" || p.Failed != 0 ||
				r.count("dht_errors_total", "kind", "timeout") != 0 {
				t.Fatalf("after calls of %v: %+v", left, p)
			}
		}
		ask(10, pace.Fair)
		if p := r.e.Peers()[0]; p.Breaker == "closed" || p.Failed != 10 {
			t.Errorf("after calls of %v: %+v", pace.Fair, p)
		}
	})
}

// The fair time fits into every lookup that is begun on time, for every configuration.
func TestFairTimeIsWithinTheDeadline(t *testing.T) {
	for hedge := 1; hedge < 1200; hedge += 7 {
		c := index.DefaultConfig()
		c.DHT.HedgeMS = hedge
		pace, deadline, least := index.Paced(c)
		if pace.Fair <= 0 || pace.Fair >= deadline || least <= 0 || least >= pace.Fair {
			t.Fatalf("hedge %d ms: fair %v, least %v of %v", hedge, pace.Fair, least, deadline)
		}
	}
}

// A lookup that cannot be begun in time is refused at admission, once the duration of lookups is
// known.
func TestAdmissionByTime(t *testing.T) {
	bubble(t, all(withPeers(&fake{providers: hangs}), setting(func(c *index.Config) {
		c.Resolver.Workers, c.Breaker.MinSamples = 4, 100_000
	})), func(r *rig) {
		for range 10 { // the average comes to know the hanging peer
			for range cap(r.lookups(1, 4)) {
			}
			time.Sleep(2 * time.Second)
		}
		ends := r.lookups(1, 100)
		refused, began := 0, time.Now()
		for len(ends) > 0 {
			if err := <-ends; !errors.Is(err, flow.ErrBusy) {
				t.Errorf("at once: %v", err)
			}
			refused++
		}
		// Lookups keep a worker for nearly 1.2 s: of the 900 ms that a job may wait, each four jobs
		// ahead take that.
		if refused < 90 || refused > 96 || time.Since(began) != 0 {
			t.Errorf("%d of 100 were refused after %v", refused, time.Since(began))
		}
		for range 100 - refused {
			if err := <-ends; !errors.Is(err, name.ErrTimeout) && !errors.Is(err, index.ErrNoWorker) {
				t.Errorf("admitted: %v", err)
			}
		}
	})
}

// A network that fills the queue and the workers does not keep out another: the other network gets
// a place at once, for which the newest lookup of the first one is evicted, and the next free
// worker. The first one gets no more places meanwhile.
func TestSharesOfNetworks(t *testing.T) {
	var gate chan struct{}   // of the bubble
	var honestly atomic.Bool // the peer was asked for the other network
	p := &fake{providers: func(ctx context.Context, cid b3.Digest) ([]name.Provider, error) {
		if cid == digest("%d %d", 2, 0) {
			honestly.Store(true)
		}
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		return []name.Provider{{Record: signed(seedKey(9), cid, "", time.Now(), time.Hour)}}, nil
	}}
	bubble(
		t,
		all(withPeers(p), setting(func(c *index.Config) { c.Resolver.Workers, c.DHT.DeadlineMS = 4, 5000 }), func(*rig) {
			gate = make(chan struct{})
		}),
		func(r *rig) {
			flood := r.lookups(1, 4+workCap)
			queued := func() int { n, _ := r.e.Line(); return n }
			if len(flood) != 0 || queued() != workCap || r.turns() != workCap {
				t.Fatalf("%d ended, %d in the line, %d turns", len(flood), queued(), r.turns())
			}
			honest := r.lookups(2, 1)
			if err := <-flood; !errors.Is(err, flow.ErrBusy) || len(honest) != 0 || queued() != workCap ||
				r.turns() != workCap {
				t.Fatalf("gave way: %v; %d in the line, %d turns", err, queued(), r.turns())
			}
			more := r.lookups(1, 3)
			if len(more) != 0 { // the same keys: they joined
				t.Fatalf("%v", <-more)
			}
			if _, err := r.e.Providers(r.ctx(), digest("new"),
				name.ProvidersOptions{From: name.Caller{Network: network(1)}}); !errors.Is(
				err,
				flow.ErrBusy,
			) {
				t.Errorf("beyond a quarter while another waits: %v", err)
			}
			gate <- struct{}{} // one worker is free
			if err := <-flood; err != nil {
				t.Error(err)
			}
			gate <- struct{}{} // of the three of the flood and the honest one, whichever
			synctest.Wait()
			if !honestly.Load() {
				t.Error("the honest lookup still waits for a worker")
			}
			close(gate)
			if err := <-honest; err != nil {
				t.Errorf("honest: %v", err)
			}
			for range 4 + workCap - 2 {
				<-flood
			}
			synctest.Wait()
			if queued, running := r.e.Line(); queued != 0 || running != 0 {
				t.Errorf("left in the line: %d jobs, %d run", queued, running)
			}
		},
	)
}

// A caller that joined the lookup of another network is not refused for the share of that network.
func TestJoinersAreNotRefusedForAnother(t *testing.T) {
	bubble(t, all(withPeers(&fake{providers: knows(seedKey(9), good)}), setting(func(c *index.Config) {
		c.Resolver.Workers, c.DHT.DeadlineMS, c.DHT.HedgeMS = 1, 5000, 4000
	})), func(r *rig) {
		blocked, flood := r.lookups(3, 1), r.lookups(1, workCap-1)
		newest := make(chan error, 2)
		for _, from := range []int{1, 2} { // the first begins the lookup, the second joins it
			go func() {
				_, err := r.e.Providers(r.ctx(), digest("newest"),
					name.ProvidersOptions{From: name.Caller{Network: network(from)}})
				newest <- err
			}()
			synctest.Wait()
		}
		honest := r.lookups(4, 1) // for which the newest gives way
		if err := <-newest; !errors.Is(err, flow.ErrBusy) {
			t.Errorf("gave way: %v", err)
		}
		for _, c := range []chan error{blocked, honest, newest} {
			if err := <-c; err != nil {
				t.Errorf("honest: %v", err)
			}
		}
		for range cap(flood) {
			<-flood
		}
	})
}

// Reads of this node's file are answered at once even if lookups hold every worker and every place.
func TestOwnFileDoesNotWait(t *testing.T) {
	bubble(
		t,
		all(withPeers(&fake{providers: hangs}), setting(func(c *index.Config) { c.Resolver.Workers = 2 })),
		func(r *rig) {
			r.put("name:docs.example", digest("1"))
			r.announce(digest("own"))
			ends := r.lookups(1, 2+workCap)
			begun := time.Now()
			if a := r.resolve("name:docs.example"); a.Source != name.SourceLocal {
				t.Errorf("%+v", a)
			}
			if _, err := r.e.Resolve(r.ctx(), key("name:none.example"), name.ResolveOptions{}); !errors.Is(err,
				name.ErrNotFound) {
				t.Error(err)
			}
			if set, _, err := r.ask(digest("own"), name.ProvidersOptions{}); err != nil || set.Source != name.SourceLocal {
				t.Errorf("%+v, %v", set, err)
			}
			if took := time.Since(begun); took != 0 {
				t.Errorf("took %v", took)
			}
			for range cap(ends) {
				<-ends
			}
		},
	)
}

// announce publishes a provider of this node.
func (r *rig) announce(cid b3.Digest) {
	r.t.Helper()
	done, err := r.e.Announce(r.ctx(), alice,
		[]name.Announcement{{CID: cid, Addrs: []string{"/ip4/192.0.2.1/tcp/8443/https"}}}, "corr")
	if err != nil || done[0].Err != nil {
		r.t.Fatalf("%+v, %v", done, err)
	}
}

// A lookup that leaves the node takes tokens of the rate of its network. Hits and reads of the file
// do not.
func TestRateOfMisses(t *testing.T) {
	for _, inline := range []bool{true, false} {
		taken := map[netip.Addr]int{}
		limited := func(r *rig) {
			r.admit = func(from netip.Addr, cost int) (bool, time.Duration) {
				if taken[from]+cost > 15 {
					return false, time.Second
				}
				taken[from] += cost
				return true, 0
			}
		}
		inlined := setting(func(c *index.Config) { c.InlineHits = inline })
		bubble(
			t,
			all(withPeers(&fake{providers: knows(seedKey(9), 0)}), limited, inlined),
			func(r *rig) {
				r.put("name:docs.example", digest("1"))
				r.announce(digest("own"))
				ask := func(content string, from, cost int, fresh bool) error {
					_, err := r.e.Providers(r.ctx(), digest("%s", content),
						name.ProvidersOptions{From: name.Caller{Network: network(from), Cost: cost}, Fresh: fresh})
					return err
				}
				for _, tt := range []struct {
					name             string
					from, cost, took int
					fresh, refused   bool
				}{
					{"own", 1, 1, 0, false, false},
					{"a", 1, 1, 1, false, false},
					{"a", 1, 10, 11, true, false},
					{"b", 1, 10, 11, true, true},
					{"b", 2, 10, 10, true, false},
					{"c", 1, 4, 15, false, false},
					{"d", 1, 1, 15, false, true},
					{"d", 1, 0, 15, false, false}, // the admin socket
				} {
					err := ask(tt.name, tt.from, tt.cost, tt.fresh)
					if rate, ok := errors.AsType[*name.RateError](
						err,
					); ok != tt.refused || ok && rate.Wait != time.Second || !ok && err != nil ||
						taken[network(tt.from)] != tt.took {
						t.Errorf("%+v: %v, %d taken", tt, err, taken[network(tt.from)])
					}
				}
				if _, err := r.e.Resolve(r.ctx(), key("name:docs.example"),
					name.ResolveOptions{From: name.Caller{Network: network(1), Cost: 1}}); err != nil {
					t.Error(err)
				}
			},
		)
	}
}
