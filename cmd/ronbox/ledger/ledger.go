package ledger

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	ledgerapi "ronbox/httpapi/wire/ledger"
	nodeapi "ronbox/httpapi/wire/node"
	walletapi "ronbox/httpapi/wire/wallet"
)

// app is a cli.App with the verbs of this package.
type app struct{ *cli.App }

// online returns the RunE of a verb that queries the node.
func (a app) online(run func(ctx context.Context, c ledgerapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, ledgerapi.NewClient, run)
}

// Command returns the command group of the ledger.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	return cli.Group("ledger", "Prove, verify, export and import the journal of the wallet",
		a.headCmd(), a.rootsCmd(), a.statsCmd(), a.proofCmd(), a.verifyProofCmd(), a.findCmd(), a.auditCmd(),
		a.exportCmd(), a.verifyCmd(), a.importCmd(), a.rebuildCmd(), a.closeCmd(), a.periodsCmd(),
	)
}

func (a app) headCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "head",
		Short: "Show the head of the ledger",
		Long: `Show the head of the ledger: the number of batches, the root of the log of their roots,
which covers everything recorded so far, and the last record. If you keep a head, a node
can prove to you that every later state extends it: see ` + "`ronbox ledger audit`" + `.`,
		Example: `  ronbox ledger head
  ronbox ledger head --json > head.json`,
		RunE: cli.Ask(a.App, ledgerapi.NewClient, ledgerapi.Client.LedgerHead, headTable),
	}
}

func headTable(t cli.Table, h ledgerapi.LedgerHead) {
	if h.Batches == 0 {
		t.Row("the ledger is empty")
		return
	}
	t.Row("batches", h.Batches)
	t.Row("log root", h.LogRoot)
	t.Row("last root", h.LastRoot)
	t.Row("last record", h.Seq)
}

func (a app) rootsCmd() *cobra.Command {
	var since uint64
	var limit int
	cmd := &cobra.Command{
		Use:   "roots",
		Short: "List batches of the ledger and their roots",
		Long: `List the batches of the ledger after --since, oldest first, with the last record, the
root and the time of each. A receipt names the batch of its record and that batch's root.`,
		Example: `  ronbox ledger roots --since 40
  ronbox ledger roots --limit 1000 --json | jq -r '.roots[].root'`,
	}
	cmd.Flags().Uint64Var(&since, "since", 0, "list the batches after this `batch`")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most `N` batches, 1 to 1000")
	cmd.RunE = a.online(func(ctx context.Context, c ledgerapi.Client, _ []string) error {
		if limit < 1 || limit > 1000 {
			return cli.Usage("--limit %d: want 1 to 1000", limit)
		}
		list, err := c.Roots(ctx, since, limit)
		if err != nil {
			return err
		}
		return a.Show(list, func(t cli.Table) { rootsTable(t, list) })
	})
	return cmd
}

func rootsTable(t cli.Table, list ledgerapi.Roots) {
	if len(list.Roots) == 0 {
		t.Row("no batches")
		return
	}
	if list.FirstBatch != 0 {
		t.Row(fmt.Sprintf("batches before %d are in the files of closed periods", list.FirstBatch))
	}
	t.Row("BATCH", "LAST RECORD", "TIME", "ROOT")
	for _, r := range list.Roots {
		t.Row(r.Batch, r.Seq, cli.FormatStamp(r.TS.Time), r.Root)
	}
	if list.Next != 0 {
		t.Row(fmt.Sprintf("more: --since %d", list.Next))
	}
}

// stats is the output of ledger stats.
type ledgerStats struct {
	Head    ledgerapi.LedgerHead  `json:"head"`
	Assets  []walletapi.Asset     `json:"assets"`
	Buckets []nodeapi.BucketStats `json:"buckets,omitempty"` // only over the admin socket, as the cache
	Cache   *nodeapi.CacheStats   `json:"cache,omitempty"`
}

func (a app) statsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Show the size of the ledger: batches, records, money, disk space",
		Long: `Show the size of the ledger: its batches, its records, and the amount of each asset in
circulation. Over the node's socket it also shows how much memory names, accounts and
balances take (ledger.cache_bytes), and the rows and bytes of each bucket.`,
		Example: `  ronbox ledger stats
  ronbox ledger stats --json | jq '.buckets[].bytes'`,
		RunE: a.online(func(ctx context.Context, c ledgerapi.Client, _ []string) error {
			doc, err := a.stats(ctx, c)
			if err != nil {
				return err
			}
			return a.Show(doc, func(t cli.Table) { statsTable(t, doc) })
		}),
	}
}

func (a app) stats(ctx context.Context, c ledgerapi.Client) (doc ledgerStats, err error) {
	if doc.Head, err = c.LedgerHead(ctx); err != nil {
		return doc, err
	}
	list, err := walletapi.NewClient(c.Client).Assets(ctx)
	if doc.Assets = list.Assets; err != nil || a.URLs() != nil {
		return doc, err
	}
	db, err := nodeapi.NewClient(c.Client).DBStats(ctx)
	doc.Cache = db.LedgerCache
	for _, b := range db.Buckets {
		if strings.HasPrefix(b.Name, "ledger/") {
			doc.Buckets = append(doc.Buckets, b)
		}
	}
	return doc, err
}

func statsTable(t cli.Table, doc ledgerStats) {
	t.Row("batches", doc.Head.Batches)
	t.Row("records", doc.Head.Seq)
	for _, as := range doc.Assets {
		t.Row("in circulation", FormatAmount(as.SupplyMinor, as.Decimals)+" "+as.Asset)
	}
	if c := doc.Cache; c != nil {
		t.Row("in memory", fmt.Sprintf("%s of %s", cli.Bytes(c.Bytes), cli.Bytes(c.MaxBytes)))
	}
	for _, b := range doc.Buckets {
		t.Row(b.Name, fmt.Sprintf("%d rows, %s", b.Rows, cli.Bytes(b.Bytes)))
	}
}

// CheckTxID refuses a malformed txid.
func CheckTxID(s string) error {
	if _, err := record.ParseTxID(s); err != nil {
		return cli.Usage("%q: %w", s, err)
	}
	return nil
}

// FormatAmount formats minor units of an asset with decimals as people write the amount. It returns
// what it does not understand as it is.
func FormatAmount(minor string, decimals int) string {
	a, err := engines.ParseAmount(minor)
	if err != nil || decimals < 0 || decimals > engines.MaxDecimals {
		return minor
	}
	return a.Decimal(decimals)
}

// FormatMinor formats an amount of an asset whose decimals are not known.
func FormatMinor(amount, asset string) string { return amount + " " + asset + " (minor units)" }

// ReceiptTable prints a receipt with its amount in minor units.
func ReceiptTable(t cli.Table, r record.Receipt) {
	ReceiptRows(t, r, FormatMinor(r.Amount.String(), r.Asset))
}

// ReceiptRows prints a receipt with its amount as given.
func ReceiptRows(t cli.Table, r record.Receipt, amount string) {
	t.Row("txid", r.TxID)
	t.Row("op", r.Op)
	t.Opt("from", r.From)
	t.Opt("to", r.To)
	switch {
	case r.Op.MovesMoney():
		t.Row("amount", amount)
	case r.Asset != "":
		t.Row("asset", r.Asset)
	}
	if r.Op == record.OpScale {
		t.Row("decimals", r.Amount)
	}
	t.Opt("set", r.Set.String())
	t.Opt("cleared", r.Clear.String())
	if r.Nonce != 0 {
		t.Row("nonce", r.Nonce)
	}
	if !r.Hold.IsZero() {
		t.Row("hold", r.Hold)
	}
	t.Opt("key", r.Idem)
	t.Row("time", cli.FormatStamp(time.Unix(0, r.At)))
	t.Row("record", fmt.Sprintf("%d, in batch %d", r.Seq, r.Batch))
	t.Row("receipt hash", r.Hash())
}
