package wallet

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// app adds the commands of this package to the App.
type app struct{ *cli.App }

// online returns the RunE of a command that calls the node.
func (a app) online(run func(ctx context.Context, c walletapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, walletapi.NewClient, run)
}

// hint refines the exit code and the advice for refusals of the wallet.
func hint(err error, o *cli.Outcome) {
	p, ok := errors.AsType[*wire.Problem](err)
	switch {
	case !ok:
		return
	case p.Code == "LIMITS_EXCEEDED": // no token would help
		o.Code, o.Next = cli.ExitFailed, "move a smaller amount, or raise the limit that is named"
	case p.Status == http.StatusNotFound && p.Service == "wallet":
		o.Next = "check the txid: `ronbox wallet history ACCOUNT` shows those of an account"
	}
	if p.Details["cause"] == "system_account" { // no token opens it
		o.Code, o.Next = cli.ExitFailed, ""
	}
	switch p.Reason {
	case "account_unknown":
		o.Next = "check the name; use `ronbox wallet freeze --new` for an account that was never paid"
	case "insufficient_funds":
		o.Next = "`ronbox wallet balance ACCOUNT` shows the amount that can be spent, " +
			"`ronbox wallet history ACCOUNT` the amounts on hold"
		if p.Details["cause"] == "account_unknown" {
			o.Next = "check the name of the payer: it was never paid"
		}
	case "expired":
		if p.Status == http.StatusBadRequest {
			o.Next = "set a later valid_until, or none"
		}
	case "account_locked":
		o.Next = "`ronbox wallet seq ACCOUNT` shows its flags, `ronbox wallet unfreeze` clears them"
	case "decimals_set":
		o.Next = "`ronbox wallet assets` shows the decimals; declare another asset for other ones"
	case "asset_unknown":
		o.Next = adviceAssets
	case "payee_unknown":
		o.Next = "check the name; without --existing the payment opens the account"
	case "hold_unknown", "hold_closed", "hold_expired":
		o.Next = adviceHolds
	}
}

// Advice that more than one failure gives.
const (
	adviceAssets = "`ronbox wallet assets` lists them, --declare adds one"
	adviceHolds  = "`ronbox wallet history ACCOUNT` shows its holds and how they ended"
)

// defaultAsset is the asset of a node by default.
const defaultAsset = "ron"

// assetFlag adds the flag that names an asset.
func assetFlag(cmd *cobra.Command, asset *string) {
	cmd.Flags().StringVar(asset, "asset", defaultAsset, "name of the `asset`")
}

// checkAccount returns a usage error for a name that no node accepts, before anything is sent.
func checkAccount(s string) error {
	if err := engines.CheckAccount(s); err != nil {
		return cli.Usage("%q: %w", s, err)
	}
	return nil
}

// checkParty checks an account that pays or is paid.
func checkParty(s string) error {
	if engines.IsSystemAccount(s) {
		return cli.Usage("%q: %w", s, errSystemAccount)
	}
	return checkAccount(s)
}

var errSystemAccount = errors.New(
	"accounts that begin with sys: belong to the ledger and can neither pay nor be paid",
)

func checkAsset(flag, s string) error {
	if err := engines.CheckAsset(s); err != nil {
		return cli.Usage("%s %q: %w", flag, s, err)
	}
	return nil
}

// payerOf returns the account that pays an operation and provides its nonce, or "".
func payerOf(op *walletapi.BatchOp) string {
	if op.Op == walletapi.OpIssue {
		return engines.IssuanceAccount(op.Asset)
	}
	return op.From
}

// parseTime parses a time; "" is the zero time.
func parseTime(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return at, cli.Usage("%s %q: want a time such as 2026-01-02T15:04:05Z", flag, s)
	}
	return at, nil
}
