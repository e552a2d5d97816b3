package appliance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/config"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// ledgerService is never off. Its tasks end at once when the node drains; the rows they have not written are written once the wallet has drained.
func ledgerService() service {
	return service{
		name:    "ledger",
		buckets: tables.Buckets(),
		build: func(n *Node, c *config.Config) engine {
			return &ledgerEngine{Local: ledger.New(ledgerConfig(c), ledger.Deps{
				Catalog: n.catalog, Store: n.store, Metrics: n.metrics, Log: n.levels.Logger(), Board: n.board, Now: n.now, Progress: n.bootProgress,
			})}
		},
		ensure: func(ctx context.Context, n *Node) error { return n.declareAssets(ctx) },
		jobs: func(n *Node, now time.Time) []*job {
			return []*job{{name: "assets", every: fixed(sweepEvery), do: n.declareAssets, last: now}}
		},
		end: func(ctx context.Context, n *Node) {
			if err := n.ledger().Close(ctx); err != nil {
				n.log.Warn("calls of the ledger were cut", "reason", err.Error())
			}
		},
		checks: func(context.Context) []store.Check { return ledger.Checks() },
		init:   func(ctx context.Context, n *Node, res *InitResult) error { return n.fundDev(ctx, res) },
		format: tables.Format,
	}
}

// ledgerConfig is the ledger's part of a configuration. It keeps keys for as long as the wallet lets them count.
func ledgerConfig(cfg *config.Config) ledger.Config {
	own := cfg.Ledger
	own.KeyTTL = cfg.Wallet.IdempotencyTTL
	return own
}

// ledgerEngine is the ledger as the node runs it. It holds nothing that has to be purged or freed.
type ledgerEngine struct {
	*ledger.Local
	declared atomic.Pointer[[]string] // assets of the configuration that it has
}

func (e *ledgerEngine) Reload(c *config.Config)     { e.Local.Reload(ledgerConfig(c)) }
func (e *ledgerEngine) Purge()                      {}
func (e *ledgerEngine) Close(context.Context) error { return nil }

// ledger is the engine.
func (n *Node) ledger() *ledger.Local { return engineOf[*ledgerEngine](n).Local }

// flushWithin bounds the last writing of changed balances. The rest is redone from the journal at the next boot.
const flushWithin = 2 * time.Second

// flushBalances has the ledger write the balances that have changed, as far as there is time.
func (n *Node) flushBalances(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	if err := n.ledger().Flush(ctx); err != nil {
		n.log.Warn("balances were not all written", "reason", err.Error(), "effect", "the next boot reads them from the journal")
	}
}

// declareAssets makes the assets of the current configuration exist. A file that takes no work for now, since it is full or was restored
// and not yet accepted, is no reason not to serve what is there: the janitor tries again.
func (n *Node) declareAssets(ctx context.Context) error {
	e, want := engineOf[*ledgerEngine](n), n.conf().Wallet.Assets
	if done := e.declared.Load(); done != nil && slices.Equal(*done, want) {
		return nil
	}
	err := e.DeclareAssets(ctx, want)
	switch {
	case err == nil:
		e.declared.Store(&want)
	case errors.Is(err, store.ErrRestored), errors.Is(err, store.ErrFull), errors.Is(err, ledger.ErrFull), errors.Is(err, ledger.ErrSafeMode):
		n.log.Warn("assets_not_declared", "reason", err.Error(), "next", "it is tried again every "+sweepEvery.String())
	default:
		return fmt.Errorf("declare the assets %q: %w", want, err)
	}
	return nil
}

// The first account of a dev node, and its funds: the first transfer is one command.
const (
	devAccount = "alice"
	devFunds   = 1_000_000 // minor units
)

// fundDev issues the first asset of the configuration to the account of a dev node. Any other init leaves the ledger empty, so
// that one can be imported into it.
func (n *Node) fundDev(ctx context.Context, res *InitResult) error {
	if err := n.declareAssets(ctx); err != nil {
		return err
	}
	amount, asset := engines.AmountOf(0, devFunds), n.boot.Wallet.Assets[0]
	done, err := n.ledger().Commit(ctx, []ledger.Op{{
		Code: record.OpIssue, To: devAccount, Asset: asset, Amount: amount, Nonce: n.boot.Wallet.NonceStart, Idem: "init",
		Dedupe: ledger.DedupeKey{Scope: "init", Key: "init"}, Fingerprint: b3.Sum([]byte("init")),
		TTL: n.boot.Wallet.IdempotencyTTL.D(), Principal: "init",
	}})
	if err != nil {
		return fmt.Errorf("fund %s: %w", devAccount, err)
	}
	if refused := done[0].Reject; refused != nil {
		return fmt.Errorf("fund %s: %w", devAccount, refused)
	}
	res.Account, res.Asset, res.Amount = devAccount, asset, amount.String()
	return nil
}
