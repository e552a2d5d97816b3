package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// usualAsset is the one that a node has when nobody says otherwise.
const usualAsset = "ron"

func (a *app) walletCmd() *cobra.Command {
	return group("wallet", "Hold, move and look at money",
		a.balanceCmd(), a.walletHistoryCmd(), a.txCmd(), a.seqCmd(), a.assetsCmd(),
		a.issueCmd(), a.transferCmd(), a.burnCmd(), a.holdCmd(), a.captureCmd(), a.releaseCmd(), a.walletBatchCmd(),
		a.freezeCmd(), a.unfreezeCmd(),
	)
}

// assetFlag is the flag that names an asset.
func assetFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("asset", usualAsset, "the `asset`")
}

// accountArg and the like refuse what no node would take, before anything is sent.
func accountArg(s string) (string, error) {
	if err := engines.CheckAccount(s); err != nil {
		return "", usage("%q: %w", s, err)
	}
	return s, nil
}

// partyArg takes an account that pays or is paid.
func partyArg(s string) (string, error) {
	if engines.IsSystemAccount(s) {
		return "", usage("%q: %w", s, errSystemAccount)
	}
	return accountArg(s)
}

var errSystemAccount = errors.New("accounts that begin with sys: are the ledger's own: they pay nobody and nobody pays them")

func assetArg(flag, s string) (string, error) {
	if err := engines.CheckAsset(s); err != nil {
		return "", usage("%s %q: %w", flag, s, err)
	}
	return s, nil
}

// mostMoney is the largest amount, 2^128-1.
const mostMoney = "340282366920938463463374607431768211455"

// amountArg takes an amount in minor units: a whole number above 0.
func amountArg(s string) (string, error) {
	n, err := engines.ParseAmount(s)
	if err != nil && len(s) >= len(mostMoney) && s[0] != '0' && strings.Trim(s, "0123456789") == "" {
		return "", usage("%q is more than there can be: an amount is %s at most", s, mostMoney)
	}
	if err != nil || n.IsZero() {
		return "", usage("%q is no amount: want a whole number of minor units above 0, such as 1000", s)
	}
	return s, nil
}

func txArg(s string) (string, error) {
	if _, err := record.ParseTxID(s); err != nil {
		return "", usage("%q: %w", s, err)
	}
	return s, nil
}

// minor shows an amount as it is counted.
func minor(amount, asset string) string { return amount + " " + asset + " (minor units)" }

func (a *app) balanceCmd() *cobra.Command {
	var minSeq uint64
	cmd := &cobra.Command{
		Use:   "balance ACCOUNT",
		Short: "Show what an account has, and what of it may be spent",
		Long: `Show what an account has in an asset, in minor units: what may be spent, what is posted,
and what open holds keep back. An account that nobody has paid has 0.

With --min-seq the answer holds everything up to that record: a receipt names its own
in ledger.seq.`,
		Example: `  ronbox wallet balance alice
  ronbox wallet balance alice --asset ron --min-seq 41 --json | jq -r .amount_minor`,
		Args: exactly(1, "one account"),
	}
	asset := assetFlag(cmd)
	cmd.Flags().Uint64Var(&minSeq, "min-seq", 0, "wait for this `record` of the ledger")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		account, err := accountArg(args[0])
		if err != nil {
			return err
		}
		if _, err := assetArg("--asset", *asset); err != nil {
			return err
		}
		b, err := c.Balance(ctx, account, *asset, minSeq)
		if err != nil {
			return err
		}
		return a.show(b, func(t table) { balanceTable(t, b) })
	})
	return cmd
}

func balanceTable(t table, b wire.Balance) {
	t.row("account", b.Account)
	t.row("to spend", minor(b.AmountMinor, b.Asset))
	t.row("posted", b.PostedMinor)
	t.row("held", b.HeldMinor)
	t.row("as of", fmt.Sprintf("record %d, %s", b.AsOfSeq, stamp(b.AsOf)))
}

func (a *app) seqCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "seq ACCOUNT",
		Short: "Show the nonce that an account sends next, and whether it is locked",
		Long: `Show the nonce that an account sends next: each debit of it takes the last one and 1. An
issue takes that of the asset's issuance account, sys:issue:ASSET. The verbs that move
money look it up by themselves when --nonce is not given.`,
		Example: `  ronbox wallet seq alice
  ronbox wallet seq sys:issue:ron --json | jq .next_nonce`,
		Args: exactly(1, "one account"),
		RunE: a.online(func(ctx context.Context, c *client.Client, args []string) error {
			account, err := accountArg(args[0])
			if err != nil {
				return err
			}
			acc, err := c.Account(ctx, account)
			if err != nil {
				return err
			}
			return a.show(acc, func(t table) { accountTable(t, acc) })
		}),
	}
}

func accountTable(t table, acc wire.Account) {
	t.row("account", acc.Account)
	t.row("next nonce", acc.NextNonce)
	t.row("last nonce", acc.LastNonce)
	for _, f := range acc.Flags {
		t.row("flag", f)
	}
	if !acc.Known {
		t.row("opened", "not yet: the first to pay it opens it")
		return
	}
	t.row("opened", stamp(acc.OpenedAt))
}

func (a *app) txCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "tx TXID",
		Short: "Show the receipt of a transaction, byte for byte as it was first given",
		Long: `Show the receipt of a transaction. With --json it comes byte for byte as it was first
given. ` + "`ronbox ledger proof`" + ` shows to somebody who trusts no node that it is there.`,
		Example: `  ronbox wallet tx tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD
  ronbox wallet tx tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD --json > receipt.json`,
		Args: exactly(1, "one txid"),
		RunE: a.online(func(ctx context.Context, c *client.Client, args []string) error {
			id, err := txArg(args[0])
			if err != nil {
				return err
			}
			raw, err := c.Tx(ctx, id)
			if err != nil {
				return err
			}
			return a.showReceipt(raw)
		}),
	}
}

func (a *app) assetsCmd() *cobra.Command {
	var declare string
	var flags sendFlags
	cmd := &cobra.Command{
		Use:   "assets",
		Short: "List the assets and what of each is in circulation, or declare one",
		Long: `List the assets of the ledger and what of each is in circulation: issued and not burned.
With --declare one more is made, for good; to declare one that is there changes nothing.
` + "`wallet.assets`" + ` in the configuration declares them when the node starts.`,
		Example: `  ronbox wallet assets
  ronbox wallet assets --declare gold --json`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().StringVar(&declare, "declare", "", "declare this `asset`: 1 to 16 of a-z and 0-9")
	flags.keyFlag(cmd)
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, _ []string) error {
		if declare == "" && flags.key != "" {
			return usage("--key repeats a declaration: give --declare too")
		}
		if declare == "" {
			return a.listAssets(ctx, c)
		}
		asset, err := assetArg("--declare", declare)
		if err != nil {
			return err
		}
		return a.order(ctx, c, &flags, order{post: func(ctx context.Context, key string, _ uint64) (client.Posted, error) {
			return c.DeclareAsset(ctx, key, wire.AssetDeclare{Asset: asset})
		}})
	})
	return cmd
}

func (a *app) listAssets(ctx context.Context, c *client.Client) error {
	list, err := c.Assets(ctx)
	if err != nil {
		return err
	}
	return a.show(list, func(t table) {
		if len(list.Assets) == 0 {
			t.row("no assets: `ronbox wallet assets --declare` makes one")
			return
		}
		t.row("ASSET", "IN CIRCULATION", "DECLARED")
		for _, as := range list.Assets {
			t.row(as.Asset, as.SupplyMinor, stamp(as.DeclaredAt))
		}
	})
}
