package index

import (
	"ronbox/appliance/obs"
	"ronbox/engines/index/name"
)

// metrics holds the series of the index. All are resolved at once, so that they show from the
// start.
type metrics struct {
	latency     func(float64)
	deadlineHit func(int)
	timeouts    map[string]func(int) // by op
	canceled    func(int)
	evicted     func(int)
	joined      func(int)
	stale       func(int)
	background  func(int)
	dropped     func(int)            // lookups refused by work_tx
	events      map[string]func(int) // by kind
}

// latencySeconds are the histogram buckets from an answer out of memory to the longest deadline.
var latencySeconds = [...]float64{
	.000005, .00005, .0005, .001, .005, .01, .025, .05, .1, .15, .2, .3, .5, 1, 1.25, 2.5, 5,
}

// lookupMillis are the histogram buckets of a lookup among peers. They include the default hedge
// time and deadline.
var lookupMillis = [...]float64{1, 2, 5, 10, 20, 40, 80, 120, 150, 170, 200, 300, 500, 800, 1200, 1250, 2500, 5000}

func indexFamilies() []obs.Family {
	return []obs.Family{
		{
			Name:    "resolve_latency_seconds",
			Type:    obs.Histogram,
			Buckets: latencySeconds[:],
			Help:    "Time to answer a lookup of a key or a content id, including cache hits.",
		},
		{
			Name:    "index_dht_lookup_ms",
			Type:    obs.Histogram,
			Buckets: lookupMillis[:],
			Help:    "Time until a lookup among the peers was settled, in milliseconds.",
		},
		{
			Name: "resolve_deadline_hit",
			Type: obs.Counter,
			Help: "Lookups whose deadline passed, including those that were then answered stale.",
		},
		{
			Name:   "breaker_state",
			Type:   obs.Gauge,
			Labels: []string{"target", "state"},
			Help:   "1 for the current state of the breaker of a peer.",
		},
		{
			Name:   "breaker_open_total",
			Type:   obs.Counter,
			Labels: []string{"target"},
			Help:   "Calls that were not made because the breaker of the peer was open.",
		},
		{
			Name: "index_cache_hits_total",
			Type: obs.Counter,
			Help: "Reads of the cache that found a fresh answer.",
		},
		{
			Name: "index_cache_misses_total",
			Type: obs.Counter,
			Help: "Reads of the cache that found no fresh answer.",
		},
		{Name: "index_cache_entries", Type: obs.Gauge, Help: "Answers that the cache janitor watches."},
		{
			Name: "index_cache_evicted_total",
			Type: obs.Counter,
			Help: "Expired answers that the cache janitor has evicted.",
		},
		{Name: "index_flight_joined_total", Type: obs.Counter, Help: "Callers that joined a running lookup."},
		{Name: "index_stale_served_total", Type: obs.Counter, Help: "Stale answers served while peers fail."},
		{
			Name: "index_background_total",
			Type: obs.Counter,
			Help: "Jobs of bg_tx: warm-up, reindexing and probes of peers.",
		},
		{
			Name: "index_integrity_fail_total",
			Type: obs.Counter,
			Help: "Records of peers that were refused: forged, expired, malformed, or older than an earlier record.",
		},
		{
			Name: "index_name_conflicts_total",
			Type: obs.Counter,
			Help: "Names for which two trusted keys sign different manifests, when first seen.",
		},
		{Name: "index_rows_corrupt_total", Type: obs.Counter, Help: "Damaged rows met in the file, each counted once."},
		{
			Name:   "dht_hedged_requests_total",
			Type:   obs.Counter,
			Labels: []string{"result"},
			Help:   "Lookups with a second wave, by whether it won.",
		},
		{Name: "dht_errors_total", Type: obs.Counter, Labels: []string{"kind"}, Help: "Calls of peers that failed."},
		{Name: "dht_legs_inflight", Type: obs.Gauge, Help: "Concurrent calls of peers."},
		{
			Name:   "index_events_total",
			Type:   obs.Counter,
			Labels: []string{"kind"},
			Help:   "Changes and failed lookups, as published by events_tx.",
		},
	}
}

func newMetrics(reg *obs.Metrics, e *Engine) *metrics {
	reg.Declare(indexFamilies()...)
	m := &metrics{
		latency:     reg.HistogramOnUse("resolve_latency_seconds", service),
		deadlineHit: reg.Counter("resolve_deadline_hit", service),
		timeouts:    series(reg, "io_timeouts_total", "op", "read", "dht"),
		canceled:    reg.Counter("tasks_canceled_total", service, "kind", taskWorker),
		evicted:     reg.Counter("index_cache_evicted_total", service),
		joined:      reg.Counter("index_flight_joined_total", service),
		stale:       reg.Counter("index_stale_served_total", service),
		background:  reg.Counter("index_background_total", service),
		dropped:     reg.Counter("queue_dropped_total", service, "queue", "work"),
		events: series(reg, "index_events_total", "kind",
			name.EventPut, name.EventDeleted, name.EventAnnounced,
			name.EventWithdrawn, name.EventExpired, name.EventFailed),
	}
	reg.Gauge("index_cache_entries", service, func() float64 { return float64(e.Meta().Tracked) })
	return m
}

// series returns one counter per value of a label.
func series(reg *obs.Metrics, family, label string, values ...string) map[string]func(int) {
	out := make(map[string]func(int), len(values))
	for _, v := range values {
		out[v] = reg.Counter(family, service, label, v)
	}
	return out
}
