package index_test

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
	"ronbox/engines/index"
	"ronbox/engines/index/name"
)

// A peer that dies during a lookup costs the hedge time and the answer of the second wave. Its call
// is joined.
func TestPeerDiesAmidALookup(t *testing.T) {
	bubble(t, all(withPeers(
		&fake{region: "a-b", providers: func(ctx context.Context, _ b3.Digest) ([]name.Provider, error) {
			<-ctx.Done()
			time.Sleep(400 * time.Millisecond) // deaf for a while
			return nil, context.Cause(ctx)
		}},
		&fake{region: "a-c", providers: knows(seedKey(9), good)},
	), setting(func(c *index.Config) { c.DHT.Alpha = 1 })), func(r *rig) {
		set, took, err := r.ask(digest("content"), name.ProvidersOptions{Region: "a-b"})
		if err != nil || took > 150*time.Millisecond+good+20*time.Millisecond || len(set.Providers) != 1 {
			t.Errorf("%+v after %v, %v", set, took, err)
		}
		time.Sleep(time.Second)
		if p := r.peers[0].(*fake); p.running.Load() != 0 || r.count("dht_errors_total", "kind", "overtaken") != 1 ||
			r.count("dht_hedged_requests_total", "result", "win") != 1 {
			t.Errorf("%d run, overtaken %v", p.running.Load(), r.count("dht_errors_total", "kind", "overtaken"))
		}
	})
}

// Under every mix of answers and times there is one answer, never after the deadline; no call is
// left running; there are at most alpha+beta calls and three retries; and the answer is good if an
// asked peer has a good answer in time.
func TestWavesUnderEverySchedule(t *testing.T) {
	times := []time.Duration{0, 10, 140, 149, 150, 151, 160, 310, 1190, 1199, 1200, 1201, 2000}
	rapid.Check(t, func(rt *rapid.T) {
		alpha, beta, count := rapid.IntRange(1, 3).
			Draw(rt, "alpha"),
			rapid.IntRange(0, 2).
				Draw(rt, "beta"),
			rapid.IntRange(1, 6).
				Draw(rt, "peers")
		// when the caller gives up; 0: never
		leaves := rapid.SampledFrom([]time.Duration{0, 75, 150, 500, 1200}).Draw(rt, "leaves")
		var peers []*fake
		for i := range count {
			after := rapid.SampledFrom(times).Draw(rt, fmt.Sprint("time", i)) * time.Millisecond
			switch rapid.IntRange(0, 4).Draw(rt, fmt.Sprint("does", i)) {
			case 0:
				peers = append(peers, &fake{providers: knows(seedKey(9), after)})
			case 1:
				peers = append(peers, &fake{providers: fails(nil, after)})
			case 2:
				peers = append(peers, &fake{providers: fails(name.ErrTransient, after)})
			case 3:
				peers = append(peers, &fake{providers: fails(name.ErrInvalid, after)})
			default:
				peers = append(peers, &fake{providers: hangs})
			}
		}
		bubble(
			t,
			all(
				withPeers(peers...),
				setting(func(c *index.Config) { c.DHT.Alpha, c.DHT.Beta, c.Resolver.Workers = alpha, beta, 2 }),
			),
			func(r *rig) {
				ctx := r.ctx()
				if leaves > 0 {
					c, cancel := context.WithTimeout(ctx, leaves*time.Millisecond)
					defer cancel()
					ctx = c
				}
				begun := time.Now()
				_, err := r.e.Providers(ctx, digest("content"), name.ProvidersOptions{})
				if took := time.Since(begun); took > 1201*time.Millisecond {
					rt.Errorf("%v after %v", err, took)
				}
				known := false
				for _, want := range []error{nil, name.ErrNotFound, name.ErrUpstream, name.ErrTimeout, context.DeadlineExceeded} {
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
				if r.e.Flights() != 0 {
					rt.Errorf("%d flights", r.e.Flights())
				}
			},
		)
	})
}

// With one of three peers stopped, or with 5 % of all calls slow, the hedge cuts the 99th
// percentile to a third.
func TestHedgeCutsTheTail(t *testing.T) {
	p99 := func(t *testing.T, beta int, call func(i int) func(context.Context, b3.Digest) ([]name.Provider, error)) (out time.Duration) {
		peers := []*fake{{}, {}, {}}
		for i, p := range peers {
			p.providers = call(i)
		}
		bubble(t, all(withPeers(peers...), setting(func(c *index.Config) {
			c.DHT.Alpha, c.DHT.Beta, c.Stale = 1, beta, false
			c.Breaker.MinSamples = 100_000 // the hedge alone
		})), func(r *rig) {
			var took []time.Duration
			lookups := 1000
			if testing.Short() {
				lookups = 200
			}
			for i := range lookups {
				_, d, _ := r.ask(digest("%d", i), name.ProvidersOptions{})
				took = append(took, d)
			}
			slices.Sort(took)
			out = took[len(took)*99/100]
		})
		return out
	}
	for _, tt := range []struct {
		name string
		call func(i int) func(context.Context, b3.Digest) ([]name.Provider, error)
	}{
		{"one of three is stopped", func(i int) func(context.Context, b3.Digest) ([]name.Provider, error) {
			if i == 0 {
				return hangs
			}
			return knows(seedKey(9), good)
		}},
		{"5 % of the calls take a second", func(i int) func(context.Context, b3.Digest) ([]name.Provider, error) {
			return func(ctx context.Context, cid b3.Digest) ([]name.Provider, error) {
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

// A stop answers every running and every queued lookup.
func TestStopAmidLookups(t *testing.T) {
	bubble(
		t,
		all(
			withPeers(&fake{providers: hangs}),
			setting(func(c *index.Config) { c.Resolver.Workers = 2; c.DHT.DeadlineMS = 5000 }),
		),
		func(r *rig) {
			ends := make(chan error, 20)
			for i := range cap(ends) {
				go func() {
					_, _, err := r.ask(digest("%d", i), name.ProvidersOptions{})
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
			if _, _, err := r.ask(digest("late"), name.ProvidersOptions{}); !errors.Is(err, flow.ErrClosed) {
				t.Errorf("late: %v", err)
			}
			if r.count("tasks_canceled_total", "kind", taskWorker) < 20 ||
				r.count("tasks_aborted_total", "kind", taskWorker) != 2 ||
				r.count("tasks_spawned_total", "kind", taskWorker) != 2 {
				t.Errorf("%v counted as canceled, %v aborted", r.count("tasks_canceled_total", "kind", taskWorker),
					r.count("tasks_aborted_total", "kind", taskWorker))
			}
		},
	)
}
