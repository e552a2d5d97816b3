package db

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"ronbox/appliance"
	"ronbox/cmd/ronbox/cli"
	"ronbox/store"
)

func (a app) compactCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "compact [FILE]",
		Short: "Rewrite a stopped node's database without the room that deleted rows left",
		Long: `Rewrite a stopped node's database without the room that deleted rows left. The copy is
built beside the file, must hold the same state (equal state hash), and takes its place
in one step; until then the old file is untouched. Worth it when ` + "`ronbox db info`" + ` shows
more than half of the file free. Without FILE it is the database of --data-dir.`,
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
		Short: "Bring a stopped node's database to the schema of this release",
		Long: `Bring a stopped node's database to the schema of this release, as ` + "`ronbox serve`" + ` does by
itself at its start; this verb is for doing it beforehand and watching it. A snapshot of
the old schema is taken first and kept. What is interrupted goes on where it stopped. A
file of a newer release is refused (exit 78). Without FILE it is the database of
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
	done, err := store.Migrate(ctx, file, dir, appliance.Migrations(), func(stage string, done, total int64) {
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
		Short: "Print every row of a database file as NDJSON, for other tools and for comparing",
		Long: `Print every row of a database file that no process holds, as NDJSON: bucket, key in
hexadecimal, value in base64, in byte order, so that equal states give equal exports.
Without FILE it is the database of --data-dir. Of a running node, export a snapshot.

There is nothing that reads an export back in: snapshots are for that.`,
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
