package appliance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"ronbox/engines/ledger"
	"ronbox/store"
)

// declareAssets makes the assets of the configuration in force exist. A file that takes no work for now, since it is full or
// was restored and not yet accepted, is no reason not to serve what is there: the janitor tries again.
func (n *Node) declareAssets(ctx context.Context) error {
	want := n.conf().Wallet.Assets
	if done := n.declared.Load(); done != nil && slices.Equal(*done, want) {
		return nil
	}
	err := n.ledger.DeclareAssets(ctx, want)
	switch {
	case err == nil:
		n.declared.Store(&want)
	case errors.Is(err, store.ErrRestored), errors.Is(err, store.ErrFull), errors.Is(err, ledger.ErrFull), errors.Is(err, ledger.ErrSafeMode):
		n.log.Warn("assets_not_declared", "reason", err.Error(), "next", "it is tried again every "+sweepEvery.String())
	default:
		return fmt.Errorf("declare the assets %q: %w", want, err)
	}
	return nil
}

// redeclareAssets is declareAssets of a configuration that has just come into force.
func (n *Node) redeclareAssets(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	if err := n.declareAssets(ctx); err != nil {
		n.log.Warn("assets_not_declared", "reason", err.Error(), "next", "it is tried again every "+sweepEvery.String())
	}
}
