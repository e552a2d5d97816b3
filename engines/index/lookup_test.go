package index

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
)

// bubble runs a rig whose peers are asked in virtual time.
func bubble(t *testing.T, change func(*rig), body func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change).start()
		body(r)
		r.stop()
	})
}

// ask looks cid up and says how long that took.
func (r *rig) ask(cid b3.Digest, o ProvidersOptions) (ProviderSet, time.Duration, error) {
	begun := time.Now()
	set, err := r.e.Providers(r.ctx(), cid, o)
	return set, time.Since(begun), err
}

func setting(f func(*Config)) func(*rig) { return func(r *rig) { f(&r.cfg) } }

// near tells a time that is at most a millisecond off.
func near(got, want time.Duration) bool {
	return got >= want-time.Millisecond && got <= want+time.Millisecond
}

const good = 30 * time.Millisecond // of a peer that answers

// What a lookup comes to, and when: α peers at once, β others after the hedge time or as soon as all have failed, the deadline at last.
func TestLookup(t *testing.T) {
	type behaviour = func(context.Context, b3.Digest) ([]Provider, error)
	yes := func(d time.Duration) behaviour { return knows(seedKey(9), d) }
	empty := func(d time.Duration) behaviour {
		return func(ctx context.Context, _ b3.Digest) ([]Provider, error) { return nil, wait(ctx, d) }
	}
	for _, tt := range []struct {
		name        string
		alpha, beta int
		peers       []behaviour // those asked first come first
		want        error
		took        time.Duration
		sends       int64 // of all peers; 0: not looked at
	}{
		{"the first to answer wins", 3, 2, []behaviour{yes(good), yes(2 * good), hangs, yes(0), yes(0)}, nil, good, 3},
		{"beta wins", 1, 2, []behaviour{hangs, yes(2 * good), yes(good)}, nil, 150*time.Millisecond + good, 3},
		{"alpha wins late", 1, 1, []behaviour{yes(160 * time.Millisecond), yes(good)}, nil, 160 * time.Millisecond, 2},
		{"all alpha hang", 3, 2, []behaviour{hangs, hangs, hangs, yes(good), yes(good)}, nil, 150*time.Millisecond + good, 5},
		{"no beta is left", 3, 2, []behaviour{hangs, hangs, hangs}, ErrTimeout, 1200 * time.Millisecond, 3},
		{"nobody answers", 3, 2, []behaviour{hangs, hangs, hangs, hangs, hangs}, ErrTimeout, 1200 * time.Millisecond, 5},
		{"alpha fails, beta is asked at once", 1, 1, []behaviour{fails(ErrInvalid, good), yes(good)}, nil, 2 * good, 2},
		{"nobody knows", 3, 2, []behaviour{empty(good), empty(good), empty(2 * good), yes(0), yes(0)}, ErrNotFound, 2 * good, 3},
		{"nobody knows, one hangs", 3, 2, []behaviour{empty(good), empty(good), hangs}, ErrNotFound, 150 * time.Millisecond, 3},
		{"beta knows nothing, alpha hangs", 1, 2, []behaviour{hangs, empty(good), empty(good)}, ErrNotFound, 150*time.Millisecond + good, 3},
		{"all fail for good", 3, 2, []behaviour{fails(ErrInvalid, good), fails(ErrInvalid, good), fails(ErrInvalid, good)}, ErrUpstream, good, 3},
		{"beta knows, alpha is half empty", 2, 1, []behaviour{empty(good), hangs, yes(good)}, nil, 150*time.Millisecond + good, 3},
		{"beta knows after one that does not", 3, 2, []behaviour{empty(good), empty(good), hangs, empty(good), yes(2 * good)}, nil, 150*time.Millisecond + 2*good, 5},
		{"beta is off", 1, 0, []behaviour{hangs, yes(0)}, ErrTimeout, 1200 * time.Millisecond, 1},
		{"one peer of five", 3, 2, []behaviour{yes(good)}, nil, good, 1},
		{"a lie is a failure", 1, 1, []behaviour{
			func(context.Context, b3.Digest) ([]Provider, error) {
				return []Provider{{Record: signed(seedKey(3), digest("other"), "", time.Now(), time.Hour), Verified: true}}, nil
			}, yes(good),
		}, nil, good, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var peers []*fake
			for _, b := range tt.peers {
				peers = append(peers, &fake{providers: b})
			}
			bubble(t, all(withPeers(peers...), setting(func(c *Config) { c.DHT.Alpha, c.DHT.Beta = tt.alpha, tt.beta })), func(r *rig) {
				set, took, err := r.ask(r.orderedCID(peers), ProvidersOptions{})
				if !errors.Is(err, tt.want) || tt.want == nil && (err != nil || set.Source != SourcePeer || len(set.Providers) != 1) || !near(took, tt.took) {
					t.Errorf("%+v after %v, %v; want %v after %v", set, took, err, tt.want, tt.took)
				}
				synctest.Wait()
				sends := int64(0)
				for _, p := range peers {
					if sends += p.sends.Load(); p.running.Load() != 0 {
						t.Errorf("%s is still asked", p.target)
					}
				}
				if sends != tt.sends {
					t.Errorf("%d sends, want %d", sends, tt.sends)
				}
				if r.count("dht_legs_inflight") != 0 || r.count("index_dht_lookup_ms") != 1 {
					t.Errorf("legs %v, lookups %v", r.count("dht_legs_inflight"), r.count("index_dht_lookup_ms"))
				}
			})
		})
	}
}

// orderedCID is an id for which the peers are asked in the order given.
func (r *rig) orderedCID(peers []*fake) b3.Digest {
	for i := range 100_000 {
		cid := digest("%d", i)
		if slices.EqualFunc(r.e.orderFor(cidText(cid), ""), peers, func(a *peer, b *fake) bool { return a.Peer == Peer(b) }) {
			return cid
		}
	}
	r.t.Fatal("no id orders the peers so")
	return b3.Digest{}
}

// A peer that fails in passing is asked again after 50 to 100 ms, three times a lookup at most, and not near the deadline.
func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		sends int64
	}{{"transient", ErrTransient, 4}, {"no route", ErrNoRoute, 4}, {"invalid", ErrInvalid, 1}, {"timeout", ErrPeerTimeout, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			p := &fake{providers: fails(tt.err, 0)}
			bubble(t, withPeers(p), func(r *rig) {
				_, took, err := r.ask(digest("content"), ProvidersOptions{})
				pauses := time.Duration(tt.sends - 1)
				if !errors.Is(err, ErrUpstream) || took < 50*time.Millisecond*pauses || took > 100*time.Millisecond*pauses {
					t.Errorf("%v after %v", err, took)
				}
				if p.sends.Load() != tt.sends || r.count("backoff_retries_total", "op", "dht") != float64(tt.sends-1) {
					t.Errorf("%d sends, %v retries counted", p.sends.Load(), r.count("backoff_retries_total", "op", "dht"))
				}
			})
		})
	}
	t.Run("three over all legs", func(t *testing.T) {
		var peers []*fake
		for range 5 {
			peers = append(peers, &fake{providers: fails(ErrTransient, 0)})
		}
		bubble(t, withPeers(peers...), func(r *rig) {
			if _, _, err := r.ask(digest("content"), ProvidersOptions{}); !errors.Is(err, ErrUpstream) {
				t.Error(err)
			}
			sends := int64(0)
			for _, p := range peers {
				sends += p.sends.Load()
			}
			if sends > 5+maxRetries || sends < 5 {
				t.Errorf("%d sends", sends)
			}
		})
	})
	t.Run("none near the deadline", func(t *testing.T) {
		p := &fake{providers: fails(ErrTransient, 1100*time.Millisecond)}
		bubble(t, withPeers(p), func(r *rig) {
			if _, took, err := r.ask(digest("content"), ProvidersOptions{}); !errors.Is(err, ErrUpstream) || !near(took, 1100*time.Millisecond) || p.sends.Load() != 1 {
				t.Errorf("%v after %v, %d sends", err, took, p.sends.Load())
			}
		})
	})
}

// The deadline runs from the admission: a job that waited for a worker has the rest of it, and one with no rest is answered without work.
func TestDeadlineRunsInTheQueue(t *testing.T) {
	slow := &fake{providers: hangs}
	bubble(t, all(withPeers(slow), setting(func(c *Config) { c.Resolver.Workers = 1 })), func(r *rig) {
		type end struct {
			took time.Duration
			err  error
		}
		ends := make(chan end, 2)
		for i := range 2 {
			go func() {
				_, took, err := r.ask(digest("%d", i), ProvidersOptions{})
				ends <- end{took, err}
			}()
		}
		for range 2 {
			if e := <-ends; !errors.Is(e.err, ErrTimeout) || !near(e.took, 1200*time.Millisecond) {
				t.Errorf("%v after %v", e.err, e.took)
			}
		}
		if slow.sends.Load() != 1 || r.count("io_timeouts_total", "op", "queue") != 1 || r.count("io_timeouts_total", "op", "dht") != 1 || r.count("resolve_deadline_hit") != 2 {
			t.Errorf("%d sends, %v, %v, %v", slow.sends.Load(), r.count("io_timeouts_total", "op", "queue"), r.count("io_timeouts_total", "op", "dht"), r.count("resolve_deadline_hit"))
		}
	})
}

// A thousand callers who miss one key are one flight, one job and at most five sends; the next one hits.
func TestStampede(t *testing.T) {
	var peers []*fake
	for range 6 {
		peers = append(peers, &fake{providers: knows(seedKey(9), 200*time.Millisecond)})
	}
	bubble(t, withPeers(peers...), func(r *rig) {
		const callers = 1000
		ends := make(chan error, callers)
		for range callers {
			go func() {
				_, _, err := r.ask(digest("content"), ProvidersOptions{})
				ends <- err
			}()
		}
		for range callers {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		sends := int64(0)
		for _, p := range peers {
			sends += p.sends.Load()
		}
		if sends > 5 || r.count("index_flight_joined_total") != callers-1 || r.count("index_dht_lookup_ms") != 1 {
			t.Errorf("%d sends, %v joined, %v lookups", sends, r.count("index_flight_joined_total"), r.count("index_dht_lookup_ms"))
		}
		r.e.cache.Settle()
		if set, took, err := r.ask(digest("content"), ProvidersOptions{}); err != nil || set.Source != SourceCache || took != 0 {
			t.Errorf("%+v after %v, %v", set, took, err)
		}
	})
}

// A peer that dies amid a lookup costs the hedge time and the second wave's answer, whatever the dead one does; its call is joined.
func TestPeerDiesAmidALookup(t *testing.T) {
	bubble(t, all(withPeers(
		&fake{region: "a-b", providers: func(ctx context.Context, _ b3.Digest) ([]Provider, error) {
			<-ctx.Done()
			time.Sleep(400 * time.Millisecond) // deaf for a while
			return nil, context.Cause(ctx)
		}},
		&fake{region: "a-c", providers: knows(seedKey(9), good)},
	), setting(func(c *Config) { c.DHT.Alpha = 1 })), func(r *rig) {
		set, took, err := r.ask(digest("content"), ProvidersOptions{Region: "a-b"})
		if err != nil || took > 150*time.Millisecond+good+20*time.Millisecond || len(set.Providers) != 1 {
			t.Errorf("%+v after %v, %v", set, took, err)
		}
		time.Sleep(time.Second)
		if p := r.peers[0].(*fake); p.running.Load() != 0 || r.count("dht_errors_total", "kind", "overtaken") != 1 || r.count("dht_hedged_requests_total", "result", "win") != 1 {
			t.Errorf("%d run, overtaken %v", p.running.Load(), r.count("dht_errors_total", "kind", "overtaken"))
		}
	})
}

// The waves under every mix of answers and times: one answer, never after the deadline, no call left behind, at most alpha+beta sends and
// three retries, and a good answer if some peer that is asked has one in time.
func TestWavesUnderEverySchedule(t *testing.T) {
	times := []time.Duration{0, 10, 140, 149, 150, 151, 160, 310, 1190, 1199, 1200, 1201, 2000}
	rapid.Check(t, func(rt *rapid.T) {
		alpha, beta, count := rapid.IntRange(1, 3).Draw(rt, "alpha"), rapid.IntRange(0, 2).Draw(rt, "beta"), rapid.IntRange(1, 6).Draw(rt, "peers")
		leaves := rapid.SampledFrom([]time.Duration{0, 75, 150, 500, 1200}).Draw(rt, "leaves") // when the caller gives up; 0: never
		var peers []*fake
		for i := range count {
			after := rapid.SampledFrom(times).Draw(rt, fmt.Sprint("time", i)) * time.Millisecond
			switch rapid.IntRange(0, 4).Draw(rt, fmt.Sprint("does", i)) {
			case 0:
				peers = append(peers, &fake{providers: knows(seedKey(9), after)})
			case 1:
				peers = append(peers, &fake{providers: fails(nil, after)})
			case 2:
				peers = append(peers, &fake{providers: fails(ErrTransient, after)})
			case 3:
				peers = append(peers, &fake{providers: fails(ErrInvalid, after)})
			default:
				peers = append(peers, &fake{providers: hangs})
			}
		}
		bubble(t, all(withPeers(peers...), setting(func(c *Config) { c.DHT.Alpha, c.DHT.Beta, c.Resolver.Workers = alpha, beta, 2 })), func(r *rig) {
			ctx := r.ctx()
			if leaves > 0 {
				c, cancel := context.WithTimeout(ctx, leaves*time.Millisecond)
				defer cancel()
				ctx = c
			}
			begun := time.Now()
			_, err := r.e.Providers(ctx, digest("content"), ProvidersOptions{})
			if took := time.Since(begun); took > 1201*time.Millisecond {
				rt.Errorf("%v after %v", err, took)
			}
			known := false
			for _, want := range []error{nil, ErrNotFound, ErrUpstream, ErrTimeout, context.DeadlineExceeded} {
				known = known || errors.Is(err, want)
			}
			if !known {
				rt.Errorf("answered %v", err)
			}
			time.Sleep(2 * time.Second)
			sends := int64(0)
			for _, p := range peers {
				if sends += p.sends.Load(); p.running.Load() != 0 {
					rt.Errorf("%s is still asked", p.target)
				}
			}
			if sends > int64(alpha+beta+maxRetries) {
				rt.Errorf("%d sends", sends)
			}
			if r.e.flight.Len() != 0 {
				rt.Errorf("%d flights", r.e.flight.Len())
			}
		})
	})
}

// With one of three peers stopped, and with 5 % of all calls slow, the hedge keeps the 99th percentile to a third.
func TestHedgeCutsTheTail(t *testing.T) {
	p99 := func(t *testing.T, beta int, call func(i int) func(context.Context, b3.Digest) ([]Provider, error)) (out time.Duration) {
		peers := []*fake{{}, {}, {}}
		for i, p := range peers {
			p.providers = call(i)
		}
		bubble(t, all(withPeers(peers...), setting(func(c *Config) {
			c.DHT.Alpha, c.DHT.Beta, c.Stale = 1, beta, false
			c.Breaker.MinSamples = 100_000 // the hedge alone
		})), func(r *rig) {
			var took []time.Duration
			lookups := 1000
			if testing.Short() {
				lookups = 200
			}
			for i := range lookups {
				_, d, _ := r.ask(digest("%d", i), ProvidersOptions{})
				took = append(took, d)
			}
			slices.Sort(took)
			out = took[len(took)*99/100]
		})
		return out
	}
	for _, tt := range []struct {
		name string
		call func(i int) func(context.Context, b3.Digest) ([]Provider, error)
	}{
		{"one of three is stopped", func(i int) func(context.Context, b3.Digest) ([]Provider, error) {
			if i == 0 {
				return hangs
			}
			return knows(seedKey(9), good)
		}},
		{"5 % of the calls take a second", func(i int) func(context.Context, b3.Digest) ([]Provider, error) {
			return func(ctx context.Context, cid b3.Digest) ([]Provider, error) {
				d := good
				if drawn := digest("%d %s", i, cid); binary.BigEndian.Uint32(drawn[:])%100 < 5 {
					d = time.Second
				}
				return knows(seedKey(9), d)(ctx, cid)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			hedged, plain := p99(t, 2, tt.call), p99(t, 0, tt.call)
			t.Logf("p99 hedged %v, unhedged %v, ratio %.2f", hedged, plain, float64(hedged)/float64(plain))
			if float64(hedged) > 0.3*float64(plain) {
				t.Errorf("p99 hedged %v, unhedged %v", hedged, plain)
			}
		})
	}
}

// A stop answers every lookup under way and every one that waits.
func TestStopAmidLookups(t *testing.T) {
	bubble(t, all(withPeers(&fake{providers: hangs}), setting(func(c *Config) { c.Resolver.Workers = 2; c.DHT.DeadlineMS = 5000 })), func(r *rig) {
		ends := make(chan error, 20)
		for i := range cap(ends) {
			go func() {
				_, _, err := r.ask(digest("%d", i), ProvidersOptions{})
				ends <- err
			}()
		}
		synctest.Wait()
		r.catalog.CloseFedBy(service, flow.HTTP)
		r.sup.CancelBackground()
		if aborted := r.sup.Drain(service, 100*time.Millisecond, time.Second); aborted == 0 {
			t.Error("nothing was aborted")
		}
		for range cap(ends) {
			if err := <-ends; !errors.Is(err, flow.ErrCanceled) {
				t.Errorf("answered %v", err)
			}
		}
		if _, _, err := r.ask(digest("late"), ProvidersOptions{}); !errors.Is(err, flow.ErrClosed) {
			t.Errorf("late: %v", err)
		}
		if r.count("tasks_canceled_total", "kind", taskWorker) < 20 || r.count("tasks_aborted_total", "kind", taskWorker) != 2 || r.count("tasks_spawned_total", "kind", taskWorker) != 2 {
			t.Errorf("%v counted as canceled, %v aborted", r.count("tasks_canceled_total", "kind", taskWorker), r.count("tasks_aborted_total", "kind", taskWorker))
		}
	})
}
