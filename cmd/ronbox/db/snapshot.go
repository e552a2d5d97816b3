package db

import (
	"context"
	"path/filepath"

	"github.com/spf13/cobra"

	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/registry"
	ledgerapi "ronbox/httpapi/ledger"
	nodeapi "ronbox/httpapi/node"
	"ronbox/store"
)

func (a app) snapshotCmd() *cobra.Command {
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
		Args: cli.Exactly(1, "one directory"),
	}
	cmd.Flags().BoolVar(&compact, "compact", false, "a copy without deleted rows, rather than the file as it is")
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
		return err
	}
	return a.Show(snap, func(t cli.Table) {
		t.Row("file", snap.File)
		t.Row("manifest", snap.Manifest)
		t.Row("b3", snap.B3)
		t.Row("commands", snap.Seq)
		t.Row("check it with", "ronbox db verify "+snap.File)
	})
}

func (a app) acceptRestoreCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "accept-restore",
		Short: "Let a restored node write again, once its state has been looked at",
		Long: `Let a restored node write again, once its state has been looked at. A restore may have
taken back what others have seen: look at ` + "`ronbox registry head`" + ` and at the time of the
snapshot first. Nothing but this verb ends the read-only state. Where nothing was
restored, nothing is done.`,
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
		return a.Show(accepted{}, func(t cli.Table) { t.Row("nothing to accept: the node was not restored, or that is accepted already") })
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
		Short: "Make a snapshot the database of a stopped node, as a new incarnation",
		Long: `Make a snapshot the database of a stopped node, as a new incarnation. The snapshot
is checked first; an old database is kept as ronbox.db.before-restore-TIME. The
node then serves reads, and writes once ` + "`ronbox db accept-restore`" + ` has been given.
All tokens are void, unless --keep-tokens. What the ledger took after the batch that
is printed is not in the snapshot: clients send it again under the same keys.`,
		Args: cli.Exactly(1, "one snapshot"),
	}
	cmd.Flags().BoolVar(&keep, "keep-tokens", false, "let tokens stay valid, those revoked since the snapshot too")
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
	if err != nil {
		return err
	}
	doc := restoreDoc{Ledger: found.Ledger}
	if doc.DBInfo, err = offlineInfo(ctx, dst, true); err != nil {
		return err
	}
	return a.Show(doc, func(t cli.Table) {
		info := doc.DBInfo
		info.Buckets = nil // `db info` counts rows
		infoTable(t, info)
		headRows(t, doc.Ledger)
		t.Row("next", "ronbox --data-dir "+filepath.Dir(dst)+" serve, look at it, then db accept-restore")
	})
}

// restoreDoc is the output of db restore: the file, and where its ledger ends, so that clients see which of their requests
// it lacks.
type restoreDoc struct {
	nodeapi.DBInfo
	Ledger *ledgerapi.LedgerHead `json:"ledger,omitzero"`
}
