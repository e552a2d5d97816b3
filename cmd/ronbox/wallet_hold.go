package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// A hold lasts at least a second and at most a month of 30 days.
const longestHold = 30 * 24 * time.Hour

func (a *app) holdCmd() *cobra.Command {
	var f sendFlags
	var expires time.Duration
	cmd := &cobra.Command{
		Use:   "hold FROM TO AMOUNT",
		Short: "Set money aside that another account may capture",
		Long: `Set money of an account aside: it stays there and cannot be spent, until TO captures it
(` + "`ronbox wallet capture`" + `), it is released, or it expires.` + repeatHelp,
		Example: `  ronbox wallet hold alice shop 500 --expires-in 1h
  ronbox wallet hold alice shop 500 --json | jq -r .txid`,
		Args: exactly(3, "two accounts and an amount"),
	}
	asset := assetFlag(cmd)
	f.add(cmd)
	cmd.Flags().DurationVar(&expires, "expires-in", 24*time.Hour, "let it end by itself after this `time`, 1s to 720h")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		if expires < time.Second || expires > longestHold || expires%time.Second != 0 {
			return usage("--expires-in %s: want whole seconds, 1s to 720h", expires)
		}
		to, amount, err := accountAndAmount(args[1], args[2], *asset)
		if err != nil {
			return err
		}
		from, err := partyArg(args[0])
		if err != nil {
			return err
		}
		op := wire.BatchOp{Op: wire.OpHold, From: from, To: to, Asset: *asset, AmountMinor: amount, Memo: f.memo}
		return a.order(ctx, c, &f, order{payer: from, op: op, post: func(ctx context.Context, key string, nonce uint64) (client.Posted, error) {
			return c.Hold(ctx, key, wire.Hold{
				From: from, To: to, Asset: *asset, AmountMinor: amount, Nonce: nonce, ExpiresInS: uint64(expires / time.Second),
				Memo: f.memo, ValidUntil: f.validUntil,
			})
		}})
	})
	return cmd
}

func (a *app) captureCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "capture TXID [AMOUNT]",
		Short: "Pay out a hold, whole or in part, and end it",
		Long: `Pay out a hold to the account it is for, whole or AMOUNT of it, and end it: what is not
taken goes back. A hold is captured once.` + repeatHelp,
		Example: `  ronbox wallet capture tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD
  ronbox wallet capture tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD 300 --json`,
		Args: oneOrTwo,
	}
	f.keyFlag(cmd)
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		hold, err := txArg(args[0])
		if err != nil {
			return err
		}
		body := wire.Capture{Hold: hold}
		if len(args) == 2 {
			if body.AmountMinor, err = amountArg(args[1]); err != nil {
				return err
			}
		}
		op := wire.BatchOp{Op: wire.OpCapture, Hold: hold, AmountMinor: body.AmountMinor}
		return a.order(ctx, c, &f, order{op: op, post: func(ctx context.Context, key string, _ uint64) (client.Posted, error) {
			return c.Capture(ctx, key, body)
		}})
	})
	return cmd
}

func oneOrTwo(_ *cobra.Command, args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return usage("want the txid of a hold and perhaps an amount, got %d", len(args))
	}
	return nil
}

func (a *app) releaseCmd() *cobra.Command {
	var f sendFlags
	cmd := &cobra.Command{
		Use:   "release TXID",
		Short: "Give a hold up: the payer may spend the money again",
		Long: `Give a hold up: the payer may spend the money again. Who may capture it may release it.
The key that is printed first makes the call safe to repeat.`,
		Example: `  ronbox wallet release tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD
  ronbox wallet release tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD --json`,
		Args: exactly(1, "the txid of a hold"),
	}
	f.keyFlag(cmd)
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		hold, err := txArg(args[0])
		if err != nil {
			return err
		}
		op := wire.BatchOp{Op: wire.OpRelease, Hold: hold}
		return a.order(ctx, c, &f, order{op: op, post: func(ctx context.Context, key string, _ uint64) (client.Posted, error) {
			return c.Release(ctx, key, wire.Release{Hold: hold})
		}})
	})
	return cmd
}
