package db

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/store"
)

func (a app) compactCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "compact [FILE]",
		Short: "Compact a stopped node's database",
		Long: `Compact a stopped node's database: copy its rows to a new file without free pages, check
that both have the same state hash, and replace the old file atomically. Until then the
old file is unchanged. Compact when ` + "`ronbox db info`" + ` shows more than half of the file
free. If FILE is a symbolic link, the file that it names is replaced and the link stays.
FILE defaults to the database of --data-dir.`,
		Example: `  ronbox --data-dir data db compact
  ronbox --data-dir data db compact --json`,
		Args: cli.AtMost(1, "at most one database file"),
		RunE: a.Verb(a.compact),
	}
}

func (a app) compact(ctx context.Context, args []string) error {
	file, err := a.RewritableFile(args)
	if err != nil {
		return err
	}
	p := a.Progress(cli.Bytes, "compact")
	done, err := store.Compact(ctx, file, p.At)
	p.End()
	if err != nil {
		return err
	}
	return a.Show(done, func(t cli.Table) {
		t.Row("compacted", file)
		t.Row("size", cli.Bytes(done.After)+", before "+cli.Bytes(done.Before))
		t.Row("state hash", done.StateHash)
	})
}

func (a app) migrateCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "migrate [FILE]",
		Short: "Migrate a stopped node's database to the schema of this release",
		Long: `Migrate a stopped node's database to the schema of this release. ` + "`ronbox serve`" + ` does the
same when it starts; use this verb to do it beforehand and see its progress. A snapshot
of the old schema is taken first and kept. An interrupted migration resumes where it
stopped. A file of a newer release is refused (exit 78). FILE defaults to the database of
--data-dir.`,
		Example: `  ronbox --data-dir data db migrate
  ronbox --data-dir data db migrate --snapshot-dir /backup/ronbox --json`,
		Args: cli.AtMost(1, "at most one database file"),
	}
	cmd.Flags().StringVar(&dir, "snapshot-dir", "", "`directory` of the snapshot (default where the database is)")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error { return a.migrate(ctx, args, dir) })
	return cmd
}

func (a app) migrate(ctx context.Context, args []string, dir string) error {
	file, err := a.RewritableFile(args)
	if err != nil {
		return err
	}
	p := a.Progress(cli.Count, "")
	defer p.End()
	done, err := store.Migrate(ctx, file, dir, wiring.Migrations(), func(stage string, done, total int64) {
		p.Stage(stage)
		p.At(done, total)
	})
	p.End()
	if err != nil {
		return err
	}
	return a.Show(done, func(t cli.Table) {
		if done.From == done.To {
			t.Row("schema", cli.Decimal(uint64(done.To))+" already; nothing to do")
			return
		}
		t.Row("schema", cli.Decimal(uint64(done.To))+", before "+cli.Decimal(uint64(done.From)))
		t.Row("snapshot before", done.Snapshot)
	})
}

func (a app) exportCmd() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "export [FILE]",
		Short: "Export every row of a database file as NDJSON",
		Long: `Export every row of a database file that no process has open as NDJSON: bucket, key in
hexadecimal, value in base64. Rows are in byte order, so equal states have equal exports.
FILE defaults to the database of --data-dir. For a running node, export a snapshot.

An export cannot be imported; use snapshots to restore a node.`,
		Example: `  ronbox db export /backup/ronbox/ronbox-….db --out rows.ndjson
  ronbox --data-dir data db export | jq -r .bucket | uniq -c
  ronbox --data-dir data db export --out rows.ndjson --json`,
		Args: cli.AtMost(1, "at most one database file"),
	}
	cmd.Flags().StringVar(&out, "out", "", "write to this new `file` instead of stdout")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error { return a.export(ctx, args, out) })
	return cmd
}

func (a app) export(ctx context.Context, args []string, out string) error {
	file, err := a.DatabaseFile(args)
	if err != nil {
		return err
	}
	p := a.Progress(cli.Bytes, "export")
	defer p.End()
	if out == "" {
		if cli.IsTerminal(a.Stdout) {
			p.Silence() // it would stand between the rows
		}
		_, err := store.Export(ctx, file, a.Stdout, p.At)
		return err
	}
	doc := cli.Exported{File: out}
	doc.Bytes, err = cli.ProduceFile(out, 0o600, func(w io.Writer) (err error) {
		doc.Rows, err = store.Export(ctx, file, w, p.At)
		return err
	})
	if err != nil {
		return err
	}
	p.End()
	return a.Show(doc, doc.Table)
}
