package index_test

import (
	"errors"
	"testing"
	"time"

	"ronbox/engines/index"
	"ronbox/engines/index/name"
)

// The time of every lookup is counted. A read of the cache is a hit or a miss. The file is read
// without a place in the queue, so a miss reads the cache once.
func TestLookupsAreCounted(t *testing.T) {
	bubble(t, nil, func(r *rig) {
		r.put("name:docs.example", digest("1"))
		for i, step := range []struct {
			key                   string
			known                 bool
			latency, hits, misses float64
		}{
			{"name:docs.example", true, 1, 0, 1},
			{"name:docs.example", true, 2, 1, 1},
			{"name:none.example", false, 3, 1, 2},
			{"name:none.example", false, 4, 2, 2},
		} {
			if _, err := r.e.Resolve(r.ctx(), key(step.key), name.ResolveOptions{}); (err == nil) != step.known ||
				err != nil && !errors.Is(err, name.ErrNotFound) {
				t.Errorf("%d: %v", i, err)
			}
			r.e.Settle()
			for name, want := range map[string]float64{
				"resolve_latency_seconds": step.latency, "index_cache_hits_total": step.hits, "index_cache_misses_total": step.misses,
			} {
				if got := r.count(name); got != want {
					t.Errorf("%d: %s is %v, want %v", i, name, got, want)
				}
			}
		}
		if _, _, err := r.ask(digest("nobody"), name.ProvidersOptions{}); !errors.Is(err, name.ErrNotFound) ||
			r.count("resolve_latency_seconds") != 5 {
			t.Errorf("%v, %v times", err, r.count("resolve_latency_seconds"))
		}
	})
}

// A lookup counts as hedged only if the second wave has asked a peer.
func TestHedgesAreCountedWhereThereWasARace(t *testing.T) {
	for _, tt := range []struct {
		doc   string
		peers int
		beta  int
		lost  float64
	}{{"nobody is left", 1, 2, 0}, {"no second wave", 3, 0, 0}, {"a race", 3, 2, 1}} {
		var peers []*fake
		for range tt.peers {
			peers = append(peers, &fake{providers: knows(seedKey(9), 200*time.Millisecond)})
		}
		bubble(
			t,
			all(withPeers(peers...), setting(func(c *index.Config) { c.DHT.Alpha, c.DHT.Beta = 1, tt.beta })),
			func(r *rig) {
				if _, took, err := r.ask(digest("content"), name.ProvidersOptions{}); err != nil ||
					!near(took, 200*time.Millisecond) {
					t.Errorf("%s: %v after %v", tt.doc, err, took)
				}
				if lost, won := r.count("dht_hedged_requests_total", "result", "lose"), r.count(
					"dht_hedged_requests_total", "result", "win"); lost != tt.lost ||
					won != 0 {
					t.Errorf("%s: %v lost, %v won", tt.doc, lost, won)
				}
			},
		)
	}
}
