package appliance

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/registry"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
)

// Services of the engines, as metrics, tasks, probes and limits name them.
const (
	serviceRegistry = "registry"
	serviceWallet   = "wallet"
	serviceLedger   = "ledger"
)

// served is one engine's service: its name and its tasks.
type served struct {
	name  string
	tasks []flow.Task
}

// served lists the services that run here, in the order in which their tasks are started.
func (n *Node) served() []served {
	var out []served
	if n.registry != nil {
		out = append(out, served{serviceRegistry, n.registry.Tasks()})
	}
	out = append(out, served{serviceLedger, n.ledger.Tasks()})
	if n.wallet != nil {
		out = append(out, served{serviceWallet, n.wallet.Tasks()})
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
	n.ledger = ledger.New(ledgerConfig(cfg), ledger.Deps{
		Catalog: n.catalog, Store: n.store, Metrics: n.metrics, Log: log, Board: n.board, Now: n.now, Progress: n.bootProgress,
	})
	var money ledger.Client = n.ledger
	if n.opt.money != nil {
		money = n.opt.money(n.ledger)
	}
	if cfg.Wallet.Enabled {
		n.wallet = wallet.New(cfg.Wallet, wallet.Deps{
			Catalog: n.catalog, Ledger: money, Metrics: n.metrics, Log: log, Board: n.board, Now: n.now,
			StallAfter: func() time.Duration { return n.conf().Ledger.StallAfter.D() },
			SafeMode:   n.ledger.SafeMode,
			AuthReady:  n.keys.ready, // PolicyReady is nil: what a caller may do is in its token and in the limits in force, both in memory
		})
	}
}

// ledgerConfig is the ledger's part of a configuration. It keeps keys for as long as the wallet lets them count.
func ledgerConfig(cfg *config.Config) ledger.Config {
	own := cfg.Ledger
	own.KeyTTL = cfg.Wallet.IdempotencyTTL
	return own
}

// workProducers submit what must be answered soon: payments and assets, versions, probes of the store.
func (n *Node) workProducers() []string {
	out := []string{"node.supervisor", "node.reloader", "node.janitor", flow.HTTP} // assets of the configuration, then of callers
	if n.boot.Registry.Enabled {
		out = append(out, "registry.pipeline")
	}
	if n.boot.Wallet.Enabled {
		out = append(out, "wallet.worker", "wallet.watchdog")
	}
	return out
}

// bulkProducers submit what can wait.
func (n *Node) bulkProducers() []string {
	out := []string{"node.janitor", "node.supervisor", "ledger.flusher", "ledger.sealer", "ledger.expirer"}
	if n.boot.Registry.Enabled {
		out = append(out, "registry.pipeline")
	}
	return out
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
	if n.wallet != nil {
		d.Wallet = n.wallet
	}
	return d
}

// registryReads is the rate of reads of the registry, all callers together: they cost a tenth of a write.
const registryReads = 5000

// engineLimits bound what reaches each service.
func engineLimits(cfg *config.Config) map[string]httpapi.Limits {
	rps, money := cfg.Registry.Limits.RPS, cfg.Wallet.Limits
	return map[string]httpapi.Limits{
		serviceRegistry: {RPS: rps, Burst: rps, ReadRPS: registryReads, Inflight: cfg.Registry.Limits.Inflight},
		serviceWallet:   {PerPrincipal: httpapi.Rate{RPS: money.RatePerSecond, Burst: money.Burst}, Inflight: money.MaxInflight},
	}
}

// drainDeadline is the longest that any service drains.
func drainDeadline(cfg *config.Config) (most time.Duration) {
	if cfg.Registry.Enabled {
		most = drainOf(cfg, cfg.Registry.DrainDeadline)
	}
	if cfg.Wallet.Enabled {
		most = max(most, drainOf(cfg, cfg.Wallet.DrainDeadline))
	}
	return max(most, drainLeast)
}

// drainLeast is what a service gets that has nothing to finish.
const drainLeast = time.Second

// drainOf is a service's drain deadline under the node's ceiling.
func drainOf(cfg *config.Config, own unit.Duration) time.Duration {
	return min(own.D(), cfg.Node.DrainCap.D())
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
		if err := n.registry.Recover(ctx); err != nil {
			return err
		}
	}
	if err := n.ledger.Recover(ctx); err != nil {
		return err
	}
	if n.wallet != nil {
		return n.wallet.Open()
	}
	return nil
}

// reloadEngines puts new values in force.
func (n *Node) reloadEngines(c *config.Config) {
	if n.registry != nil {
		n.registry.Reload(c.Registry)
	}
	n.ledger.Reload(ledgerConfig(c))
	if n.wallet != nil {
		n.wallet.Reload(c.Wallet)
	}
}

// closeFed closes what the handlers fed.
func (n *Node) closeFed() {
	n.catalog.CloseFedBy(serviceRegistry, flow.HTTP)
	n.catalog.CloseFedBy(serviceWallet, flow.HTTP)
}

// drainEngines lets the services finish what they have accepted, side by side, each by its own clock, until ctx ends. It
// tells how many tasks had to be aborted.
func (n *Node) drainEngines(ctx context.Context) (aborted int) {
	legs := []func(context.Context) int{n.drainRegistry, n.drainMoney, n.drainLedger}
	left := make([]int, len(legs))
	_ = flow.Fan(ctx, len(legs), func(ctx context.Context, leg int) error { // no leg fails
		left[leg] = legs[leg](ctx)
		return nil
	})
	for _, one := range left {
		aborted += one
	}
	return aborted
}

func (n *Node) drainRegistry(context.Context) (aborted int) {
	return n.sup.Drain(serviceRegistry, drainOf(n.conf(), n.conf().Registry.DrainDeadline), n.grace())
}

// flushWithin bounds the last writing of changed balances. What it leaves is redone from the journal at the next boot.
const flushWithin = 2 * time.Second

// drainMoney lets the wallet's workers finish, then the ledger write down what has changed, if there is time left.
func (n *Node) drainMoney(ctx context.Context) (aborted int) {
	aborted = n.sup.Drain(serviceWallet, drainOf(n.conf(), n.conf().Wallet.DrainDeadline), n.grace())
	if aborted == 0 {
		flush, cancel := context.WithTimeout(ctx, flushWithin)
		defer cancel()
		if err := n.ledger.Flush(flush); err != nil {
			n.log.Warn("balances were not all written", "reason", err.Error(), "effect", "the next boot reads them from the journal")
		}
	}
	return aborted
}

// drainLedger joins the ledger's tasks, which were cancelled with all that works in the background.
func (n *Node) drainLedger(context.Context) (aborted int) {
	return n.sup.Drain(serviceLedger, drainLeast, n.grace())
}

// abortEngines cancels what still runs of every service, side by side.
func (n *Node) abortEngines(ctx context.Context, grace time.Duration) {
	all := n.served()
	_ = flow.Fan(ctx, len(all), func(_ context.Context, leg int) error { // no leg fails
		n.sup.Drain(all[leg].name, 0, grace)
		return nil
	})
}

// endEngines ends the intake of what others call, before the lanes of the store close.
func (n *Node) endEngines(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, n.grace())
	defer cancel()
	if err := n.ledger.Close(ctx); err != nil {
		n.log.Warn("calls of the ledger were cut", "reason", err.Error())
	}
}

// closeEngines frees what the engines hold. No task or caller of theirs is left.
func (n *Node) closeEngines() {
	if n.registry != nil {
		n.registry.Close()
	}
	if n.wallet != nil {
		n.wallet.Close()
	}
}
