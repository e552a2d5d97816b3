package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"ronbox/httpapi/wire"
	"ronbox/store"
)

func (a *app) dbStatsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats [FILE]",
		Short: "Show what takes the room in the database, and how the committer is doing",
		Long: `Show what takes the room in the database: pages, free pages, rows and bytes of every
bucket; and of a running node how its committer is doing: commands, groups, the time a
commit takes, open readers. When no node runs, or with FILE, a database file that no
process holds is read itself.`,
		Example: `  ronbox --data-dir data db stats
  ronbox db stats --json | jq '.buckets | sort_by(.bytes) | last'`,
		Args: atMost(1, "at most one database file"),
		RunE: a.verb(a.dbStats),
	}
}

func (a *app) dbStats(ctx context.Context, args []string) error {
	s, err := a.readStats(ctx, args)
	if err != nil {
		return err
	}
	return a.show(s, func(t table) { statsTable(t, s) })
}

func (a *app) readStats(ctx context.Context, args []string) (wire.DBStats, error) {
	if len(args) == 1 {
		return offlineStats(ctx, args[0])
	}
	c, err := a.node()
	if err != nil {
		return wire.DBStats{}, err
	}
	defer c.Close()
	s, err := c.DBStats(ctx)
	if file, here := a.instead(err); here {
		return offlineStats(ctx, file)
	}
	return s, err
}

func statsTable(t table, s wire.DBStats) {
	t.row("size", byteUnit(s.Bytes)+limit(s.MaxBytes))
	t.row("free inside", fmt.Sprintf("%s, %d pages free, %d pending", byteUnit(s.FreeBytes), s.FreePages, s.PendingPages))
	if s.DiskFreeBytes > 0 {
		t.row("free on disk", byteUnit(s.DiskFreeBytes))
	}
	if s.Groups > 0 {
		t.row("commits", fmt.Sprintf("%d commands in %d commits, %g in one at the median, %g at p99", s.Commands, s.Groups, s.BatchP50, s.BatchP99))
		t.row("commit takes", fmt.Sprintf("%.3g ms at the median, %.3g ms at p99", s.CommitP50MS, s.CommitP99MS))
	}
	if s.Readers > 0 {
		t.row("readers", fmt.Sprintf("%d open, the oldest for %.3g s", s.Readers, s.OldestReaderSeconds))
	}
	for _, b := range s.Buckets {
		size := byteUnit(b.Bytes)
		if b.Bytes == 0 {
			size = "no page of its own"
		}
		t.row("in "+b.Name, fmt.Sprintf("%d rows, %s, depth %d, %s", b.Rows, size, b.Depth, b.Class))
	}
}

func limit(most int64) string {
	if most == 0 {
		return ""
	}
	return " of " + byteUnit(most)
}

// offlineStats reads the figures of a file that no node holds: there is no committer to tell of.
func offlineStats(ctx context.Context, file string) (wire.DBStats, error) {
	if err := regular(file); err != nil {
		return wire.DBStats{}, err
	}
	r, err := store.OpenReader(file)
	if err != nil {
		return wire.DBStats{}, err
	}
	s, err := r.Stats(ctx)
	out := wire.DBStats{
		Bytes: s.Bytes, FreeBytes: s.FreePages * int64(s.PageSize), PageSize: s.PageSize, FreePages: int(s.FreePages),
		Buckets: []wire.BucketStats{},
	}
	for _, b := range s.Buckets {
		out.Buckets = append(out.Buckets, wire.BucketStats{Name: b.Name, Class: b.Class.String(), Rows: b.Rows, Bytes: b.Bytes, Depth: b.Depth})
	}
	return out, errors.Join(err, r.Close())
}
