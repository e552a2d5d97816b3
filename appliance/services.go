package appliance

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/engines/registry"
	"ronbox/httpapi"
)

// Services of the engines, as metrics, tasks, probes and limits name them.
const (
	serviceRegistry = "registry"
)

// served is one engine's service as the lifecycle sees it.
type served struct {
	name   string
	tasks  []flow.Task
	within func(*config.Config) time.Duration // what its accepted work may take when the node drains; nil: it has none
}

// served lists the services that run here, in the order in which their tasks are started.
func (n *Node) served() []served {
	var out []served
	if n.registry != nil {
		out = append(out, served{serviceRegistry, n.registry.Tasks(), func(c *config.Config) time.Duration {
			return c.Registry.DrainDeadline.D()
		}})
	}
	return out
}

// assembleEngines builds what is enabled. The buckets of what is not stay declared, so that the file keeps them.
func (n *Node) assembleEngines(cfg *config.Config, log hclog.Logger) {
	if cfg.Registry.Enabled {
		n.registry = registry.New(cfg.Registry, registry.Deps{
			Catalog: n.catalog, Store: n.store, Metrics: n.metrics, Log: log, Board: n.board, Now: n.now, Progress: n.bootProgress,
		})
	} else {
		n.store.Declare(serviceRegistry, registry.Buckets()...)
	}
}

// serverDeps are the server's neighbours. What is off is nil to it, and has no routes.
func (n *Node) serverDeps(log hclog.Logger) httpapi.Deps {
	d := httpapi.Deps{
		Catalog: n.catalog, Metrics: n.metrics, Log: log, Board: n.board, Auth: n.auth, Node: n, Lifecycle: n.cell, Now: n.now,
		Tracer: n.tracer, Inherited: n.opt.inherited, Version: n.build.Version,
	}
	if n.registry != nil {
		d.Registry = n.registry
	}
	return d
}

// registryReads is the rate of reads of the registry, all callers together: they cost a tenth of a write.
const registryReads = 5000

// engineLimits bound what reaches each service.
func engineLimits(cfg *config.Config) map[string]httpapi.Limits {
	rps := cfg.Registry.Limits.RPS
	return map[string]httpapi.Limits{
		serviceRegistry: {RPS: rps, Burst: rps, ReadRPS: registryReads, Inflight: cfg.Registry.Limits.Inflight},
	}
}

// drainDeadline is the longest that any service drains.
func (n *Node) drainDeadline(cfg *config.Config) (most time.Duration) {
	for _, s := range n.served() {
		most = max(most, drainOf(s, cfg))
	}
	return most
}

// startEngines starts the tasks of every service.
func (n *Node) startEngines() {
	for _, s := range n.served() {
		n.sup.Start(n.counted(s.tasks...)...)
	}
}

// recoverEngines brings the state of every service back from the file.
func (n *Node) recoverEngines(ctx context.Context) error {
	if n.registry != nil {
		return n.registry.Recover(ctx)
	}
	return nil
}

// reloadEngines puts new values in force.
func (n *Node) reloadEngines(c *config.Config) {
	if n.registry != nil {
		n.registry.Reload(c.Registry)
	}
}

// closeFed closes what the handlers fed.
func (n *Node) closeFed() {
	n.catalog.CloseFedBy(serviceRegistry, flow.HTTP)
}

// drainEngines lets what the services have accepted finish, side by side, each by its own clock, and tells how many tasks
// had to be aborted.
func (n *Node) drainEngines(ctx context.Context) (aborted int) {
	all := n.served()
	left := make([]int, len(all))
	_ = flow.Fan(ctx, len(all), func(_ context.Context, leg int) error { // no leg fails
		left[leg] = n.sup.Drain(all[leg].name, drainOf(all[leg], n.conf()), n.grace())
		return nil
	})
	for _, one := range left {
		aborted += one
	}
	return aborted
}

// abortEngines cancels what still runs of every service, side by side.
func (n *Node) abortEngines(ctx context.Context, grace time.Duration) {
	all := n.served()
	_ = flow.Fan(ctx, len(all), func(_ context.Context, leg int) error { // no leg fails
		n.sup.Drain(all[leg].name, 0, grace)
		return nil
	})
}

// closeEngines frees what the engines hold. No task or caller of theirs is left.
func (n *Node) closeEngines() {
	if n.registry != nil {
		n.registry.Close()
	}
}

// drainOf is the drain deadline of a service under the node's ceiling.
func drainOf(s served, c *config.Config) time.Duration {
	if s.within == nil {
		return 0
	}
	return min(s.within(c), c.Node.DrainCap.D())
}
