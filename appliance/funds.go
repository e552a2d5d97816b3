package appliance

import (
	"context"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// What a dev node begins with, so that the first transfer is one command.
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
	done, err := n.ledger.Commit(ctx, []ledger.Op{{
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
