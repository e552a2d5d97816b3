package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

func (a *app) auditCmd() *cobra.Command {
	return group("audit", "Read the node's audit chain: who did what, and how it was decided",
		a.auditTailCmd(), a.auditExportCmd(), a.auditVerifyCmd())
}

type tailFlags struct {
	lines  int
	follow bool
	count  int
}

func (a *app) auditTailCmd() *cobra.Command {
	var f tailFlags
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Show the newest rows of the audit chain, and with --follow those that come",
		Long: `Show the newest rows of the audit chain: tokens made and revoked, keys, configuration,
restores, drains. With --follow those that come are shown too, resumed without a gap
when the connection breaks; Ctrl-C ends it.`,
		Example: `  ronbox audit tail
  ronbox audit tail --lines 100 --json
  ronbox audit tail --follow --lines 0`,
		Args: exactly(0, "no arguments"),
	}
	cmd.Flags().IntVarP(&f.lines, "lines", "n", 10, "how many of the newest rows, up to 1000")
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on with the rows that come")
	cmd.Flags().IntVar(&f.count, "count", 0, "with --follow: end after this many rows in all")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, _ []string) error { return a.auditTail(ctx, c, f) })
	return cmd
}

func (a *app) auditTail(ctx context.Context, c *client.Client, f tailFlags) error {
	if f.lines < 0 || f.lines > auditPage || f.count < 0 {
		return usage("--lines %d --count %d: want numbers from 0, and at most %d lines", f.lines, f.count, auditPage)
	}
	if f.count > 0 && !f.follow {
		return usage("--count %d without --follow: --lines says how many rows there are to be", f.count)
	}
	rows, last, err := newest(ctx, c, f.lines)
	if err != nil {
		return err
	}
	for i, r := range rows {
		if err := a.auditRow(r); err != nil || f.follow && i+1 == f.count {
			return err
		}
	}
	if !f.follow {
		return nil
	}
	seen := len(rows)
	err = c.AuditStream(ctx, client.StreamOptions{
		LastEventID: decimal(last),
		Reconnect: func(cause error, delay time.Duration) {
			a.say("stream broke (%v), again in %s", cause, delay.Round(time.Millisecond))
		},
	}, func(r wire.AuditRow) error {
		if err := a.auditRow(r); err != nil {
			return err
		}
		if seen++; seen == f.count {
			return client.ErrStop
		}
		return nil
	})
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return nil // Ctrl-C is how a person ends it
	}
	return err
}

// newest reads the last n rows, and says which row is the last.
func newest(ctx context.Context, c *client.Client, n int) (rows []wire.AuditRow, last uint64, err error) {
	page, err := c.Audit(ctx, 1, 1) // where the chain stands
	if err != nil || n == 0 || page.Last == 0 {
		return nil, page.Last, err
	}
	from := max(page.First, page.Last-min(uint64(n), page.Last)+1)
	page, err = c.Audit(ctx, from, n)
	if len(page.Rows) > 0 {
		last = page.Rows[len(page.Rows)-1].Seq
	}
	return page.Rows, last, err
}

// auditRow prints one row at once: a table that waits for columns would hold it back.
func (a *app) auditRow(r wire.AuditRow) error {
	if a.flags.json {
		return a.document(r)
	}
	if a.flags.quiet {
		return nil
	}
	return a.raw([]byte(plain(auditText(r)) + "\n"))
}

func auditText(r wire.AuditRow) string {
	who := cmp.Or(r.Principal, "-")
	if r.UID != "" {
		who += " (uid " + r.UID + ")"
	}
	text := fmt.Sprintf("%-6d %s  %-20s %-7s %s", r.Seq, r.At.UTC().Format("2006-01-02T15:04:05.000Z"), r.Event, r.Decision, who)
	var more []string
	if r.Reason != "" {
		more = append(more, r.Reason)
	}
	for _, k := range slices.Sorted(maps.Keys(r.Detail)) {
		if r.Detail[k] != "" {
			more = append(more, k+"="+r.Detail[k])
		}
	}
	if len(more) > 0 {
		text += "  " + strings.Join(more, " ")
	}
	return text
}
