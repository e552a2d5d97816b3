package wiring

import (
	"context"
	"time"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	ledgerhttp "ronbox/httpapi/ledger"
	wallethttp "ronbox/httpapi/wallet"
)

func walletService() Service {
	return Service{
		Name:  "wallet",
		on:    func(c *config.Config) bool { return c.Wallet.Enabled },
		Drain: func(c *config.Config) unit.Duration { return c.Wallet.DrainDeadline },
		build: func(n *Set, c *config.Config) Engine { return walletEngine{wallet.New(c.Wallet, n.walletDeps())} },
		// The ledger's own tasks are gone by then, and no worker changes a balance any more.
		Drained: func(ctx context.Context, n *Set) { n.FlushBalances(ctx) },
		API:     func(n *Set) httpapi.Service { return wallethttp.New(walletAPI{n.Wallet(), n.Closer()}) },
		Limits: func(c *config.Config) httpapi.Limits {
			l := c.Wallet.Limits
			return httpapi.Limits{
				PerPrincipal: httpapi.Rate{RPS: l.RatePerSecond, Burst: l.Burst},
				ReadRPS:      l.ReadRPS,
				Inflight:     l.MaxInflight,
				Timeout:      c.Wallet.ReqTimeout.D(),
				Streams:      StreamLimits(c),
			}
		},
		Cache: "balances",
	}
}

// walletAPI serves the routes of the wallet and its ledger.
type walletAPI struct {
	*wallet.Engine
	ledgerhttp.PeriodReader
}

// walletDeps are the wallet's neighbours.
func (n *Set) walletDeps() wallet.Deps {
	return wallet.Deps{
		Catalog:    n.Catalog,
		Ledger:     n.Ledger(),
		Metrics:    n.Metrics,
		Log:        n.Log,
		Board:      n.Board,
		Now:        n.Now,
		StallAfter: n.stallAfter,
		SafeMode:   n.Ledger().SafeMode,
		Warm:       n.Ledger().WarmBalance,
		AuthReady:  n.Ready,
	}
}

// stallAfter returns ledger.stall_after. A member of a cluster gives the others at least a
// heartbeat.
func (n *Set) stallAfter() time.Duration {
	after := n.Config().Ledger.StallAfter.D()
	if n.Clustered {
		after = max(after, n.Config().Cluster.Heartbeat.D())
	}
	return after
}

// walletEngine is the wallet as the node runs it. Its state is the ledger's, so it has nothing to
// recover.
type walletEngine struct{ *wallet.Engine }

func (e walletEngine) Recover(context.Context) error { return nil }
func (e walletEngine) Reload(c *config.Config)       { e.Engine.Reload(c.Wallet) }

func (e walletEngine) Close(context.Context) error {
	e.Engine.Close()
	return nil
}

// Wallet is the engine, nil while it is off.
func (n *Set) Wallet() *wallet.Engine { return engineOf[walletEngine](n).Engine }
