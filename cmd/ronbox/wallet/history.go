package wallet

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines/ledger/record"
	walletapi "ronbox/httpapi/wire/wallet"
)

// statementPage is the most entries that a node returns at once.
const statementPage = 500

// historyFlags select the part of a statement, and how it is printed.
type historyFlags struct {
	asset, cursor, since, until string
	limit                       int
	oldest, all, csv, csvSafe   bool
}

func (a app) historyCmd() *cobra.Command {
	var f historyFlags
	cmd := &cobra.Command{
		Use:   "history ACCOUNT",
		Short: "Show the statement of an account: each posting and the balance after it",
		Long: `Show the statement of an account in an asset, one page at a time, newest first: each
posting, and the posted balance after it. Pass the cursor at the end of a page as --cursor
to get the next page.

--all reads all pages; with --json it prints one entry per line. --csv prints CSV with a
header, and amounts in minor units. Its cells are as they were paid: a payer chooses memo
and key, and a spreadsheet may run a cell that begins with = + - or @ as a formula.
--csv-safe puts an apostrophe before such cells. On a terminal, control characters are
escaped.`,
		Example: `  ronbox wallet history alice
  ronbox wallet history alice --since 2026-01-01T00:00:00Z --oldest-first --limit 500 --json
  ronbox wallet history alice --all --csv > alice.csv`,
		Args: cli.Exactly(1, "one account"),
	}
	assetFlag(cmd, &f.asset)
	fl := cmd.Flags()
	fl.IntVar(&f.limit, "limit", 100, "at most `N` entries, 1 to 500")
	fl.StringVar(&f.cursor, "cursor", "", "continue after the page with this `cursor`")
	fl.StringVar(&f.since, "since", "", "only entries at or after this `time` (RFC 3339)")
	fl.StringVar(&f.until, "until", "", "only entries before this `time` (RFC 3339)")
	fl.BoolVar(&f.oldest, "oldest-first", false, "oldest entries first")
	fl.BoolVar(&f.all, "all", false, "read all pages")
	fl.BoolVar(&f.csv, "csv", false, "print CSV")
	fl.BoolVar(&f.csvSafe, "csv-safe", false, "print CSV for a spreadsheet, which runs no cell as a formula")
	cmd.RunE = a.online(func(ctx context.Context, c walletapi.Client, args []string) error {
		q, err := f.query(args[0])
		if err != nil {
			return err
		}
		return a.history(ctx, c, q, &f)
	})
	return cmd
}

func (f *historyFlags) query(account string) (q walletapi.HistoryQuery, err error) {
	switch {
	case f.limit < 1 || f.limit > statementPage:
		return q, cli.Usage("--limit %d: want 1 to %d", f.limit, statementPage)
	case f.all:
		f.limit = statementPage
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

// history prints a page of a statement, or with --all every page as it comes.
func (a app) history(ctx context.Context, c walletapi.Client, q walletapi.HistoryQuery, f *historyFlags) error {
	r := a.Repeater()
	var d decimals
	f.csv = f.csv || f.csvSafe
	if !f.csv {
		d = a.shownDecimals(ctx, c)
	}
	for first := true; ; first = false {
		var page walletapi.History
		err := r.Repeat(ctx, "read the statement of "+q.Account, func() (err error) {
			page, err = c.History(ctx, q)
			return err
		})
		if err != nil {
			return err
		}
		q.Cursor = page.Next
		if f.all {
			page.Next = ""
		}
		switch {
		case f.csv:
			err = a.printCSV(page.Entries, first, f.csvSafe)
		case f.all && a.Flags.JSON:
			for i := 0; i < len(page.Entries) && err == nil; i++ {
				err = a.PrintJSON(page.Entries[i])
			}
		default:
			err = a.Show(page, func(t cli.Table) { historyTable(t, page, q.Asset, d, first, f.oldest) })
		}
		if err != nil || !f.all || q.Cursor == "" {
			return err
		}
	}
}

var historyColumns = []string{
	"time", "txid", "op", "side", "asset", "amount_minor", "balance_minor", "available_minor", "from", "to", "nonce",
	"hold", "key", "memo",
}

// csvCell returns a cell: on a terminal without control characters, and if safe not as a formula.
func csvCell(text string, terminal, safe bool) string {
	if safe && text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		text = "'" + text
	}
	if terminal {
		text = cli.Plain(text)
	}
	return text
}

// printCSV prints entries as rows, after the header if they are the first.
func (a app) printCSV(entries []walletapi.HistoryEntry, first, safe bool) error {
	terminal := cli.IsTerminal(a.Stdout)
	cell := func(text string) string { return csvCell(text, terminal, safe) }
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	if first {
		_ = w.Write(historyColumns) // to memory
	}
	for _, e := range entries {
		r, err := record.ParseReceipt(e.Receipt)
		if err != nil {
			return unsoundReceipt(err)
		}
		nonce, hold := "", ""
		if r.Nonce != 0 {
			nonce = cli.Decimal(r.Nonce)
		}
		if !r.Hold.IsZero() {
			hold = r.Hold.String()
		}
		_ = w.Write([]string{
			cli.FormatStamp(time.Unix(0, r.At)), r.TxID.String(), r.Op.String(), e.Side, r.Asset, r.Amount.String(),
			e.BalanceMinor, e.AvailableMinor, cell(r.From), cell(r.To), nonce, hold, cell(r.Idem), cell(e.Memo),
		})
	}
	w.Flush()
	return a.Print(out.Bytes())
}

func historyTable(t cli.Table, h walletapi.History, asset string, d decimals, first, oldest bool) {
	if len(h.Entries) == 0 && h.Opening == nil && first {
		t.Row("no entries")
		return
	}
	if first {
		t.Row("TIME", "OP", "CHANGE", "BALANCE", "OTHER", "TXID", "MEMO")
	}
	if oldest {
		openingRow(t, h.Opening, asset, d)
	}
	for _, e := range h.Entries {
		r, err := record.ParseReceipt(e.Receipt)
		if err != nil {
			t.Row("", cli.Bad("BAD"), err)
			continue
		}
		sign, other := "+", r.From
		if e.Side == "debit" {
			sign, other = "-", r.To
		}
		switch r.Op { // these ops post no entry
		case record.OpHold:
			sign = "held "
		case record.OpRelease, record.OpExpire:
			sign = "freed "
		}
		t.Row(cli.FormatStamp(time.Unix(0, r.At)), r.Op, sign+d.bare(r.Amount.String(), asset),
			d.bare(e.BalanceMinor, asset)+" "+asset, other, r.TxID, e.Memo)
	}
	if !oldest {
		openingRow(t, h.Opening, asset, d)
	}
	if h.Next != "" {
		t.Row("more: --cursor " + h.Next)
	}
}

// openingRow shows the balance before the oldest entry, if older ones are in closed periods.
func openingRow(t cli.Table, o *walletapi.Opening, asset string, d decimals) {
	if o != nil {
		t.Row(cli.FormatStamp(o.At.Time), "opening", "", d.bare(o.PostedMinor, asset)+" "+asset, "", "",
			fmt.Sprintf("%d older entries are in the files of periods 1 to %d", o.Postings, o.Period))
	}
}
