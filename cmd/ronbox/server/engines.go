package server

import (
	"context"
	"time"

	"ronbox/appliance/flow"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/wiring"
)

// startEngines starts the tasks of every engine.
func (n *Node) startEngines() {
	for _, r := range n.services.Recovered() {
		n.sup.Start(n.countLives(r.Tasks()...)...)
	}
}

// ensureAgain is ensureEngines after a reload, or when the file accepts writes again. A failure is
// logged.
func (n *Node) ensureAgain(ctx context.Context) {
	if n.standsBy() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	if err := n.services.Ensure(ctx); err != nil {
		n.log.Warn("not_ensured", "reason", err.Error(), "next", "retried every "+wiring.RetryEvery.String())
	}
}

// reloadEngines applies a new configuration to every engine. The engines of a member that stands by
// have no state, and get it when they recover.
func (n *Node) reloadEngines(c *config.Config) {
	if n.standsBy() {
		return
	}
	for _, r := range n.services.Recovered() {
		r.Reload(c)
	}
}

// drainEngines lets the services finish their accepted jobs in parallel, each within its own
// deadline, until ctx ends. It returns the number of tasks that had to be aborted.
func (n *Node) drainEngines(ctx context.Context) (aborted int) {
	all, cfg := wiring.All(), n.conf()
	left := make([]int, len(all))
	_ = flow.Fan(ctx, len(all), func(ctx context.Context, leg int) error { // no leg fails
		s := all[leg]
		left[leg] = n.sup.Drain(s.Name, s.DrainWithin(cfg), n.grace())
		if left[leg] == 0 && s.Drained != nil {
			s.Drained(ctx, n.services)
		}
		return nil
	})
	for _, one := range left {
		aborted += one
	}
	return aborted
}

// abortEngines cancels the tasks of every engine in parallel.
func (n *Node) abortEngines(ctx context.Context, grace time.Duration) {
	_ = flow.Fan(ctx, len(n.services.Engines()), func(_ context.Context, leg int) error { // no leg fails
		n.sup.Drain(n.services.Engines()[leg].Name, 0, grace)
		return nil
	})
}

// describeServices registers the metric of the services that run.
func (n *Node) describeServices() {
	for _, s := range wiring.All() {
		on := map[bool]float64{true: 1}[s.IsOn(n.boot)]
		n.metrics.Gauge("service_on", s.Name, func() float64 { return on })
	}
}
