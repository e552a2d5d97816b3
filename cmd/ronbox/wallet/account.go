package wallet

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	walletapi "ronbox/httpapi/wire/wallet"
)

// accountDoc is the output of wallet account.
type accountDoc struct {
	walletapi.Account
	Balances  []walletapi.Balance  `json:"balances"` // of the assets that it has, or has on hold
	Holds     []walletapi.HoldInfo `json:"holds"`    // open ones
	MoreHolds string               `json:"more_holds,omitzero"`
}

// holdsShown bounds the open holds that wallet account shows.
const holdsShown = 20

func (a app) accountCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "account ACCOUNT",
		Short: "Show an account: its balances, its nonce, its flags and its open holds",
		Long: `Show an account: its balance in each asset, the nonce of its next debit, its flags, and
up to 20 open holds that it pays or may capture. ` + "`ronbox wallet holds`" + ` shows all holds.`,
		Example: `  ronbox wallet account alice
  ronbox wallet account alice --json | jq '.balances[].amount_minor'`,
		Args: cli.Exactly(1, "one account"),
		RunE: a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
			if err := checkAccount(args[0]); err != nil {
				return err
			}
			doc, d, err := readAccount(ctx, c, args[0])
			if err != nil {
				return err
			}
			return a.Show(doc, func(t cli.Table) { wholeAccountTable(t, doc, d) })
		}),
	}
}

func readAccount(ctx context.Context, c walletapi.Client, name string) (doc accountDoc, d decimals, err error) {
	if doc.Account, err = c.Account(ctx, name); err != nil {
		return doc, nil, err
	}
	list, err := c.Assets(ctx)
	if err != nil {
		return doc, nil, err
	}
	d, doc.Balances = decimals{}, []walletapi.Balance{}
	for _, as := range list.Assets {
		d[as.Asset] = as.Decimals
		b, err := c.Balance(ctx, name, as.Asset, 0)
		if err != nil {
			return doc, nil, err
		}
		if b.PostedMinor != "0" || b.HeldMinor != "0" || b.IssuedMinor != "" {
			doc.Balances = append(doc.Balances, b)
		}
	}
	holds, err := readHolds(ctx, c, name, "", holdsShown)
	doc.Holds, doc.MoreHolds = holds.Holds, holds.Next
	return doc, d, err
}

func wholeAccountTable(t cli.Table, doc accountDoc, d decimals) {
	accountTable(t, doc.Account)
	if len(doc.Balances) == 0 && doc.Known {
		t.Row("balance", "0 of every asset")
	}
	for _, b := range doc.Balances {
		row := d.show(b.AmountMinor, b.Asset)
		switch {
		case b.IssuedMinor != "":
			row = d.show(b.IssuedMinor, b.Asset) + " issued"
		case b.HeldMinor != "0":
			row += ", and " + d.bare(b.HeldMinor, b.Asset) + " held"
		}
		t.Row("balance", row)
	}
	for _, h := range doc.Holds {
		t.Row("hold", strings.Join([]string{
			d.show(h.AmountMinor, h.Asset), h.From + " to " + h.To,
			"until " + cli.FormatStamp(h.ExpiresAt.Time), h.TxID,
		}, ", "))
	}
	if doc.MoreHolds != "" {
		t.Row("", "more: `ronbox wallet holds "+doc.Account.Account+"`")
	}
}

func (a app) holdsCmd() *cobra.Command {
	var limit int
	var after string
	cmd := &cobra.Command{
		Use:   "holds ACCOUNT",
		Short: "List the open holds that an account pays or may capture",
		Long: `List the open holds that an account pays or may capture, in the order of their expiry.
With the txid of a hold instead of an account, show that hold and its outcome.`,
		Example: `  ronbox wallet holds alice
  ronbox wallet holds shop --limit 1000 --json
  ronbox wallet holds tx_01JD3V9T5E8Q2X7RZ4M6K0ABCD`,
		Args: cli.Exactly(1, "one account, or the txid of a hold"),
	}
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `N` holds, 1 to 100000")
	cmd.Flags().StringVar(&after, "after", "", "continue after the list that ended with this `hold`")
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
		if strings.HasPrefix(args[0], "tx_") && len(args[0]) == len("tx_")+26 {
			return a.showHold(ctx, c, args[0])
		}
		if limit < 1 || limit > 100_000 {
			return cli.Usage("--limit %d: want 1 to 100000", limit)
		}
		if err := checkAccount(args[0]); err != nil {
			return err
		}
		list, err := readHolds(ctx, c, args[0], after, limit)
		if err != nil {
			return err
		}
		d := a.shownDecimals(ctx, c)
		return a.Show(list, func(t cli.Table) { holdsTable(t, list, d) })
	})
	return cmd
}

// holdsPage is the most holds that a node returns at once.
const holdsPage = 500

// readHolds reads pages until there are limit holds or no more.
func readHolds(
	ctx context.Context,
	c walletapi.Client,
	account, after string,
	limit int,
) (list walletapi.HoldList, err error) {
	list = walletapi.HoldList{Holds: []walletapi.HoldInfo{}, Next: after}
	for {
		page, err := c.Holds(ctx, account, list.Next, min(limit-len(list.Holds), holdsPage))
		if err != nil {
			return list, err
		}
		list.Holds, list.Next = append(list.Holds, page.Holds...), page.Next
		if list.Next == "" || len(list.Holds) >= limit {
			return list, nil
		}
	}
}

func holdsTable(t cli.Table, list walletapi.HoldList, d decimals) {
	if len(list.Holds) == 0 {
		t.Row("no open holds")
		return
	}
	t.Row("EXPIRES", "AMOUNT", "FROM", "TO", "TXID")
	for _, h := range list.Holds {
		t.Row(cli.FormatStamp(h.ExpiresAt.Time), d.bare(h.AmountMinor, h.Asset)+" "+h.Asset, h.From, h.To, h.TxID)
	}
	if list.Next != "" {
		t.Row("more: --after " + list.Next)
	}
}

func (a app) showHold(ctx context.Context, c walletapi.Client, txid string) error {
	h, err := c.HoldInfo(ctx, txid)
	if err != nil {
		return err
	}
	d := a.shownDecimals(ctx, c)
	return a.Show(h, func(t cli.Table) {
		t.Rows("txid", h.TxID, "state", h.State, "from", h.From, "to", h.To, "amount", d.show(h.AmountMinor, h.Asset),
			"made", cli.FormatStamp(h.At.Time), "expires", cli.FormatStamp(h.ExpiresAt.Time))
		if h.State == "open" {
			return
		}
		if h.CapturedMinor != "" {
			t.Row("captured", d.show(h.CapturedMinor, h.Asset))
		}
		t.Rows("returned", d.show(h.ReturnedMinor, h.Asset),
			"ended", cli.FormatStamp(h.ClosedAt.Time), "by", h.ClosingTxID)
	})
}
