package db

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/registry"
	"ronbox/httpapi/wire"
	ledgerapi "ronbox/httpapi/wire/ledger"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

func (a app) snapshotCmd() *cobra.Command {
	var compact bool
	cmd := &cobra.Command{
		Use:   "snapshot DIR",
		Short: "Write a snapshot of the running node's database",
		Long: `Write a snapshot of the running node's database and its manifest into DIR, a directory on
the node's machine. The node continues to serve writes. With --compact the copy has no
free pages and no remains of deleted rows; this takes longer. Snapshots hold no secrets:
back up node.key and the signers' keys separately. ` + "`ronbox db verify`" + ` checks a snapshot.

` + "`store.snapshot_every`" + ` takes and rotates snapshots automatically, once a day unless init
was given --no-backup. A node that systemd runs may write only the folders that its unit
permits; the error names the lines to add.`,
		Example: `  ronbox --data-dir data db snapshot /backup/ronbox
  ronbox --data-dir data db snapshot /backup/ronbox --compact --json`,
		Args: cli.Exactly(1, "one directory"),
	}
	cmd.Flags().BoolVar(&compact, "compact", false, "leave out free pages and deleted rows")
	cmd.RunE = a.online(func(ctx context.Context, c nodeapi.Client, args []string) error {
		return a.snapshot(ctx, c, args[0], compact)
	})
	return cmd
}

func (a app) snapshot(ctx context.Context, c nodeapi.Client, dir string, compact bool) error {
	dir, err := filepath.Abs(dir) // the node has another working directory
	if err != nil {
		return err
	}
	p := a.Progress(cli.Bytes, "snapshot")
	snap, err := c.Snapshot(ctx, nodeapi.SnapshotRequest{Dir: dir, Compact: compact}, p.At)
	p.End()
	if err != nil {
		return adviseDir(err)
	}
	return a.Show(snap, func(t cli.Table) {
		t.Row("file", snap.File)
		t.Row("manifest", snap.Manifest)
		t.Row("b3", snap.B3)
		t.Row("commands", snap.Seq)
		t.Row("check it with", unit.Shell("ronbox", "db", "verify", snap.File))
	})
}

// adviseDir adds to the refusal of a folder that the node cannot write how to permit it.
func adviseDir(err error) error {
	p, ok := errors.AsType[*wire.Problem](err)
	if !ok || p.Reason != nodeapi.ReasonSnapshotDir {
		return err
	}
	text := func(name string) string {
		s, _ := p.Details[name].(string)
		return s
	}
	dir := nodeapi.SnapshotDir{Path: text("path"), User: text("user"), Unit: text("unit")}
	return &cli.Failure{Err: err, Outcome: cli.Outcome{Next: dir.Next(p.Detail)}}
}

func (a app) snapshotsCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "snapshots",
		Short: "List the running node's scheduled snapshots",
		Long: `List the snapshots of the running node in store.snapshot_dir, newest first: name, time,
size, and whether the copy was verified when it was taken. A copy that did not verify has
the ending .bad.`,
		Example: `  ronbox --data-dir data db snapshots
  ronbox db snapshots --json | jq -r '.snapshots[0].name'`,
		RunE: cli.Ask(a.App, nodeapi.NewClient, nodeapi.Client.Snapshots, snapshotTable),
	}
}

func snapshotTable(t cli.Table, l nodeapi.SnapshotList) {
	t.Row("folder", l.Dir)
	for _, s := range l.Snapshots {
		state := "verified"
		if !s.Verified {
			state = "NOT VERIFIED"
		}
		t.Row(s.Name, s.CreatedAt.Format(time.RFC3339), cli.Bytes(s.Bytes), state)
	}
}

func (a app) acceptRestoreCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "accept-restore",
		Short: "Allow a restored node to accept writes",
		Long: `Allow a restored node to accept writes. A restore may have reverted changes that clients
have seen: check ` + "`ronbox registry head`" + ` and the time of the snapshot first. The node stays
read-only until this command. It has no effect on a node that was not restored.`,
		Example: `  ronbox registry head && ronbox db accept-restore
  ronbox db accept-restore --json`,
		RunE: a.online(a.acceptRestore),
	}
}

func (a app) acceptRestore(ctx context.Context, c nodeapi.Client, _ []string) error {
	info, err := c.DBInfo(ctx)
	if err != nil {
		return err
	}
	if !info.Restored {
		return a.Show(
			accepted{},
			func(t cli.Table) { t.Row("nothing to accept: the node was not restored, or that is accepted already") },
		)
	}
	if err := c.AcceptRestore(ctx); err != nil {
		return err
	}
	return a.Show(accepted{Accepted: true}, func(t cli.Table) { t.Row("accepted: the node writes again") })
}

type accepted struct {
	Accepted bool `json:"accepted"` // false: there was nothing to accept
}

func (a app) restoreCmd() *cobra.Command {
	var keep bool
	cmd := &cobra.Command{
		Use: "restore SNAPSHOT",
		Example: `  ronbox --data-dir fresh db restore /backup/ronbox/ronbox-….db
  ronbox --data-dir fresh serve &
  ronbox --data-dir fresh db accept-restore`,
		Short: "Restore a snapshot as the database of a stopped node",
		Long: `Restore a snapshot as the database of a stopped node, with a new incarnation. The
snapshot is verified first; an existing database is kept as ronbox.db.before-restore-TIME.
If ronbox.db is a symbolic link, this happens at the file that it names. The node then
serves reads only, until ` + "`ronbox db accept-restore`" + `. All tokens become invalid, unless
--keep-tokens is given. Ledger operations after the printed batch are not in the
snapshot: clients send them again under the same keys.`,
		Args: cli.Exactly(1, "one snapshot"),
	}
	cmd.Flags().BoolVar(&keep, "keep-tokens", false, "keep tokens valid, also those revoked after the snapshot")
	cmd.RunE = a.Verb(func(ctx context.Context, args []string) error { return a.restore(ctx, args[0], keep) })
	return cmd
}

func (a app) restore(ctx context.Context, snapshot string, keep bool) error {
	dst, err := a.DatabasePath()
	if err != nil {
		return err
	}
	if err := cli.CheckRegular(snapshot); err != nil {
		return err
	}
	if cli.Exists(dst) {
		if err := a.Confirm("replace the database of "+filepath.Dir(dst), dst); err != nil {
			return err
		}
	}
	alone, err := registry.TrustedGenesis("")
	if err != nil {
		return err
	}
	var found proofs
	p := a.Progress(cli.Bytes, "restore")
	_, err = store.Restore(ctx, snapshot, dst, store.RestoreOptions{
		KeepTokens: keep, Now: a.Now(),
		By:     store.Event{Event: "db.restore", Decision: "accept", Reason: "operator"},
		Checks: found.checks(ctx, alone, p),
	}, p.At)
	p.End()
	if errors.Is(err, store.ErrCorrupt) {
		next := "name another snapshot: `ronbox db snapshots` lists them"
		return &cli.Failure{Outcome: cli.Outcome{Next: next}, Err: err}
	}
	if errors.Is(err, store.ErrLocked) {
		next := "stop the node with `ronbox drain`, restore, then start it again"
		return &cli.Failure{Outcome: cli.Outcome{Next: next}, Err: err}
	}
	if err != nil {
		return err
	}
	doc := restoreDoc{Ledger: found.Ledger}
	if doc.DBInfo, err = ReadInfo(ctx, dst, true); err != nil {
		return err
	}
	return a.Show(doc, func(t cli.Table) {
		info := doc.DBInfo
		info.Buckets = nil // `db info` counts rows
		infoTable(t, info)
		headRows(t, doc.Ledger)
		serve := unit.Shell("ronbox", "--data-dir", filepath.Dir(dst), "serve")
		t.Row("next", serve+", look at it, then db accept-restore")
	})
}

// restoreDoc is the output of db restore: the file and the head of its ledger, which shows clients
// the requests that it lacks.
type restoreDoc struct {
	nodeapi.DBInfo
	Ledger *ledgerapi.LedgerHead `json:"ledger,omitzero"`
}
