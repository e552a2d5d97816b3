package wallet

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	walletapi "ronbox/httpapi/wallet"
	"ronbox/httpapi/wire"
)

// app is the run of the command with the verbs of this package.
type app struct{ *cli.App }

// online makes RunE of a verb that asks the node.
func (a app) online(run func(ctx context.Context, c walletapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, walletapi.NewClient, run)
}

// Command is the group of verbs of the wallet.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	a.Advise(hint)
	return cli.Group("wallet", "Hold, move and look at money",
		a.balanceCmd(), a.historyCmd(), a.txCmd(), a.seqCmd(), a.assetsCmd(),
		a.issueCmd(), a.transferCmd(), a.burnCmd(), a.holdCmd(), a.captureCmd(), a.releaseCmd(), a.batchCmd(),
		a.freezeCmd(), a.unfreezeCmd(),
	)
}

// hint refines the outcome of refusals of the wallet.
func hint(err error, o *cli.Outcome) {
	p, ok := errors.AsType[*wire.Problem](err)
	switch {
	case !ok:
		return
	case p.Code == "LIMITS_EXCEEDED": // no token would help
		o.Code, o.Next = cli.ExitFailed, "move less at once, or raise the limit that is named"
	case p.Status == http.StatusNotFound && p.Service == "wallet":
		o.Next = "check the txid: `ronbox wallet history ACCOUNT` shows those of an account"
	}
	if p.Details["cause"] == "system_account" { // no token opens it
		o.Code, o.Next = cli.ExitFailed, ""
	}
	switch p.Reason {
	case "account_unknown":
		o.Next = "check the name: `ronbox wallet freeze --new` is for one that nobody has paid yet"
	case "insufficient_funds":
		o.Next = "`ronbox wallet balance ACCOUNT` shows what may be spent, `ronbox wallet history ACCOUNT` what a hold has kept back"
		if p.Details["cause"] == "account_unknown" {
			o.Next = "check the name of the payer: nobody has ever paid it"
		}
	case "expired":
		if p.Status == http.StatusBadRequest {
			o.Next = "name a later valid_until, or none"
		}
	case "account_locked":
		o.Next = "`ronbox wallet seq ACCOUNT` shows its flags, `ronbox wallet unfreeze` takes them off"
	case "asset_unknown":
		o.Next = "`ronbox wallet assets` lists them, --declare adds one"
	case "hold_unknown", "hold_closed", "hold_expired":
		o.Next = "`ronbox wallet history ACCOUNT` shows its holds and what became of them"
	}
}

// defaultAsset is the one that a node has when its configuration names no other.
const defaultAsset = "ron"

// assetFlag adds the flag that names an asset.
func assetFlag(cmd *cobra.Command, asset *string) {
	cmd.Flags().StringVar(asset, "asset", defaultAsset, "the `asset`")
}

// checkAccount and the other checks refuse what no node would take, before anything is sent.
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

var errSystemAccount = errors.New("accounts that begin with sys: are the ledger's own: they pay nobody and nobody pays them")

func checkAsset(flag, s string) error {
	if err := engines.CheckAsset(s); err != nil {
		return cli.Usage("%s %q: %w", flag, s, err)
	}
	return nil
}

// largestAmount is 2^128-1.
const largestAmount = "340282366920938463463374607431768211455"

// checkAmount checks an amount in minor units: a whole number above 0.
func checkAmount(s string) error {
	n, err := engines.ParseAmount(s)
	if err != nil && len(s) >= len(largestAmount) && s[0] != '0' && strings.Trim(s, "0123456789") == "" {
		return cli.Usage("%q is more than there can be: an amount is %s at most", s, largestAmount)
	}
	if err != nil || n.IsZero() {
		return cli.Usage("%q is no amount: want a whole number of minor units above 0, such as 1000", s)
	}
	return nil
}

// payerOf is the account whose nonce an operation takes, "" for one that takes none.
func payerOf(op *walletapi.BatchOp) string {
	if op.Op == walletapi.OpIssue {
		return engines.IssuanceAccount(op.Asset)
	}
	return op.From
}

// parseTime reads a time; "" is the zero time.
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
