package wallet

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/httpapi/client"
	walletapi "ronbox/httpapi/wire/wallet"
)

// app adds the commands of this package to the App.
type app struct{ *cli.App }

// online returns the RunE of a command that calls the node.
func (a app) online(run func(ctx context.Context, c walletapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, walletapi.NewClient, run)
}

// adviceOn returns the advice for a refusal of the wallet.
func adviceOn(reason string) string { return walletapi.Refusals.Find(reason, "").Next }

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

// names completes the placeholders of the verbs of the wallet.
func names() map[string]cli.Names {
	return map[string]cli.Names{
		"ACCOUNT": accountNames, "FROM": accountNames, "TO": accountNames, "ASSET": assetNames,
		"AMOUNT": nil, "TXID": nil,
	}
}

func accountNames(ctx context.Context, c *client.Client, typed string) (out []string, err error) {
	page, err := walletapi.NewClient(c).Accounts(ctx, typed, "", cli.MostNames)
	for _, a := range page.Accounts {
		out = append(out, a.Account)
	}
	return out, err
}

func assetNames(ctx context.Context, c *client.Client, _ string) (out []string, err error) {
	all, err := walletapi.NewClient(c).Assets(ctx)
	for _, a := range all.Assets {
		out = append(out, a.Asset)
	}
	return out, err
}
