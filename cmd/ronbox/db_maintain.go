package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/spf13/cobra"

	"ronbox/store"
)

func (a *app) dbCompactCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "compact [FILE]",
		Short: "Rewrite a stopped node's database without the room that deleted rows left",
		Long: `Rewrite a stopped node's database without the room that deleted rows left. The copy is
built beside the file, must hold the same state (equal state hash), and takes its place
in one step; until then the old file is untouched. Worth it when ` + "`ronbox db info`" + ` shows
more than half of the file free. Without FILE it is the database of --data-dir.`,
		Example: `  ronbox --data-dir data db compact
  ronbox --data-dir data db compact --json`,
		Args: atMost(1, "at most one database file"),
		RunE: a.verb(a.dbCompact),
	}
}

func (a *app) dbCompact(ctx context.Context, args []string) error {
	file, err := a.rewritable(args)
	if err != nil {
		return err
	}
	p := a.progress(byteUnit)
	p.begin("compact")
	done, err := store.Compact(ctx, file, p.at)
	p.end()
	if err != nil {
		return err
	}
	return a.show(done, func(t table) {
		t.row("compacted", file)
		t.row("size", byteUnit(done.After)+", before "+byteUnit(done.Before))
		t.row("state hash", done.StateHash)
	})
}

// rewritable is databaseArg for what rewrites the file: a snapshot would no longer be what its manifest says.
func (a *app) rewritable(args []string) (string, error) {
	file, err := a.databaseArg(args)
	if err != nil {
		return "", err
	}
	if _, err := store.ReadManifest(file); !errors.Is(err, fs.ErrNotExist) {
		return "", failed(exitFailed, "snapshot", "restore it into an empty --data-dir with `ronbox db restore`, and work there",
			"%s is a snapshot: its manifest would no longer fit it", file)
	}
	return file, nil
}

func (a *app) dbMigrateCmd() *cobra.Command {
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
		Args: atMost(1, "at most one database file"),
	}
	cmd.Flags().StringVar(&dir, "snapshot-dir", "", "`directory` of the snapshot (default where the database is)")
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error { return a.dbMigrate(ctx, args, dir) })
	return cmd
}

func (a *app) dbMigrate(ctx context.Context, args []string, dir string) error {
	file, err := a.rewritable(args)
	if err != nil {
		return err
	}
	p := a.progress(countUnit)
	defer p.end()
	done, err := store.Migrate(ctx, file, dir, func(stage string, done, total int64) {
		p.during(stage)
		p.at(done, total)
	})
	p.end()
	if err != nil {
		return err
	}
	return a.show(done, func(t table) {
		if done.From == done.To {
			t.row("schema", decimal(uint64(done.To))+" already; nothing to do")
			return
		}
		t.row("schema", decimal(uint64(done.To))+", before "+decimal(uint64(done.From)))
		t.row("snapshot before", done.Snapshot)
	})
}
