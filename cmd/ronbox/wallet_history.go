package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"ronbox/engines/ledger/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// historyFlags say which part of a statement is asked for.
type historyFlags struct {
	cursor, since, until string
	limit                int
	oldest               bool
}

func (a *app) walletHistoryCmd() *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history ACCOUNT",
		Short: "Show an account's statement: each posting and the balance after it",
		Long: `Show an account's statement in an asset, a page at a time, the newest first: each posting,
and the posted balance after it. The cursor that ends a page begins the next one.`,
		Example: `  ronbox wallet history alice
  ronbox wallet history alice --since 2026-01-01T00:00:00Z --oldest-first --limit 500 --json`,
		Args: exactly(1, "one account"),
	}
	asset := assetFlag(cmd)
	fl := cmd.Flags()
	fl.IntVar(&f.limit, "limit", 100, "at most this many entries, 1 to 500")
	fl.StringVar(&f.cursor, "cursor", "", "go on where a page ended")
	fl.StringVar(&f.since, "since", "", "at this `time` or after it (RFC 3339)")
	fl.StringVar(&f.until, "until", "", "before this `time` (RFC 3339)")
	fl.BoolVar(&f.oldest, "oldest-first", false, "begin with the oldest")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		q, err := f.query(args[0], *asset)
		if err != nil {
			return err
		}
		h, err := c.History(ctx, q)
		if err != nil {
			return err
		}
		return a.show(h, func(t table) { historyTable(t, h, *asset) })
	})
	return cmd
}

func (f *historyFlags) query(account, asset string) (q client.HistoryQuery, err error) {
	if f.limit < 1 || f.limit > 500 {
		return q, usage("--limit %d: want 1 to 500", f.limit)
	}
	q = client.HistoryQuery{Asset: asset, Cursor: f.cursor, Limit: f.limit}
	if f.oldest {
		q.Order = "asc"
	}
	if q.Account, err = accountArg(account); err != nil {
		return q, err
	}
	if _, err = assetArg("--asset", asset); err != nil {
		return q, err
	}
	if q.Since, err = timeArg("--since", f.since); err != nil {
		return q, err
	}
	q.Until, err = timeArg("--until", f.until)
	return q, err
}

// timeArg takes a time; "" is the zero time.
func timeArg(flag, s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return at, usage("%s %q: want a time such as 2026-01-02T15:04:05Z", flag, s)
	}
	return at, nil
}

func historyTable(t table, h wire.History, asset string) {
	if len(h.Entries) == 0 {
		t.row("nothing has touched it")
		return
	}
	t.row("TIME", "OP", "CHANGE", "BALANCE", "OTHER", "TXID", "MEMO")
	for _, e := range h.Entries {
		r, err := record.ParseReceipt(e.Receipt)
		if err != nil {
			t.row("", "BAD", err)
			continue
		}
		sign, other := "+", r.From
		if e.Side == "debit" {
			sign, other = "-", r.To
		}
		if r.Op == record.OpHold || r.Op == record.OpRelease || r.Op == record.OpExpire {
			sign = "hold " // nothing is posted
		}
		t.row(stamp(time.Unix(0, r.At)), r.Op, sign+r.Amount.String(), e.BalanceMinor+" "+asset, other, r.TxID, e.Memo)
	}
	if h.Next != "" {
		t.row("more: --cursor " + h.Next)
	}
}
