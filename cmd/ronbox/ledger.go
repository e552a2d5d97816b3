package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

func (a *app) ledgerCmd() *cobra.Command {
	return group("ledger", "Prove, check and carry away the journal under the wallet",
		a.ledgerHeadCmd(), a.rootsCmd(), a.ledgerStatsCmd(), a.proofCmd(), a.verifyProofCmd(), a.ledgerAuditCmd(),
		a.ledgerExportCmd(), a.ledgerVerifyCmd(), a.ledgerImportCmd(), a.ledgerRebuildCmd(),
	)
}

func (a *app) ledgerHeadCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "head",
		Short: "Show where the ledger ends",
		Long: `Show where the ledger ends: how many batches it has, the root of the log of their roots,
which stands for all that was ever done, and the last record. Who keeps it can have any
later state proven against it: ` + "`ronbox ledger audit`" + ` does.`,
		Example: `  ronbox ledger head
  ronbox ledger head --json > head.json`,
		Args: exactly(0, "no arguments"),
		RunE: a.online(func(ctx context.Context, c *client.Client, _ []string) error {
			h, err := c.LedgerHead(ctx)
			if err != nil {
				return err
			}
			return a.show(h, func(t table) { ledgerHeadTable(t, h) })
		}),
	}
}

func ledgerHeadTable(t table, h wire.LedgerHead) {
	if h.Batches == 0 {
		t.row("the ledger is empty")
		return
	}
	t.row("batches", h.Batches)
	t.row("log root", h.LogRoot)
	t.row("last root", h.LastRoot)
	t.row("last record", h.Seq)
}

func (a *app) rootsCmd() *cobra.Command {
	var since uint64
	var limit int
	cmd := &cobra.Command{
		Use:   "roots",
		Short: "List batches of the ledger and their roots",
		Long: `List batches of the ledger, the oldest after --since first: the last record of each, its
root and its time. A receipt names the batch and the root that its record is in.`,
		Example: `  ronbox ledger roots --since 40
  ronbox ledger roots --limit 1000 --json | jq -r '.roots[].root'`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().Uint64Var(&since, "since", 0, "begin after this `batch`")
	cmd.Flags().IntVar(&limit, "limit", 100, "at most this many, 1 to 1000")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, _ []string) error {
		if limit < 1 || limit > 1000 {
			return usage("--limit %d: want 1 to 1000", limit)
		}
		list, err := c.Roots(ctx, since, limit)
		if err != nil {
			return err
		}
		return a.show(list, func(t table) { rootsTable(t, list) })
	})
	return cmd
}

func rootsTable(t table, list wire.Roots) {
	if len(list.Roots) == 0 {
		t.row("no batches")
		return
	}
	t.row("BATCH", "LAST RECORD", "TIME", "ROOT")
	for _, r := range list.Roots {
		t.row(r.Batch, r.Seq, stamp(r.TS), r.Root)
	}
	if list.Next != 0 {
		t.row(fmt.Sprintf("more: --since %d", list.Next))
	}
}

// ledgerStats is what ledger stats prints.
type ledgerStats struct {
	Head    wire.LedgerHead    `json:"head"`
	Assets  []wire.Asset       `json:"assets"`
	Buckets []wire.BucketStats `json:"buckets,omitempty"` // only asked for on the node's socket
}

func (a *app) ledgerStatsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats",
		Short: "Show how large the ledger is: batches, records, money, room on disk",
		Long: `Show how large the ledger is: its batches and records, what of each asset is in
circulation, and, asked on the node's socket, the rows and the room of each of its
buckets.`,
		Example: `  ronbox ledger stats
  ronbox ledger stats --json | jq '.buckets[].bytes'`,
		Args: exactly(0, "no arguments"),
		RunE: a.online(func(ctx context.Context, c *client.Client, _ []string) error {
			doc, err := a.ledgerStats(ctx, c)
			if err != nil {
				return err
			}
			return a.show(doc, func(t table) { ledgerStatsTable(t, doc) })
		}),
	}
}

func (a *app) ledgerStats(ctx context.Context, c *client.Client) (doc ledgerStats, err error) {
	if doc.Head, err = c.LedgerHead(ctx); err != nil {
		return doc, err
	}
	list, err := c.Assets(ctx)
	if doc.Assets = list.Assets; err != nil || a.flags.url != "" {
		return doc, err
	}
	db, err := c.DBStats(ctx)
	for _, b := range db.Buckets {
		if strings.HasPrefix(b.Name, "ledger/") {
			doc.Buckets = append(doc.Buckets, b)
		}
	}
	return doc, err
}

func ledgerStatsTable(t table, doc ledgerStats) {
	t.row("batches", doc.Head.Batches)
	t.row("records", doc.Head.Seq)
	for _, as := range doc.Assets {
		t.row("in circulation", minor(as.SupplyMinor, as.Asset))
	}
	for _, b := range doc.Buckets {
		t.row(b.Name, fmt.Sprintf("%d rows, %s", b.Rows, byteUnit(b.Bytes)))
	}
}
