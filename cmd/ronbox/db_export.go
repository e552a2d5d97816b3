package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/spf13/cobra"

	"ronbox/store"
)

func (a *app) dbExportCmd() *cobra.Command {
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
		Args: atMost(1, "at most one database file"),
	}
	cmd.Flags().StringVar(&out, "out", "", "write to this new `file` instead of stdout")
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error { return a.dbExport(ctx, args, out) })
	return cmd
}

func (a *app) dbExport(ctx context.Context, args []string, out string) error {
	file, err := a.databaseArg(args)
	if err != nil {
		return err
	}
	p := a.progress(byteUnit)
	p.begin("export")
	defer p.end()
	if out == "" {
		if terminal(a.stdout) {
			p.w = nil // it would stand between the rows
		}
		_, err := store.Export(ctx, file, a.stdout, p.at)
		return err
	}
	doc := exportDoc{File: out}
	err = produceFile(out, 0o600, func(w io.Writer) (err error) {
		counted := &counter{w: w}
		doc.Rows, err = store.Export(ctx, file, counted, p.at)
		doc.Bytes = counted.n
		return err
	})
	if err != nil {
		return err
	}
	p.end()
	return a.show(doc, func(t table) { exportTable(t, doc) })
}

// databaseArg is the database file that an offline verb is about: the one named, or that of the data directory.
func (a *app) databaseArg(args []string) (string, error) {
	if len(args) == 1 {
		return args[0], regular(args[0])
	}
	file, err := a.database()
	if err != nil {
		return "", err
	}
	err = regular(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", failed(exitFailed, "not_found", "make a node with `ronbox init`, or correct --data-dir", "there is no database in %s", filepath.Dir(file))
	}
	return file, err
}
