package wallet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/ledger"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
	ledgerapi "ronbox/httpapi/wire/ledger"
	walletapi "ronbox/httpapi/wire/wallet"
)

func (a app) balanceCmd() *cobra.Command {
	var minSeq uint64
	var asset string
	cmd := &cobra.Command{
		Use:   "balance ACCOUNT",
		Short: "Show the balance of an account, and how much of it can be spent",
		Long: `Show the balance of an account in an asset: the amount that can be spent, the amount
posted, and the amount set aside by open holds. For an account that does not exist, it
exits with 1. With --min-seq the answer is at least as new as that record of the ledger. A
receipt names its record in ledger.seq.`,
		Example: `  ronbox wallet balance alice
  ronbox wallet balance alice --asset ron --min-seq 41 --json | jq -r .amount_minor`,
		Args: cli.Exactly(1, "one account"),
	}
	assetFlag(cmd, &asset)
	cmd.Flags().Uint64Var(&minSeq, "min-seq", 0, "wait for this `record` of the ledger")
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
		if err := cmp.Or(checkAccount(args[0]), checkAsset("--asset", asset)); err != nil {
			return err
		}
		b, err := c.Balance(ctx, args[0], asset, minSeq)
		if err != nil {
			return err
		}
		var acc walletapi.Account
		if !b.Known || !a.Flags.JSON && !a.Flags.Quiet {
			if acc, err = c.Account(ctx, args[0]); err != nil {
				return err
			}
			if !b.Known && !acc.Known { // a node of an earlier release does not say it in a balance
				return cli.Fail(cli.ExitFailed, "account_unknown",
					"check its name; the first payment to an account opens it", "no account %s", args[0])
			}
		}
		d := a.shownDecimals(ctx, c)
		return a.Show(b, func(t cli.Table) { balanceTable(t, b, acc.Flags, d) })
	})
	return cmd
}

// balanceTable prints a balance. An account with a flag that forbids debits has nothing to spend.
func balanceTable(t cli.Table, b walletapi.Balance, flags []string, d decimals) {
	t.Row("account", b.Account)
	if slices.ContainsFunc(flags, func(f string) bool { return f != "no_credit" }) {
		t.Row("to spend", "nothing while it is locked: "+strings.Join(flags, ", "))
		t.Row("available", d.show(b.AmountMinor, b.Asset))
	} else {
		t.Row("to spend", d.show(b.AmountMinor, b.Asset))
	}
	t.Row("posted", d.bare(b.PostedMinor, b.Asset))
	t.Row("held", d.bare(b.HeldMinor, b.Asset))
	t.Row("as of", fmt.Sprintf("record %d, %s", b.AsOfSeq, cli.FormatStamp(b.AsOf.Time)))
}

func (a app) seqCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "seq ACCOUNT",
		Short: "Show the next nonce of an account, and its flags",
		Long: `Show the next nonce of an account, and its flags. Each debit of an account takes the last
nonce plus 1. An issue takes the nonce of the asset's issuance account, sys:issue:ASSET.
The node assigns a nonce to an operation without --nonce.`,
		Example: `  ronbox wallet seq alice
  ronbox wallet seq sys:issue:ron --json | jq .next_nonce`,
		Args: cli.Exactly(1, "one account"),
		RunE: a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
			if err := checkAccount(args[0]); err != nil {
				return err
			}
			acc, err := c.Account(ctx, args[0])
			if err != nil {
				return err
			}
			return a.Show(acc, func(t cli.Table) { accountTable(t, acc) })
		}),
	}
}

func accountTable(t cli.Table, acc walletapi.Account) {
	t.Row("account", acc.Account)
	t.Row("next nonce", acc.NextNonce)
	t.Row("last nonce", acc.LastNonce)
	for _, f := range acc.Flags {
		t.Row("flag", f)
	}
	if !acc.Known {
		t.Row("opened", "not yet: the first payment opens it")
		return
	}
	t.Row("opened", cli.FormatStamp(acc.OpenedAt.Time))
}

func (a app) txCmd() *cobra.Command {
	var reference, principal string
	cmd := &cobra.Command{
		Use:   "tx [TXID]",
		Short: "Show the receipt of a transaction",
		Long: `Show the receipt of a transaction, by its txid or by its --reference. With --json the
output has the bytes of the first answer. ` + "`ronbox ledger proof`" + ` proves to a third party
that the ledger holds the transaction.`,
		Example: `  ronbox wallet tx tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD
  ronbox wallet tx tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD --json > receipt.json
  ronbox wallet tx --reference 2026-12/17`,
		Args: cli.AtMost(1, "one txid"),
	}
	cmd.Flags().StringVar(&reference, "reference", "", "find the transaction with this `reference`")
	cmd.Flags().StringVar(&principal, "principal", "",
		"`principal` that owns the reference (default your own; another needs wallet.admin)")
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
		var raw []byte
		var err error
		switch {
		case (len(args) == 1) == (reference != ""):
			return cli.Usage("want one txid, or --reference")
		case reference != "":
			raw, err = c.Reference(ctx, principal, reference)
		default:
			if err := ledger.CheckTxID(args[0]); err != nil {
				return err
			}
			raw, err = c.Tx(ctx, args[0])
		}
		if err != nil {
			return err
		}
		return a.showReceipt(ctx, c, raw)
	})
	return cmd
}

// showReceipt prints a receipt: its own bytes with --json.
func (a app) showReceipt(ctx context.Context, c walletapi.Client, raw []byte) error {
	if a.Flags.JSON {
		return a.Print(append(raw[:len(raw):len(raw)], '\n'))
	}
	r, err := record.ParseReceipt(raw)
	if err != nil {
		return unsoundReceipt(err)
	}
	var d decimals
	if r.Op.MovesMoney() {
		d = a.shownDecimals(ctx, c)
	}
	return a.Show(nil, func(t cli.Table) { ledger.ReceiptRows(t, r, d.show(r.Amount.String(), r.Asset)) })
}

func (a app) assetsCmd() *cobra.Command {
	var declare string
	var digits int
	var flags sendFlags
	cmd := &cobra.Command{
		Use:   "assets",
		Short: "List the assets and how much of each is in circulation, or declare one",
		Long: `List the assets of the ledger and how much of each is in circulation: issued and not
burned. --declare adds an asset for good. --decimals sets the number of digits after the
point in its amounts, once: with 2, 1250 minor units are 12.50. An asset that exists can
get its decimals too; if some of it is in circulation, you are asked first. Declaring an
asset once more changes nothing. ` + "`wallet.assets`" + ` in the configuration declares assets
when the node starts.`,
		Example: `  ronbox wallet assets
  ronbox wallet assets --declare eur --decimals 2
  ronbox wallet assets --declare gold --json`,
	}
	cmd.Flags().StringVar(&declare, "declare", "", "declare this `asset`: 1 to 16 characters a-z and 0-9")
	cmd.Flags().IntVar(&digits, "decimals", 0, "set the `number` of digits after the point, 0 to 18, for good")
	flags.keyFlag(cmd)
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, _ []string) error {
		body := walletapi.AssetDeclare{Asset: declare}
		if cmd.Flags().Changed("decimals") {
			body.Decimals = &digits
		}
		switch {
		case declare == "" && flags.key != "":
			return cli.Usage("--idempotency-key repeats a declaration: give --declare too")
		case declare == "" && body.Decimals != nil:
			return cli.Usage("--decimals is of a declaration: give --declare too")
		case declare == "":
			return a.listAssets(ctx, c)
		case digits < 0 || digits > engines.MaxDecimals:
			return cli.Usage("--decimals %d: want 0 to %d", digits, engines.MaxDecimals)
		}
		err := cmp.Or(checkAsset("--declare", declare), flags.check())
		if err == nil && body.Decimals != nil {
			err = a.agreeDecimals(ctx, c, declare, digits)
		}
		if err != nil {
			return err
		}
		err = a.order(ctx, c, &flags, func(ctx context.Context, key string) (walletapi.Posted, error) {
			return c.DeclareAsset(ctx, key, body)
		})
		if declaredBefore(err) {
			return a.showAsset(ctx, c, declare)
		}
		return err
	})
	return cmd
}

// declaredBefore reports whether an asset was declared in a closed period. The node has no receipt
// of that.
func declaredBefore(err error) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Reason == record.PeriodClosed.String() && p.Details["cause"] == ledgerapi.CauseDeclared
}

// showAsset shows an asset that is declared already.
func (a app) showAsset(ctx context.Context, c assetLister, name string) error {
	list, err := c.Assets(ctx)
	if err != nil {
		return err
	}
	for _, as := range list.Assets {
		if as.Asset == name {
			return a.Show(as, func(t cli.Table) {
				t.Row("asset", name)
				t.Row("decimals", as.Decimals)
				t.Row("declared", cli.FormatStamp(as.DeclaredAt.Time)+", in a closed period: nothing was changed")
			})
		}
	}
	return fmt.Errorf("%s is declared, and not in the list of assets", name)
}

// agreeDecimals asks whether an asset in circulation that has no decimals may get n of them: all
// its amounts will read differently, and that cannot be undone.
func (a app) agreeDecimals(ctx context.Context, c assetLister, asset string, n int) error {
	if a.Flags.Yes || a.Flags.PrintCurl {
		return nil
	}
	var list walletapi.AssetList
	r := a.Repeater()
	err := r.Repeat(ctx, "read the assets", func() (err error) {
		list, err = c.Assets(ctx)
		return err
	})
	if err != nil {
		return err
	}
	for _, as := range list.Assets {
		if as.Asset == asset && as.Decimals == 0 && as.SupplyMinor != "0" {
			return a.Agree(fmt.Sprintf("%s %s will read %s %s; decimals cannot be changed later",
				as.SupplyMinor, asset, ledger.FormatAmount(as.SupplyMinor, n), asset), "go on")
		}
	}
	return nil
}

func (a app) listAssets(ctx context.Context, c walletapi.Client) error {
	list, err := c.Assets(ctx)
	if err != nil {
		return err
	}
	return a.Show(list, func(t cli.Table) {
		if len(list.Assets) == 0 {
			t.Row("no assets: add one with `ronbox wallet assets --declare`")
			return
		}
		t.Row("ASSET", "IN CIRCULATION", "DECIMALS", "DECLARED")
		for _, as := range list.Assets {
			t.Row(as.Asset, ledger.FormatAmount(as.SupplyMinor, as.Decimals), as.Decimals,
				cli.FormatStamp(as.DeclaredAt.Time))
		}
	})
}
