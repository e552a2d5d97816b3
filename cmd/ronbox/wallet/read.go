package wallet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/ledger"
	"ronbox/engines/ledger/record"
	walletapi "ronbox/httpapi/wallet"
)

func (a app) balanceCmd() *cobra.Command {
	var minSeq uint64
	var asset string
	cmd := &cobra.Command{
		Use:   "balance ACCOUNT",
		Short: "Show what an account has, and what of it may be spent",
		Long: `Show what an account has in an asset, in minor units: what may be spent, what is posted,
and what open holds keep back. An account that nobody has paid has 0.

With --min-seq the answer holds everything up to that record: a receipt names its own
in ledger.seq.`,
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
		if !a.Flags.JSON && !a.Flags.Quiet {
			if acc, err = c.Account(ctx, args[0]); err != nil {
				return err
			}
		}
		return a.Show(b, func(t cli.Table) { balanceTable(t, b, acc.Flags) })
	})
	return cmd
}

// balanceTable shows a balance; an account that a flag keeps from giving has nothing to spend.
func balanceTable(t cli.Table, b walletapi.Balance, flags []string) {
	t.Row("account", b.Account)
	if slices.ContainsFunc(flags, func(f string) bool { return f != "no_credit" }) {
		t.Row("to spend", "nothing while it is locked: "+strings.Join(flags, ", "))
		t.Row("available", ledger.FormatMinor(b.AmountMinor, b.Asset))
	} else {
		t.Row("to spend", ledger.FormatMinor(b.AmountMinor, b.Asset))
	}
	t.Row("posted", b.PostedMinor)
	t.Row("held", b.HeldMinor)
	t.Row("as of", fmt.Sprintf("record %d, %s", b.AsOfSeq, cli.FormatStamp(b.AsOf)))
}

// historyFlags say which part of a statement is asked for.
type historyFlags struct {
	asset, cursor, since, until string
	limit                       int
	oldest                      bool
}

func (a app) historyCmd() *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history ACCOUNT",
		Short: "Show an account's statement: each posting and the balance after it",
		Long: `Show an account's statement in an asset, a page at a time, the newest first: each posting,
and the posted balance after it. The cursor that ends a page begins the next one.`,
		Example: `  ronbox wallet history alice
  ronbox wallet history alice --since 2026-01-01T00:00:00Z --oldest-first --limit 500 --json`,
		Args: cli.Exactly(1, "one account"),
	}
	assetFlag(cmd, &f.asset)
	fl := cmd.Flags()
	fl.IntVar(&f.limit, "limit", 100, "at most this many entries, 1 to 500")
	fl.StringVar(&f.cursor, "cursor", "", "go on where a page ended")
	fl.StringVar(&f.since, "since", "", "at this `time` or after it (RFC 3339)")
	fl.StringVar(&f.until, "until", "", "before this `time` (RFC 3339)")
	fl.BoolVar(&f.oldest, "oldest-first", false, "begin with the oldest")
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
		q, err := f.query(args[0])
		if err != nil {
			return err
		}
		h, err := c.History(ctx, q)
		if err != nil {
			return err
		}
		return a.Show(h, func(t cli.Table) { historyTable(t, h, f.asset) })
	})
	return cmd
}

func (f *historyFlags) query(account string) (q walletapi.HistoryQuery, err error) {
	if f.limit < 1 || f.limit > 500 {
		return q, cli.Usage("--limit %d: want 1 to 500", f.limit)
	}
	q = walletapi.HistoryQuery{Account: account, Asset: f.asset, Cursor: f.cursor, Limit: f.limit}
	if f.oldest {
		q.Order = "asc"
	}
	if err = cmp.Or(checkAccount(account), checkAsset("--asset", f.asset)); err != nil {
		return q, err
	}
	if q.Since, err = parseTime("--since", f.since); err != nil {
		return q, err
	}
	q.Until, err = parseTime("--until", f.until)
	return q, err
}

func historyTable(t cli.Table, h walletapi.History, asset string) {
	if len(h.Entries) == 0 {
		t.Row("nothing has touched it")
		return
	}
	t.Row("TIME", "OP", "CHANGE", "BALANCE", "OTHER", "TXID", "MEMO")
	for _, e := range h.Entries {
		r, err := record.ParseReceipt(e.Receipt)
		if err != nil {
			t.Row("", "BAD", err)
			continue
		}
		sign, other := "+", r.From
		if e.Side == "debit" {
			sign, other = "-", r.To
		}
		switch r.Op { // nothing is posted
		case record.OpHold:
			sign = "held "
		case record.OpRelease, record.OpExpire:
			sign = "freed "
		}
		t.Row(cli.FormatStamp(time.Unix(0, r.At)), r.Op, sign+r.Amount.String(), e.BalanceMinor+" "+asset, other, r.TxID, e.Memo)
	}
	if h.Next != "" {
		t.Row("more: --cursor " + h.Next)
	}
}

func (a app) seqCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "seq ACCOUNT",
		Short: "Show the nonce that an account sends next, and whether it is locked",
		Long: `Show the nonce that an account sends next: each debit of it takes the last one and 1. An
issue takes that of the asset's issuance account, sys:issue:ASSET. The verbs that move
money look it up by themselves when --nonce is not given.`,
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
		t.Row("opened", "not yet: the first to pay it opens it")
		return
	}
	t.Row("opened", cli.FormatStamp(acc.OpenedAt))
}

func (a app) txCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "tx TXID",
		Short: "Show the receipt of a transaction, byte for byte as it was first given",
		Long: `Show the receipt of a transaction. With --json it comes byte for byte as it was first
given. ` + "`ronbox ledger proof`" + ` shows to somebody who trusts no node that it is there.`,
		Example: `  ronbox wallet tx tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD
  ronbox wallet tx tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD --json > receipt.json`,
		Args: cli.Exactly(1, "one txid"),
		RunE: a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
			if err := ledger.CheckTxID(args[0]); err != nil {
				return err
			}
			raw, err := c.Tx(ctx, args[0])
			if err != nil {
				return err
			}
			return a.showReceipt(raw)
		}),
	}
}

// showReceipt prints a receipt: its own bytes with --json.
func (a app) showReceipt(raw []byte) error {
	if a.Flags.JSON {
		return a.Print(append(raw[:len(raw):len(raw)], '\n'))
	}
	r, err := record.ParseReceipt(raw)
	if err != nil {
		return unsoundReceipt(err)
	}
	return a.Show(nil, func(t cli.Table) { ledger.ReceiptTable(t, r) })
}

func (a app) assetsCmd() *cobra.Command {
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
	}
	cmd.Flags().StringVar(&declare, "declare", "", "declare this `asset`: 1 to 16 of a-z and 0-9")
	flags.keyFlag(cmd)
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, _ []string) error {
		if declare == "" && flags.key != "" {
			return cli.Usage("--key repeats a declaration: give --declare too")
		}
		if declare == "" {
			return a.listAssets(ctx, c)
		}
		if err := checkAsset("--declare", declare); err != nil {
			return err
		}
		return a.order(ctx, c, &flags, order{post: func(ctx context.Context, key string, _ uint64) (walletapi.Posted, error) {
			return c.DeclareAsset(ctx, key, walletapi.AssetDeclare{Asset: declare})
		}})
	})
	return cmd
}

func (a app) listAssets(ctx context.Context, c walletapi.Client) error {
	list, err := c.Assets(ctx)
	if err != nil {
		return err
	}
	return a.Show(list, func(t cli.Table) {
		if len(list.Assets) == 0 {
			t.Row("no assets: `ronbox wallet assets --declare` makes one")
			return
		}
		t.Row("ASSET", "IN CIRCULATION", "DECLARED")
		for _, as := range list.Assets {
			t.Row(as.Asset, as.SupplyMinor, cli.FormatStamp(as.DeclaredAt))
		}
	})
}
