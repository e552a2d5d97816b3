package main

import (
	"context"

	"github.com/spf13/cobra"

	"ronbox/engines"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// repeatHelp is told by every verb that moves money.
const repeatHelp = `

The amount is in minor units. The key that is printed first makes the call safe to repeat:
the same command with it does nothing twice and gives the same receipt.`

func (a *app) issueCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "issue TO AMOUNT",
		Short: "Bring money into being on an account",
		Long:  `Bring money of an asset into being on an account. The asset must be declared.` + repeatHelp,
		Example: `  ronbox wallet issue alice 1000000
  ronbox wallet issue alice 500 --asset gold --memo "opening balance" --json`,
		Args: exactly(2, "an account and an amount"),
	}
	asset := assetFlag(cmd)
	f.add(cmd)
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		to, amount, err := accountAndAmount(args[0], args[1], *asset)
		if err != nil {
			return err
		}
		op := wire.BatchOp{Op: wire.OpIssue, To: to, Asset: *asset, AmountMinor: amount, Memo: f.memo}
		return a.order(ctx, c, &f, order{payer: engines.IssuanceAccount(*asset), op: op, post: func(ctx context.Context, key string, nonce uint64) (client.Posted, error) {
			return c.Issue(ctx, key, wire.Issue{To: to, Asset: *asset, AmountMinor: amount, Nonce: nonce, Memo: f.memo, ValidUntil: f.validUntil})
		}})
	})
	return cmd
}

func accountAndAmount(account, amount, asset string) (string, string, error) {
	if _, err := partyArg(account); err != nil {
		return "", "", err
	}
	if _, err := assetArg("--asset", asset); err != nil {
		return "", "", err
	}
	_, err := amountArg(amount)
	return account, amount, err
}

func (a *app) transferCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "transfer FROM TO AMOUNT",
		Short: "Move money from one account to another",
		Long: `Move money from one account to another; the first payment opens an account. A receipt
means that it is on disk.` + repeatHelp,
		Example: `  ronbox wallet transfer alice bob 1000
  ronbox wallet transfer alice bob 1000 --key cli-7-01JD3V9T5E8Q2X7RZ4M6K0ABCD --json`,
		Args: exactly(3, "two accounts and an amount"),
	}
	asset := assetFlag(cmd)
	f.add(cmd)
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		to, amount, err := accountAndAmount(args[1], args[2], *asset)
		if err != nil {
			return err
		}
		from, err := partyArg(args[0])
		if err != nil {
			return err
		}
		op := wire.BatchOp{Op: wire.OpTransfer, From: from, To: to, Asset: *asset, AmountMinor: amount, Memo: f.memo}
		return a.order(ctx, c, &f, order{payer: from, op: op, post: func(ctx context.Context, key string, nonce uint64) (client.Posted, error) {
			return c.Transfer(ctx, key, wire.Transfer{
				From: from, To: to, Asset: *asset, AmountMinor: amount, Nonce: nonce, Memo: f.memo, ValidUntil: f.validUntil,
			})
		}})
	})
	return cmd
}

func (a *app) burnCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "burn FROM AMOUNT",
		Short: "Take money of an account out of being",
		Long:  `Take money of an account out of being: what is in circulation of the asset falls.` + repeatHelp,
		Example: `  ronbox wallet burn bob 10
  ronbox wallet burn bob 10 --memo redeemed --json`,
		Args: exactly(2, "an account and an amount"),
	}
	asset := assetFlag(cmd)
	f.add(cmd)
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		from, amount, err := accountAndAmount(args[0], args[1], *asset)
		if err != nil {
			return err
		}
		op := wire.BatchOp{Op: wire.OpBurn, From: from, Asset: *asset, AmountMinor: amount, Memo: f.memo}
		return a.order(ctx, c, &f, order{payer: from, op: op, post: func(ctx context.Context, key string, nonce uint64) (client.Posted, error) {
			return c.Burn(ctx, key, wire.Burn{From: from, Asset: *asset, AmountMinor: amount, Nonce: nonce, Memo: f.memo, ValidUntil: f.validUntil})
		}})
	})
	return cmd
}
