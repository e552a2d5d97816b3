package main

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

func (a *app) dbCmd() *cobra.Command {
	return group("db", "Look after the database file",
		a.dbInfoCmd(), a.dbSnapshotCmd(), a.dbVerifyCmd(), a.dbRestoreCmd(), a.dbAcceptRestoreCmd())
}

func (a *app) dbInfoCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "info [FILE]",
		Short: "Show the figures of the node's database, or of a database file that no node holds",
		Args:  atMost(1, "at most one database file"),
		RunE:  a.verb(a.dbInfo),
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
	if !errors.Is(err, client.ErrNotReachable) || a.flags.url != "" || a.flags.socket != "" {
		return info, err
	}
	file, fileErr := a.database()
	if fileErr != nil || !exists(file) {
		return wire.DBInfo{}, err // no node and no file: the first is the better message
	}
	return offlineInfo(ctx, file, false)
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
	t.row("last stop", map[bool]string{true: "clean", false: "unclean, or it runs"}[i.Clean])
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
	return &cobra.Command{
		Use:     "snapshot DIR",
		Example: `  ronbox --data-dir data db snapshot /backup/ronbox`,
		Short:   "Have the node write a snapshot of its database while it goes on",
		Args:    exactly(1, "one directory"),
		RunE:    a.verb(a.dbSnapshot),
	}
}

func (a *app) dbSnapshot(ctx context.Context, args []string) error {
	dir, err := filepath.Abs(args[0]) // the node has another working directory
	if err != nil {
		return err
	}
	c, err := a.node()
	if err != nil {
		return err
	}
	defer c.Close()
	p := a.progress(byteUnit)
	p.begin("snapshot")
	snap, err := c.Snapshot(ctx, dir, p.at)
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
		Args:  exactly(0, "no arguments"),
		RunE:  a.verb(a.dbAcceptRestore),
	}
}

func (a *app) dbAcceptRestore(ctx context.Context, _ []string) error {
	c, err := a.node()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.AcceptRestore(ctx); err != nil {
		return err
	}
	return a.show(accepted{Accepted: true}, func(t table) { t.row("accepted: the node writes again") })
}

type accepted struct {
	Accepted bool `json:"accepted"`
}
