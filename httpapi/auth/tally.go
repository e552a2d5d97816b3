package auth

import (
	"sync"

	"ronbox/appliance/obs"
)

// maxTallied bounds the series of auth_failures_total: seven stages over the scopes of all services, on two surfaces.
const maxTallied = 1024

// tally counts failures. Scopes come from the table of routes; if there were ever more than fit, the rest is one scope, "other".
type tally struct {
	metrics *obs.Metrics
	mu      sync.Mutex
	series  map[failure]func(int) // guarded by mu
}

type failure struct{ service, stage, scope, surface string }

func newTally(m *obs.Metrics) *tally {
	return &tally{metrics: m, series: make(map[failure]func(int))}
}

func (t *tally) count(stage string, r *Request) {
	f := failure{service: r.Service, stage: stage, scope: r.Scope, surface: "tcp"}
	if r.Socket {
		f.surface = "uds"
	}
	t.counter(f)(1)
}

func (t *tally) counter(f failure) func(int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if add, ok := t.series[f]; ok {
		return add
	}
	if len(t.series) >= maxTallied {
		f.service, f.scope = "node", "other"
	}
	add := t.metrics.Counter("auth_failures_total", f.service, "stage", f.stage, "scope", f.scope, "surface", f.surface)
	if len(t.series) < maxTallied {
		t.series[f] = add
	}
	return add
}
