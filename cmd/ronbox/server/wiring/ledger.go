package wiring

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/engines/wallet"
	"ronbox/store"
)

// ledgerService is never off. Its tasks end at once when the node drains; the rows they have not
// written are written once the wallet has drained.
func ledgerService() Service {
	return Service{
		Name:    "ledger",
		Buckets: tables.Buckets(),
		build: func(n *Set, c *config.Config) Engine {
			e := &ledgerEngine{Local: ledger.New(ledgerConfig(c), ledger.Deps{
				Catalog:  n.Catalog,
				Store:    n.Store,
				Metrics:  n.Metrics,
				Log:      n.Log,
				Board:    n.Board,
				Now:      n.Now,
				Settled:  n.Settled,
				Elected:  n.Clustered,
				Progress: n.Progress,
			})}
			e.closer = period.NewCloser(periodConfig(c), period.Deps{
				Store: n.Store, Ledger: e.Local, Catalog: n.Catalog, Metrics: n.Metrics, Log: n.Log.Named("ledger"),
				Now: n.Now, May: e.mayClose(n), Holds: e.holds(n), Settled: n.Settled, StandsBy: n.StandsBy,
				Archive: n.Archive,
			})
			n.Store.SetReclaimable(e.closer.Reclaimable)
			return e
		},
		ensure: func(ctx context.Context, n *Set) error { return n.declareAssets(ctx) },
		Jobs: func(n *Set, now time.Time) []*upkeep.Job {
			return []*upkeep.Job{{Name: "assets", Every: upkeep.Fixed(RetryEvery), Do: n.declareAssets, Last: now}}
		},
		end: func(ctx context.Context, n *Set) {
			if err := n.Ledger().Close(ctx); err != nil {
				n.log.Warn("calls of the ledger were cut", "reason", err.Error())
			}
		},
		Checks: func(context.Context) []store.Check { return ledger.Checks() },
		Init: func(ctx context.Context, n *Set, res *initdir.Founded) error {
			if !n.Boot.Wallet.Enabled {
				return nil
			}
			return n.fundDev(ctx, res)
		},
		Format: tables.Format,
	}
}

// ledgerConfig returns the configuration of the ledger. It keeps idempotency keys for the time that
// the wallet honours them, and rows in a share of the memory that the process may use.
func ledgerConfig(cfg *config.Config) ledger.Config {
	own := cfg.Ledger
	own.KeyTTL = cfg.Wallet.IdempotencyTTL
	own.CacheBytes = unit.Size(cfg.CacheBytes(host.UsableMemory()))
	return own
}

// periodConfig returns when periods of the ledger are closed.
func periodConfig(cfg *config.Config) period.Config {
	dir, own := cfg.PeriodsDir()
	return period.Config{
		Retention: cfg.Ledger.Retention, Period: cfg.Ledger.Period, Dir: dir, Make: own, Away: !cfg.Ledger.PeriodsLocal,
	}
}

// ledgerEngine is the ledger as the node runs it. It has nothing to purge or free.
type ledgerEngine struct {
	*ledger.Local
	closer *period.Closer
}

// holds returns a function that reports why no closing may go on.
func (e *ledgerEngine) holds(n *Set) func() error {
	return func() error {
		switch {
		case e.SafeMode() != "":
			return ledger.ErrSafeMode
		case n.Store.Restored():
			return store.ErrRestored
		}
		return nil
	}
}

// mayClose returns a function that reports why no period may be closed.
func (e *ledgerEngine) mayClose(n *Set) func() error {
	return func() error {
		if err := e.holds(n)(); err != nil {
			return err
		}
		if !n.ClockOK() {
			return period.ErrClock
		}
		return nil
	}
}

// Tasks returns the tasks of the ledger and of its closer.
func (e *ledgerEngine) Tasks() []flow.Task { return append(e.Local.Tasks(), e.closer.Tasks()...) }

func (e *ledgerEngine) Reload(c *config.Config) {
	e.Local.Reload(ledgerConfig(c))
	e.closer.Reload(periodConfig(c))
}
func (e *ledgerEngine) Purge()                      {}
func (e *ledgerEngine) Close(context.Context) error { return nil }

// Ledger returns the ledger engine.
func (n *Set) Ledger() *ledger.Local { return engineOf[*ledgerEngine](n).Local }

// Closer returns what closes periods of the ledger.
func (n *Set) Closer() *period.Closer { return engineOf[*ledgerEngine](n).closer }

// flushWithin bounds the final write of changed balances. The next boot recomputes the others from
// the journal.
const flushWithin = 2 * time.Second

// FlushBalances writes changed balances within flushWithin.
func (n *Set) FlushBalances(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	if err := n.Ledger().Flush(ctx); err != nil {
		n.log.Warn("balances were not all written", "reason", err.Error(), "effect",
			"the next boot reads them from the journal")
	}
}

// declareAssets declares the assets of the current configuration, and their decimals. If the file
// does not accept writes, because it is full or restored, the node serves the existing assets and
// the janitor retries.
func (n *Set) declareAssets(ctx context.Context) error {
	cfg := n.Config().Wallet
	err := n.Ledger().Declare(ctx, cfg.Declarations(n.Declared)...)
	switch {
	case err == nil:
	case errors.Is(err, store.ErrRestored),
		errors.Is(err, store.ErrFull),
		errors.Is(err, ledger.ErrFull),
		errors.Is(err, ledger.ErrSafeMode):
		n.log.Warn("assets_not_declared", "reason", err.Error(), "next", "retried every "+RetryEvery.String())
	default:
		return fmt.Errorf("declare the assets %q: %w", cfg.Assets, err)
	}
	return nil
}

// CheckDecimals warns of wallet.decimals, and of decimals in the configuration that the ledger does
// not have: they are set once.
func (n *Set) CheckDecimals() []host.Finding {
	cfg := n.Config().Wallet
	var seen, advice []string
	if len(cfg.Decimals) > 0 {
		seen = append(seen, "wallet.decimals is set, and the ledger has the decimals of assets")
		advice = append(advice, "remove wallet.decimals from the configuration: the next release refuses it")
	}
	for _, op := range cfg.Declarations(n.Declared) {
		has, declared := n.Ledger().Decimals(op.Asset)
		if op.Code == record.OpScale && declared && engines.AmountOf(0, uint64(has)) != op.Amount {
			seen = append(seen, fmt.Sprintf(
				"%s has %d decimals in the ledger, %s in the configuration", op.Asset, has, op.Amount))
			advice = append(advice, fmt.Sprintf("write %s:%d in wallet.assets: decimals are set once", op.Asset, has))
		}
	}
	if len(seen) == 0 {
		return nil
	}
	return []host.Finding{{
		Check: "decimals", Level: host.Warn, Seen: strings.Join(seen, "; "), Advice: strings.Join(advice, "; "),
	}}
}

// Declared reports whether the ledger has an asset.
func (n *Set) Declared(asset string) bool {
	_, has := n.Ledger().Decimals(asset)
	return has
}

// Account and funds of a dev node, so that a first transfer is one command.
const (
	devAccount = "alice"
	devFunds   = 1_000_000 // minor units
)

// fundDev issues the first configured asset to the account of a dev node. Other inits leave the
// ledger empty, so that a ledger can be imported.
func (n *Set) fundDev(ctx context.Context, res *initdir.Founded) error {
	if err := n.declareAssets(ctx); err != nil {
		return err
	}
	first, err := wallet.ParseAsset(n.Boot.Wallet.Assets[0])
	if err != nil {
		return err
	}
	amount, asset := engines.AmountOf(0, devFunds), first.Asset
	done, err := n.Ledger().Commit(ctx, []ledger.Op{
		{
			Code:        record.OpIssue,
			To:          devAccount,
			Asset:       asset,
			Amount:      amount,
			Nonce:       n.Boot.Wallet.NonceStart,
			Idem:        "init",
			Dedupe:      ledger.DedupeKey{Scope: "init", Key: "init"},
			Fingerprint: b3.Sum([]byte("init")),
			TTL:         n.Boot.Wallet.IdempotencyTTL.D(),
			Principal:   "init",
		},
	})
	if err != nil {
		return fmt.Errorf("fund %s: %w", devAccount, err)
	}
	if refused := done[0].Reject; refused != nil {
		return fmt.Errorf("fund %s: %w", devAccount, refused)
	}
	res.Account, res.Asset, res.Amount = devAccount, asset, amount.String()
	return nil
}
