package index_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
)

// maxRetries is the number of retries of one lookup.
const maxRetries = 3

// bubble runs a rig in virtual time.
func bubble(t *testing.T, change func(*rig), body func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, change).start()
		body(r)
		r.stop()
	})
}

// ask looks cid up and measures the time.
func (r *rig) ask(cid b3.Digest, o name.ProvidersOptions) (name.ProviderSet, time.Duration, error) {
	begun := time.Now()
	set, err := r.e.Providers(r.ctx(), cid, o)
	return set, time.Since(begun), err
}

func setting(f func(*index.Config)) func(*rig) { return func(r *rig) { f(&r.cfg) } }

// near reports whether two times differ by at most a millisecond.
func near(got, want time.Duration) bool {
	return got >= want-time.Millisecond && got <= want+time.Millisecond
}

const good = 30 * time.Millisecond // latency of a good peer

// The outcome and the time of lookups: α peers at once, β others after the hedge time or as soon as
// all have failed, and the deadline.
func TestLookup(t *testing.T) {
	type behaviour = func(context.Context, b3.Digest) ([]name.Provider, error)
	yes := func(d time.Duration) behaviour { return knows(seedKey(9), d) }
	empty := func(d time.Duration) behaviour {
		return func(ctx context.Context, _ b3.Digest) ([]name.Provider, error) { return nil, wait(ctx, d) }
	}
	for _, tt := range []struct {
		name        string
		alpha, beta int
		peers       []behaviour // those asked first come first
		want        error
		took        time.Duration
		sends       int64 // of all peers; 0: not looked at
	}{
		{"all of alpha have answered", 3, 2, []behaviour{yes(good), yes(2 * good), empty(3 * good), yes(0), yes(0)}, nil, 3 * good, 3},
		{"one of alpha has answered at the hedge time", 3, 2, []behaviour{yes(good), yes(2 * good), hangs, yes(0), yes(0)}, nil, 150 * time.Millisecond, 3},
		{"a failure is not waited for", 3, 2, []behaviour{yes(good), fails(name.ErrInvalid, 2*good), fails(name.ErrTransient, 0), hangs, hangs}, nil, 2 * good, 0},
		{"beta wins", 1, 2, []behaviour{hangs, yes(2 * good), yes(good)}, nil, 150*time.Millisecond + good, 3},
		{"alpha wins late", 1, 1, []behaviour{yes(160 * time.Millisecond), yes(good)}, nil, 160 * time.Millisecond, 2},
		{"all alpha hang", 3, 2, []behaviour{hangs, hangs, hangs, yes(good), yes(good)}, nil, 150*time.Millisecond + good, 5},
		{"no beta is left", 3, 2, []behaviour{hangs, hangs, hangs}, name.ErrTimeout, 1200 * time.Millisecond, 3},
		{"nobody answers", 3, 2, []behaviour{hangs, hangs, hangs, hangs, hangs}, name.ErrTimeout, 1200 * time.Millisecond, 5},
		{"alpha fails, beta is asked at once", 1, 1, []behaviour{fails(name.ErrInvalid, good), yes(good)}, nil, 2 * good, 2},
		{"nobody knows", 3, 2, []behaviour{empty(good), empty(good), empty(2 * good), yes(0), yes(0)}, name.ErrNotFound, 2 * good, 3},
		{"nobody knows, one hangs", 3, 2, []behaviour{empty(good), empty(good), hangs}, name.ErrNotFound, 150 * time.Millisecond, 3},
		{"beta knows nothing, alpha hangs", 1, 2, []behaviour{hangs, empty(good), empty(good)}, name.ErrNotFound, 150*time.Millisecond + good, 3},
		{"all fail for good", 3, 2, []behaviour{fails(name.ErrInvalid, good), fails(name.ErrInvalid, good), fails(name.ErrInvalid, good)}, name.ErrUpstream, good, 3},
		{"beta knows, alpha is half empty", 2, 1, []behaviour{empty(good), hangs, yes(good)}, nil, 150*time.Millisecond + good, 3},
		{"beta knows after one that does not", 3, 2, []behaviour{empty(good), empty(good), hangs, empty(good), yes(2 * good)}, nil, 150*time.Millisecond + 2*good, 5},
		{"beta is off", 1, 0, []behaviour{hangs, yes(0)}, name.ErrTimeout, 1200 * time.Millisecond, 1},
		{"one peer of five", 3, 2, []behaviour{yes(good)}, nil, good, 1},
		{"a lie is a failure", 1, 1, []behaviour{
			func(context.Context, b3.Digest) ([]name.Provider, error) {
				return []name.Provider{{Record: signed(seedKey(3), digest("other"), "", time.Now(), time.Hour), Verified: true}}, nil
			}, yes(good),
		}, nil, good, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var peers []*fake
			for _, b := range tt.peers {
				peers = append(peers, &fake{providers: b})
			}
			bubble(
				t,
				all(withPeers(peers...), setting(func(c *index.Config) { c.DHT.Alpha, c.DHT.Beta = tt.alpha, tt.beta })),
				func(r *rig) {
					set, took, err := r.ask(r.orderedCID(peers), name.ProvidersOptions{})
					if !errors.Is(err, tt.want) ||
						tt.want == nil && (err != nil || set.Source != name.SourcePeer || len(set.Providers) != 1) ||
						!near(took, tt.took) {
						t.Errorf("%+v after %v, %v; want %v after %v", set, took, err, tt.want, tt.took)
					}
					synctest.Wait()
					sends := int64(0)
					for _, p := range peers {
						if sends += p.sends.Load(); p.running.Load() != 0 {
							t.Errorf("%s is still asked", p.target)
						}
					}
					if sends != tt.sends && tt.sends > 0 {
						t.Errorf("%d sends, want %d", sends, tt.sends)
					}
					if r.count("dht_legs_inflight") != 0 || r.count("index_dht_lookup_ms") != 1 {
						t.Errorf("legs %v, lookups %v", r.count("dht_legs_inflight"), r.count("index_dht_lookup_ms"))
					}
				},
			)
		})
	}
}

// orderedCID returns an id for which the peers are asked in the given order.
func (r *rig) orderedCID(order []*fake) b3.Digest {
	for i := range 100_000 {
		cid := digest("%d", i)
		if slices.EqualFunc(r.e.Set().OrderFor(name.ProvidersKey(cid), "", nil), order,
			func(a *peers.Peer, b *fake) bool { return a.Peer == name.Peer(b) }) {
			return cid
		}
	}
	r.t.Fatal("no id orders the peers so")
	return b3.Digest{}
}

// A peer with a transient failure is asked again after 50 to 100 ms, at most three times per
// lookup, and not close to the deadline.
func TestRetries(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		sends int64
	}{{"transient", name.ErrTransient, 4}, {"no route", name.ErrNoRoute, 4}, {"invalid", name.ErrInvalid, 1}, {"timeout", name.ErrPeerTimeout, 1}} {
		t.Run(tt.name, func(t *testing.T) {
			p := &fake{providers: fails(tt.err, 0)}
			bubble(t, withPeers(p), func(r *rig) {
				_, took, err := r.ask(digest("content"), name.ProvidersOptions{})
				pauses := time.Duration(tt.sends - 1)
				if !errors.Is(err, name.ErrUpstream) || took < 50*time.Millisecond*pauses ||
					took > 100*time.Millisecond*pauses {
					t.Errorf("%v after %v", err, took)
				}
				if p.sends.Load() != tt.sends || r.count("backoff_retries_total", "op", "dht") != float64(tt.sends-1) {
					t.Errorf("%d sends, %v retries counted", p.sends.Load(),
						r.count("backoff_retries_total", "op", "dht"))
				}
			})
		})
	}
	t.Run("three over all legs", func(t *testing.T) {
		var peers []*fake
		for range 5 {
			peers = append(peers, &fake{providers: fails(name.ErrTransient, 0)})
		}
		bubble(t, withPeers(peers...), func(r *rig) {
			if _, _, err := r.ask(digest("content"), name.ProvidersOptions{}); !errors.Is(err, name.ErrUpstream) {
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
		p := &fake{providers: fails(name.ErrTransient, 1100*time.Millisecond)}
		bubble(t, withPeers(p), func(r *rig) {
			if _, took, err := r.ask(
				digest("content"), name.ProvidersOptions{},
			); !errors.Is(err, name.ErrUpstream) || !near(took, 1100*time.Millisecond) ||
				p.sends.Load() != 1 {
				t.Errorf("%v after %v, %d sends", err, took, p.sends.Load())
			}
		})
	})
}

// The deadline counts from the admission: a job that waited for a worker has only the remaining
// time. A job without time left is refused as busy, since it was not begun, and so are the callers
// that joined it.
func TestDeadlineRunsInTheQueue(t *testing.T) {
	slow := &fake{providers: hangs}
	bubble(t, all(withPeers(slow), setting(func(c *index.Config) { c.Resolver.Workers = 1 })), func(r *rig) {
		type end struct {
			took time.Duration
			err  error
		}
		ends := make(chan end, 3)
		for i := range 3 {
			go func() {
				_, took, err := r.ask(digest("%d", min(i, 1)), name.ProvidersOptions{})
				ends <- end{took, err}
			}()
			synctest.Wait()
		}
		late, busy := 0, 0
		for range 3 {
			e := <-ends
			if late, busy = late+tally(e.err, name.ErrTimeout), busy+tally(e.err, flow.ErrBusy); !near(e.took,
				1200*time.Millisecond) {
				t.Errorf("%v after %v", e.err, e.took)
			}
		}
		if late != 1 || busy != 2 || slow.sends.Load() != 1 || r.count("io_timeouts_total", "op", "dht") != 1 ||
			r.count("resolve_deadline_hit") != 1 ||
			r.count("queue_dropped_total", "service", service, "queue", "work") != 1 {
			t.Errorf("%d late, %d busy; %d sends, %v late calls, %v deadlines", late, busy, slow.sends.Load(),
				r.count("io_timeouts_total", "op", "dht"), r.count("resolve_deadline_hit"))
		}
	})
}

// tally returns 1 if err is target.
func tally(err, target error) int {
	if errors.Is(err, target) {
		return 1
	}
	return 0
}

// A thousand callers that miss one key share one flight, one job and at most five calls. The next
// caller hits.
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
				_, _, err := r.ask(digest("content"), name.ProvidersOptions{})
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
			t.Errorf("%d sends, %v joined, %v lookups", sends, r.count("index_flight_joined_total"),
				r.count("index_dht_lookup_ms"))
		}
		r.e.Settle()
		if set, took, err := r.ask(digest("content"), name.ProvidersOptions{}); err != nil || set.Source != name.SourceCache ||
			took != 0 {
			t.Errorf("%+v after %v, %v", set, took, err)
		}
	})
}
