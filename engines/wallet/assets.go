package wallet

import (
	"context"
	"fmt"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// assetSet holds declared assets. An asset stays declared for ever. A set is never changed.
type assetSet map[string]struct{}

// Assets lists the declared assets that by's token reaches: one or all.
func (e *Engine) Assets(ctx context.Context, by engines.Actor) ([]ledger.AssetView, error) {
	all, err := e.readAssets(ctx)
	if err != nil {
		return nil, err
	}
	mine := make([]ledger.AssetView, 0, len(all))
	for _, a := range all {
		if by.Grant.Asset(a.Asset) == nil {
			mine = append(mine, a)
		}
	}
	return mine, nil
}

func (e *Engine) readAssets(ctx context.Context) ([]ledger.AssetView, error) {
	all, err := read(ctx, e, opAssets, e.ledger.Assets)
	if err != nil {
		return nil, fmt.Errorf("assets: %w", err)
	}
	return all, nil
}

// mustBeDeclared returns a *ledger.Reject for an asset that is not declared, as the ledger does for
// an op. A declared asset is remembered; another one is looked up each time.
func (e *Engine) mustBeDeclared(ctx context.Context, asset string) error {
	if known := e.declared.Load(); known != nil && known.has(asset) {
		return nil
	}
	all, err := e.readAssets(ctx)
	if err != nil {
		return err
	}
	known := make(assetSet, len(all))
	for _, a := range all {
		known[a.Asset] = struct{}{}
	}
	e.declared.Store(&known) // an older list may take the place of a newer one: that costs another look
	if !known.has(asset) {
		return &ledger.Reject{Code: record.AssetUnknown}
	}
	return nil
}

func (s assetSet) has(asset string) bool {
	_, ok := s[asset]
	return ok
}
