package ledger

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	ledgerapi "ronbox/httpapi/wire/ledger"
	nodeapi "ronbox/httpapi/wire/node"
)

// closing are the flags of the verb close.
type closing struct {
	before, keep, dir         string
	fast, dry, status, cancel bool
}

func (a app) closeCmd() *cobra.Command {
	var f closing
	cmd := &cobra.Command{
		Use:   "close (--before TIME | --keep AGE)",
		Short: "Close a period: old records leave the database into a file",
		Long: `Close all records of the running node's ledger that are older than --before, or than
--keep counts back from now. The node writes them into a file of ledger.periods_dir,
verifies what the disk has of it, records the closing, and drops them from the database as
room is needed. Balances, holds, nonces and names stay as they are, and a reference that
was used stays used for ever: a repeated payment is refused with period_closed.

With an archive (` + "`archive.target`" + `) the file is copied there before the period is closed.
Else copy it: nothing else has the records (` + "`ronbox ledger verify --periods`" + `).
Records whose idempotency keys still count stay open. --fast works without rests:
payments are slower meanwhile.

Exit 20: no record can be closed; the message says why.`,
		Example: `  ronbox ledger close --keep 400d --dry-run
  ronbox ledger close --before 2026-01-01T00:00:00Z --yes
  ronbox ledger close --status --json | jq -r .state`,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.before, "before", "", "close records older than this `time` (RFC 3339)")
	flags.StringVar(&f.keep, "keep", "", "close records older than this `age`, such as 400d")
	flags.StringVar(&f.dir, "out-dir", "", "write the file into this `folder` of the node (default ledger.periods_dir)")
	flags.BoolVar(&f.fast, "fast", false, "without rests")
	flags.BoolVar(&f.dry, "dry-run", false, "show what would be closed")
	flags.BoolVar(&f.status, "status", false, "show the closing under way")
	flags.BoolVar(&f.cancel, "cancel", false, "end the closing under way, unless its period is closed")
	cmd.MarkFlagsMutuallyExclusive("before", "keep", "status", "cancel")
	for _, flag := range []string{"out-dir", "fast", "dry-run"} {
		cmd.MarkFlagsMutuallyExclusive(flag, "status")
		cmd.MarkFlagsMutuallyExclusive(flag, "cancel")
	}
	cmd.MarkFlagsOneRequired("before", "keep", "status", "cancel")
	cmd.RunE = cli.Online(a.App, nodeapi.NewClient, func(ctx context.Context, c nodeapi.Client, _ []string) error {
		return a.close(ctx, c, f)
	})
	return cmd
}

func (a app) close(ctx context.Context, c nodeapi.Client, f closing) error {
	var s nodeapi.LedgerClosing
	var err error
	switch {
	case f.status:
		s, err = c.LedgerClosing(ctx)
	case f.cancel:
		s, err = c.CancelLedgerClose(ctx)
	default:
		s, err = a.begin(ctx, c, f)
	}
	if err != nil {
		return err
	}
	return a.Show(s, func(t cli.Table) { closingTable(t, s) })
}

// begin shows what would be closed, asks, and begins the closing.
func (a app) begin(ctx context.Context, c nodeapi.Client, f closing) (s nodeapi.LedgerClosing, err error) {
	r := nodeapi.LedgerCloseRequest{Before: f.before, Keep: f.keep, Fast: f.fast}
	if f.dir != "" {
		if r.OutDir, err = filepath.Abs(f.dir); err != nil { // the node has another working directory
			return s, err
		}
	}
	if _, field, fault := r.Time(time.Time{}); field != "" {
		return s, cli.Usage("--%s: %s", field, fault)
	}
	if r.DryRun = f.dry || !a.Flags.PrintCurl; !r.DryRun {
		return c.CloseLedger(ctx, r) // to be printed
	}
	if s, err = c.CloseLedger(ctx, r); err != nil || f.dry {
		return s, err
	}
	fact := fmt.Sprintf("%d records up to %s leave the database into %s", s.Total, cli.FormatTime(s.ToAt), s.File)
	if err := a.Agree(fact, "close period "+fmt.Sprint(s.Period)); err != nil {
		return s, err
	}
	r.DryRun, r.Keep, r.Before = false, "", s.ToAt.Add(1).Format(time.RFC3339Nano) // what was shown, and no more
	return c.CloseLedger(ctx, r)
}

func closingTable(t cli.Table, s nodeapi.LedgerClosing) {
	t.Row("state", cli.Verdict(s.State != "failed", s.State, s.State))
	if s.Period != 0 {
		t.Row("period", s.Period)
	}
	if s.FromSeq != 0 {
		t.Row("records", fmt.Sprintf("%d to %d, the last of %s", s.FromSeq, s.ToSeq, cli.FormatTime(s.ToAt)))
	} else if s.ToSeq != 0 {
		t.Row("last record", s.ToSeq)
	}
	if s.Total != 0 && s.FromSeq == 0 {
		t.Row("done", fmt.Sprintf("%d of %d", s.Done, s.Total))
	}
	if !s.DueAt.IsZero() {
		t.Row("next due", cli.FormatTime(s.DueAt))
	}
	t.Opt("file", s.File)
	t.Opt("error", s.Error)
	if row := cli.Refusals["node"].Find(s.Reason, ""); row != nil {
		t.Row("next", row.Advice(map[string]any{"path": s.File}))
	}
}

func (a app) periodsCmd() *cobra.Command {
	var after uint64
	cmd := &cobra.Command{
		Use:   "periods [N]",
		Short: "List the closed periods of the ledger, or show one with its statement",
		Long: `List the closed periods of the ledger after --after, oldest first: their records, their
times, their files and their copies in the archive. With N show period N with its
statement, which proves what the file holds: the ledger has recorded its digest.`,
		Example: `  ronbox ledger periods
  ronbox ledger periods 3
  ronbox ledger periods --json | jq -r '.periods[-1].statement'`,
		Args: cli.AtMost(1, "at most the number of a period"),
	}
	cmd.Flags().Uint64Var(&after, "after", 0, "list the periods after this `number`")
	cmd.RunE = a.online(func(ctx context.Context, c ledgerapi.Client, args []string) error {
		if len(args) == 0 {
			return a.periods(ctx, c, after)
		}
		n, err := strconv.ParseUint(args[0], 10, 53)
		if err != nil || n == 0 || cmd.Flags().Changed("after") {
			return cli.Usage("%q: give the number of one period, from 1, or --after", args[0])
		}
		p, err := c.LedgerPeriod(ctx, n)
		if err != nil {
			return err
		}
		return a.Show(p, func(t cli.Table) { periodTable(t, p) })
	})
	return cmd
}

func (a app) periods(ctx context.Context, c ledgerapi.Client, after uint64) error {
	list, err := c.LedgerPeriods(ctx, after)
	if err != nil {
		return err
	}
	return a.Show(list, func(t cli.Table) {
		if len(list.Periods) == 0 {
			t.Row("no period is closed")
			return
		}
		t.Row("PERIOD", "RECORDS", "FROM", "TO", "SIZE", "COPIES", "FILE")
		for _, p := range list.Periods {
			t.Row(p.Period, fmt.Sprintf("%d-%d", p.FromSeq, p.ToSeq), cli.FormatTime(p.FromAt.Time),
				cli.FormatTime(p.ToAt.Time), cli.Bytes(int64(p.Bytes)), p.Copies, p.File)
		}
		if list.Next != 0 {
			t.Row(fmt.Sprintf("more: --after %d", list.Next))
		}
	})
}

func periodTable(t cli.Table, p ledgerapi.LedgerPeriod) {
	t.Row("period", p.Period)
	t.Row("records", fmt.Sprintf("%d to %d, in batches %d to %d", p.FromSeq, p.ToSeq, p.FromBatch, p.ToBatch))
	t.Row("time", fmt.Sprintf("%s to %s", cli.FormatTime(p.FromAt.Time), cli.FormatTime(p.ToAt.Time)))
	t.Row("closed", fmt.Sprintf("%s, by record %d", cli.FormatTime(p.ClosedAt.Time), p.CloseSeq))
	t.Row("log root", p.LogRoot)
	t.Row("state root", p.StateRoot)
	t.Row("file", fmt.Sprintf("%s, %s, %d copies in the archive", p.File, cli.Bytes(int64(p.Bytes)), p.Copies))
	t.Row("hash of file", p.FileB3)
	t.Row("hash of lines", p.ContentB3)
	t.Row("statement", p.Statement)
}
