package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ronbox/appliance"
	"ronbox/engines/registry"
	"ronbox/engines/registry/rverify"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// regular refuses what cannot be a database: opening a directory would call it damaged, opening a pipe would wait.
func regular(file string) error {
	st, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return failed(exitFailed, "is_directory", "name the database file in it, such as "+filepath.Join(file, appliance.DatabaseName), "%s is a directory", file)
	case !st.Mode().IsRegular():
		return failed(exitFailed, "not_a_file", "name a database file", "%s is no regular file", file)
	}
	return nil
}

// offlineInfo reads the figures of a file that no node holds; hash adds the state hash, which reads every row.
func offlineInfo(ctx context.Context, file string, hash bool) (wire.DBInfo, error) {
	if err := regular(file); err != nil {
		return wire.DBInfo{}, err
	}
	r, err := store.OpenReader(file)
	if err != nil {
		return wire.DBInfo{}, err
	}
	i := r.Info()
	doc := wire.DBInfo{
		File: file, NodeID: i.NodeID, Incarnation: i.Incarnation, Schema: i.Schema, Seq: i.Seq, Clean: i.Clean,
		Restored: i.Restored, RestoredFrom: i.RestoredFrom, AuthEpoch: i.AuthEpoch, Bytes: r.Size(),
		Buckets: map[string]uint64{},
	}
	err = r.View(ctx, func(rd store.Reader) error {
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
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return doc, err
}

// dbVerifyDoc is what db verify prints.
type dbVerifyDoc struct {
	store.Report
	Seq    uint64 `json:"seq"`
	proved        // absent when the file could not be read that far
}

func (a *app) dbVerifyCmd() *cobra.Command {
	var genesis string
	cmd := &cobra.Command{
		Use: "verify FILE",
		Example: `  ronbox db verify /backup/ronbox/ronbox-….db
  ronbox db verify /backup/ronbox/ronbox-….db --genesis b3:4487… --json`,
		Short: "Check a snapshot, or a stopped node's database: bytes, pages, chains, signatures",
		Long: `Check a snapshot, or a stopped node's database: the bytes against the manifest beside
it, every page, the audit chain, the state hash, the whole registry log with all
signatures, and the ledger: its chain, its sums, its balances. With --genesis the log must
begin with that payload; without it the log is held against itself only.

Exit 3: checked, and found bad.`,
		Args: exactly(1, "one database file"),
	}
	cmd.Flags().StringVar(&genesis, "genesis", "", "payload hash of the registry's version 1")
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error { return a.dbVerify(ctx, args[0], genesis) })
	return cmd
}

func (a *app) dbVerify(ctx context.Context, file, genesis string) error {
	want, err := genesisArg(genesis)
	if err != nil {
		return err
	}
	if err := regular(file); err != nil {
		return err
	}
	p := a.progress(byteUnit)
	p.begin("hash")
	doc := dbVerifyDoc{}
	doc.Report, err = store.Verify(ctx, file, nil, doc.checks(ctx, want, p), p.at)
	p.end()
	if err != nil {
		return err
	}
	doc.Seq = doc.Report.Info.Seq
	doc.tell(&doc.Report)
	if err := a.show(doc, func(t table) { dbVerifyTable(t, doc) }); err != nil || doc.OK {
		return err
	}
	kind, _, _ := strings.Cut(doc.Problem, ":") // the step that failed
	if doc.Registry != nil && doc.Registry.Problem != nil {
		kind = string(doc.Registry.Problem.Kind)
	}
	return a.found(doc.Problem, kind)
}

func dbVerifyTable(t table, d dbVerifyDoc) {
	for _, s := range d.Steps {
		t.row(map[bool]string{true: "ok", false: "BAD"}[s.OK], s.Name, s.Detail)
	}
	if !d.Manifest {
		t.row("--", "manifest", "none beside the file: its bytes could not be held against one")
	}
	if d.Info.NodeID != "" { // it could be read that far
		t.row("b3", d.B3)
		t.row("commands", d.Seq)
	}
}

// registryCheck makes the registry's proof a step of the file's; its progress goes to p, the report to out.
func registryCheck(ctx context.Context, o rverify.Options, p *progress, out **rverify.Report) store.Check {
	o.Progress = func(done, total uint64) {
		p.unit = countUnit
		p.during("verify, versions")
		p.at(int64(done), int64(total))
	}
	return store.Check{Name: "registry", Run: func(r store.Reader) error {
		rep, err := rverify.Verify(ctx, registry.NewLog(r), o)
		if err != nil {
			return err
		}
		*out = &rep
		if rep.Problem != nil {
			return rep.Problem
		}
		return nil
	}}
}

func (a *app) dbRestoreCmd() *cobra.Command {
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
		Args: exactly(1, "one snapshot"),
	}
	cmd.Flags().BoolVar(&keep, "keep-tokens", false, "let tokens stay valid, those revoked since the snapshot too")
	cmd.RunE = a.verb(func(ctx context.Context, args []string) error { return a.dbRestore(ctx, args[0], keep) })
	return cmd
}

func (a *app) dbRestore(ctx context.Context, snapshot string, keep bool) error {
	dst, err := a.database()
	if err != nil {
		return err
	}
	if err := regular(snapshot); err != nil {
		return err
	}
	if exists(dst) {
		if err := a.confirm("replace the database of "+filepath.Dir(dst), dst); err != nil {
			return err
		}
	}
	alone, err := genesisArg("")
	if err != nil {
		return err
	}
	var found proved
	p := a.progress(byteUnit)
	p.begin("restore")
	_, err = store.Restore(ctx, snapshot, dst, store.RestoreOptions{
		KeepTokens: keep, Now: a.now(),
		By:     store.Event{Event: "db.restore", Decision: "accept", Reason: "operator"},
		Checks: found.checks(ctx, alone, p),
	}, p.at)
	p.end()
	if err != nil {
		return err
	}
	doc := restoreDoc{Ledger: found.Ledger}
	if doc.DBInfo, err = offlineInfo(ctx, dst, true); err != nil {
		return err
	}
	return a.show(doc, func(t table) {
		dbInfoTable(t, doc.DBInfo)
		headRows(t, doc.Ledger)
		t.row("next", "ronbox --data-dir "+filepath.Dir(dst)+" serve, look at it, then db accept-restore")
	})
}

// restoreDoc is what db restore prints: the file, and where its ledger ends, so that clients can tell what of theirs is not in it.
type restoreDoc struct {
	wire.DBInfo
	Ledger *wire.LedgerHead `json:"ledger,omitzero"`
}

// found ends a verb that checked and found something bad. Its result is printed already, so --json gets no second
// document; the last line for people names the kind.
func (a *app) found(problem, kind string) error {
	a.exit = exitBad
	if !a.flags.json {
		fmt.Fprintf(a.stderr, "ronbox: checked and found bad: %s\n%s\n", strings.ReplaceAll(plain(problem), "\n", "; "), kind)
	}
	return nil
}
