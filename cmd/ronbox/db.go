package main

import (
	"context"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

func (a *app) dbCmd() *cobra.Command {
	return group("db", "Look after the database file",
		a.dbInfoCmd(), a.dbStatsCmd(), a.dbCheckCmd(), a.dbSnapshotCmd(), a.dbVerifyCmd(), a.dbRestoreCmd(), a.dbAcceptRestoreCmd(),
		a.dbCompactCmd(), a.dbMigrateCmd(), a.dbExportCmd())
}

func (a *app) dbInfoCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "info [FILE]",
		Short: "Show the figures of the node's database, or of a database file that no node holds",
		Long: `Show the figures of the running node's database. When no node runs, or with FILE, a
database file that no process holds is read itself, rows counted.`,
		Example: `  ronbox --data-dir data db info
  ronbox db info /backup/ronbox-….db --json`,
		Args: atMost(1, "at most one database file"),
		RunE: a.verb(a.dbInfo),
	}
}

// dbInfo asks the node; when none runs, it reads the file.
func (a *app) dbInfo(ctx context.Context, args []string) error {
	info, err := a.readDBInfo(ctx, args)
	if err != nil {
		return err
	}
	return a.show(info, func(t table) { dbInfoTable(t, info) })
}

func (a *app) readDBInfo(ctx context.Context, args []string) (wire.DBInfo, error) {
	if len(args) == 1 {
		return offlineInfo(ctx, args[0], false)
	}
	c, err := a.node()
	if err != nil {
		return wire.DBInfo{}, err
	}
	defer c.Close()
	info, err := c.DBInfo(ctx)
	if file, here := a.instead(err); here {
		return offlineInfo(ctx, file, false)
	}
	return info, err
}

func dbInfoTable(t table, i wire.DBInfo) {
	t.row("file", i.File)
	t.row("node", i.NodeID)
	t.row("incarnation", i.Incarnation)
	t.row("schema", i.Schema)
	t.row("commands", i.Seq)
	t.row("size", byteUnit(i.Bytes))
	if i.MaxBytes > 0 {
		t.row("limit", byteUnit(i.MaxBytes))
	}
	if i.FreeBytes > 0 {
		t.row("free inside", byteUnit(i.FreeBytes))
	}
	t.row("last stop", map[bool]string{true: "clean", false: "unclean, or copied while it ran"}[i.Clean])
	if i.Restored {
		t.row("restored", "from "+i.RestoredFrom+"; writes wait for `ronbox db accept-restore`")
	}
	if i.StateHash != "" {
		t.row("state hash", i.StateHash)
	}
	for _, name := range slices.Sorted(maps.Keys(i.Buckets)) {
		t.row("rows in "+name, i.Buckets[name])
	}
}

func (a *app) dbSnapshotCmd() *cobra.Command {
	var compact bool
	cmd := &cobra.Command{
		Use:   "snapshot DIR",
		Short: "Have the node write a snapshot of its database while it goes on",
		Long: `Have the node write a snapshot of its database into DIR, a directory on its own disk, with
a manifest beside it, while it goes on taking writes. With --compact it is a copy without
the room and the remains of deleted rows, which takes longer. Snapshots hold no secrets:
keep node.key and the signers' keys apart. ` + "`ronbox db verify`" + ` proves one sound.

` + "`store.snapshot_every`" + ` in the configuration takes them by itself, and thins them out.`,
		Example: `  ronbox --data-dir data db snapshot /backup/ronbox
  ronbox --data-dir data db snapshot /backup/ronbox --compact --json`,
		Args: exactly(1, "one directory"),
	}
	cmd.Flags().BoolVar(&compact, "compact", false, "a copy without deleted rows, rather than the file as it is")
	cmd.RunE = a.online(func(ctx context.Context, c *client.Client, args []string) error {
		return a.dbSnapshot(ctx, c, args[0], compact)
	})
	return cmd
}

func (a *app) dbSnapshot(ctx context.Context, c *client.Client, dir string, compact bool) error {
	dir, err := filepath.Abs(dir) // the node has another working directory
	if err != nil {
		return err
	}
	p := a.progress(byteUnit)
	p.begin("snapshot")
	snap, err := c.Snapshot(ctx, wire.SnapshotRequest{Dir: dir, Compact: compact}, p.at)
	p.end()
	if err != nil {
		return err
	}
	return a.show(snap, func(t table) {
		t.row("file", snap.File)
		t.row("manifest", snap.Manifest)
		t.row("b3", snap.B3)
		t.row("commands", snap.Seq)
		t.row("check it with", "ronbox db verify "+snap.File)
	})
}

func (a *app) dbAcceptRestoreCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "accept-restore",
		Short: "Let a restored node write again, once its state has been looked at",
		Long: `Let a restored node write again, once its state has been looked at. A restore may have
taken back what others have seen: look at ` + "`ronbox registry head`" + ` and at the time of the
snapshot first. Nothing but this verb ends the read-only state. Where nothing was
restored, nothing is done.`,
		Example: `  ronbox registry head && ronbox db accept-restore
  ronbox db accept-restore --json`,
		Args: exactly(0, "no arguments"),
		RunE: a.verb(a.dbAcceptRestore),
	}
}

func (a *app) dbAcceptRestore(ctx context.Context, _ []string) error {
	c, err := a.node()
	if err != nil {
		return err
	}
	defer c.Close()
	info, err := c.DBInfo(ctx)
	if err != nil {
		return err
	}
	if !info.Restored {
		return a.show(accepted{}, func(t table) { t.row("nothing to accept: the node was not restored, or that is accepted already") })
	}
	if err := c.AcceptRestore(ctx); err != nil {
		return err
	}
	return a.show(accepted{Accepted: true}, func(t table) { t.row("accepted: the node writes again") })
}

type accepted struct {
	Accepted bool `json:"accepted"` // false: there was nothing to accept
}
