package db

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// app adds the verbs of this package to the run of the command.
type app struct{ *cli.App }

// online returns the RunE of a verb that calls the node.
func (a app) online(run func(ctx context.Context, c nodeapi.Client, args []string) error) cli.RunE {
	return cli.Online(a.App, nodeapi.NewClient, run)
}

// Command returns the group of verbs for the database file.
func Command(c *cli.App) *cobra.Command {
	a := app{c}
	return cli.Group("db", "Inspect, back up and maintain the database",
		a.infoCmd(), a.statsCmd(), a.checkCmd(), a.snapshotCmd(), a.snapshotsCmd(), a.verifyCmd(), a.restoreCmd(),
		a.acceptRestoreCmd(), a.compactCmd(), a.migrateCmd(), a.exportCmd())
}

func (a app) infoCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "info [FILE]",
		Short: "Show the identity, size and row counts of the database",
		Long: `Show the identity and size of the running node's database. If no node runs, or with
FILE, the database file is read directly and its rows are counted; no process may have
it open.`,
		Example: `  ronbox --data-dir data db info
  ronbox db info /backup/ronbox-….db --json`,
		Args: cli.AtMost(1, "at most one database file"),
		RunE: fromNodeOrFile(a, nodeapi.Client.DBInfo,
			func(ctx context.Context, file string) (nodeapi.DBInfo, error) { return ReadInfo(ctx, file, false) },
			func(i nodeapi.DBInfo) error { return a.Show(i, func(t cli.Table) { infoTable(t, i) }) }),
	}
}

// fromNodeOrFile returns the RunE of a verb that asks the node, or reads the given file or the file
// of a stopped node.
func fromNodeOrFile[T any](
	a app,
	ask func(nodeapi.Client, context.Context) (T, error),
	read func(ctx context.Context, file string) (T, error),
	show func(T) error,
) cli.RunE {
	get := func(ctx context.Context, args []string) (doc T, err error) {
		if len(args) == 1 {
			return read(ctx, args[0])
		}
		c, err := a.Client()
		if err != nil {
			return doc, err
		}
		defer c.Close()
		doc, err = ask(nodeapi.NewClient(c), ctx)
		if file, here := a.FileInstead(err); here {
			return read(ctx, file)
		}
		return doc, err
	}
	return a.Verb(func(ctx context.Context, args []string) error {
		doc, err := get(ctx, args)
		if err != nil {
			return err
		}
		return show(doc)
	})
}

func infoTable(t cli.Table, i nodeapi.DBInfo) {
	t.Row("file", i.File)
	t.Row("node", i.NodeID)
	t.Row("incarnation", i.Incarnation)
	t.Row("schema", i.Schema)
	t.Row("commands", i.Seq)
	t.Row("size", cli.Bytes(i.Bytes))
	if i.MaxBytes > 0 {
		t.Row("limit", cli.Bytes(i.MaxBytes))
	}
	if i.FreeBytes > 0 {
		t.Row("free inside", cli.Bytes(i.FreeBytes))
	}
	t.Row("last stop", map[bool]string{true: "clean", false: "unclean, or copied while it ran"}[i.Clean])
	if i.Restored {
		t.Row("restored", "from "+i.RestoredFrom+"; writes wait for `ronbox db accept-restore`")
	}
	t.Opt("state hash", i.StateHash)
	for _, name := range slices.Sorted(maps.Keys(i.Buckets)) {
		t.Row("rows in "+name, i.Buckets[name])
	}
}

// ReadInfo reads the information of a file that no node has open. hash adds the state hash,
// which reads every row.
func ReadInfo(ctx context.Context, file string, hash bool) (doc nodeapi.DBInfo, err error) {
	err = cli.ReadDatabase(file, func(r *store.ReadOnly) error {
		i := r.Info()
		doc = nodeapi.DBInfo{
			File: file, NodeID: i.NodeID, Incarnation: i.Incarnation, Schema: i.Schema, Seq: i.Seq, Clean: i.Clean,
			Restored: i.Restored, RestoredFrom: i.RestoredFrom, AuthEpoch: i.AuthEpoch, Bytes: r.Size(),
			Buckets: map[string]uint64{},
		}
		return r.View(ctx, func(rd store.Reader) error {
			for _, b := range r.Buckets() {
				n := uint64(0)
				for range rd.Range(b, nil, nil) {
					n++
				}
				doc.Buckets[b.Name] = n
			}
			if hash {
				doc.StateHash = store.StateHash(rd, r.Buckets()).String()
			}
			return ctx.Err()
		})
	})
	return doc, err
}

func (a app) statsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "stats [FILE]",
		Short: "Show space usage and commit statistics of the database",
		Long: `Show the space usage of the database: pages, free pages, and the rows and bytes of every
bucket. A running node adds its commit statistics: commands, groups, commit latency, open
readers. If no node runs, or with FILE, the database file is read directly; no process
may have it open.`,
		Example: `  ronbox --data-dir data db stats
  ronbox db stats --json | jq '.buckets | sort_by(.bytes) | last'`,
		Args: cli.AtMost(1, "at most one database file"),
		RunE: fromNodeOrFile(a, nodeapi.Client.DBStats, ReadStats,
			func(s nodeapi.DBStats) error { return a.Show(s, func(t cli.Table) { statsTable(t, s) }) }),
	}
}

func statsTable(t cli.Table, s nodeapi.DBStats) {
	t.Row("size", cli.Bytes(s.Bytes)+limit(s.MaxBytes))
	t.Row(
		"free inside",
		fmt.Sprintf("%s, %d pages free, %d pending", cli.Bytes(s.FreeBytes), s.FreePages, s.PendingPages),
	)
	if s.DiskFreeBytes > 0 {
		t.Row("free on disk", cli.Bytes(s.DiskFreeBytes))
	}
	if s.Groups > 0 {
		t.Row(
			"commits",
			fmt.Sprintf("%d commands in %d commits, %g in one at the median, %g at p99", s.Commands, s.Groups,
				s.BatchP50, s.BatchP99),
		)
		t.Row("commit takes", fmt.Sprintf("%.3g ms at the median, %.3g ms at p99", s.CommitP50MS, s.CommitP99MS))
	}
	if s.Readers > 0 {
		t.Row("readers", fmt.Sprintf("%d open, the oldest for %.3g s", s.Readers, s.OldestReaderSeconds))
	}
	for _, b := range s.Buckets {
		size := cli.Bytes(b.Bytes)
		if b.Bytes == 0 {
			size = "no page of its own"
		}
		t.Row("in "+b.Name, fmt.Sprintf("%d rows, %s, depth %d, %s", b.Rows, size, b.Depth, b.Class))
	}
}

func limit(most int64) string {
	if most == 0 {
		return ""
	}
	return " of " + cli.Bytes(most)
}

// ReadStats reads the statistics of a file that no node has open.
func ReadStats(ctx context.Context, file string) (doc nodeapi.DBStats, err error) {
	err = cli.ReadDatabase(file, func(r *store.ReadOnly) error {
		s, err := r.Stats(ctx)
		doc = nodeapi.DBStats{
			Bytes:     s.Bytes,
			FreeBytes: s.FreePages * int64(s.PageSize),
			PageSize:  s.PageSize,
			FreePages: int(s.FreePages),
			Buckets:   []nodeapi.BucketStats{},
		}
		for _, b := range s.Buckets {
			doc.Buckets = append(
				doc.Buckets,
				nodeapi.BucketStats{
					Name:  b.Name,
					Class: b.Class.String(),
					Rows:  b.Rows,
					Bytes: b.Bytes,
					Depth: b.Depth,
				},
			)
		}
		return err
	})
	return doc, err
}
