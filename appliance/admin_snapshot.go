package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/config"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/registry"
	"ronbox/engines/registry/rverify"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// rowWithin bounds the audit row of a snapshot that has been taken.
const rowWithin = 5 * time.Second

// Snapshot copies the state of this moment into a folder while writes go on, verifies it, and puts it on the audit chain.
func (n *Node) Snapshot(
	ctx context.Context, by engines.Actor, corrID string, r wire.SnapshotRequest, progress func(done, total int64),
) (wire.Snapshot, error) {
	if err := n.onDisk("snapshot"); err != nil {
		return wire.Snapshot{}, err
	}
	if st, err := os.Stat(r.Dir); err == nil && !st.IsDir() {
		return wire.Snapshot{}, &httpapi.BodyError{Field: "dir", Reason: "is no directory"}
	}
	if err := n.roomFor(r.Dir, r.Compact); err != nil {
		return wire.Snapshot{}, err
	}
	m, err := n.store.Snapshot(ctx, r.Dir, n.snapshotOptions(r.Compact), progress)
	if err != nil {
		return wire.Snapshot{}, err
	}
	e := auditEvent("db.snapshot", by, corrID, map[string]string{
		"file": m.Path, "b3": m.B3.String(), "seq": strconv.FormatUint(m.Seq, 10), "compact": strconv.FormatBool(r.Compact),
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rowWithin) // who asked may have left, the snapshot is there
	defer cancel()
	if _, err := store.Commit(ctx, n.store, store.Control, auditNote{e}); err != nil {
		return wire.Snapshot{}, fmt.Errorf("audit snapshot %s: %w", m.Path, err)
	}
	return wire.Snapshot{File: m.Path, Manifest: m.ManifestPath, B3: m.B3.String(), Seq: m.Seq}, nil
}

func (n *Node) snapshotOptions(compact bool) store.SnapshotOptions {
	return store.SnapshotOptions{Compact: compact, Versions: map[string]string{"ronbox": n.build.Version, "registry": registrySchema}}
}

// snapshotDirName is where scheduled snapshots go unless store.snapshot_dir says otherwise.
const snapshotDirName = "snapshots"

func snapshotDir(cfg *config.Config) string {
	switch dir := cfg.Store.SnapshotDir; {
	case dir == "":
		return cfg.Path(snapshotDirName)
	case filepath.IsAbs(dir):
		return dir
	default:
		return cfg.Path(dir)
	}
}

// scheduledSnapshot takes one and lets the old ones go. Where none can be taken the old ones stay by the same rule, but
// what killed ones have left goes: it may be what fills the disk.
func (n *Node) scheduledSnapshot(ctx context.Context) error {
	dir := snapshotDir(n.conf())
	_, failed := n.Snapshot(ctx, self("janitor"), "", wire.SnapshotRequest{Dir: dir}, nil)
	if ctx.Err() != nil {
		return failed
	}
	gone, err := store.Retain(dir, n.now(), store.DefaultRetain())
	for _, path := range gone {
		n.log.Info("snapshot_removed", "file", path, "reason", "kept are the last of 24 hours, 7 days and 4 weeks")
	}
	return errors.Join(failed, err)
}

// lastSnapshot is when the newest one was taken, so that a restart does not put off the next. Where there is none, the
// first is due at once.
func (n *Node) lastSnapshot(now time.Time) time.Time {
	cfg := n.conf()
	if cfg.Store.SnapshotEvery == 0 || cfg.Amnesia.Enabled {
		return now
	}
	at, err := store.Newest(snapshotDir(cfg), n.store.Info().NodeID, now)
	if err != nil {
		n.log.Warn("snapshot folder cannot be read", "reason", err.Error(), "next", "correct store.snapshot_dir")
	}
	return at
}

// Stages of a check, as its lines name them.
const (
	stageCopy   = "snapshot"
	stageVerify = "verify"
)

// checkPrefix begins the name of the folder of a copy that is being checked.
const checkPrefix = "ronbox-check-"

// removeCopies removes what a killed node was checking: a copy is as large as the file. Call it once the file is this
// node's.
func (n *Node) removeCopies() {
	entries, err := os.ReadDir(n.boot.Node.DataDir)
	for _, e := range entries {
		if e.IsDir() && strings.HasPrefix(e.Name(), checkPrefix) {
			err = errors.Join(err, os.RemoveAll(n.boot.Path(e.Name())))
		}
	}
	if err != nil {
		n.log.Warn("copies that were being checked may be left", "reason", err.Error(), "next", "remove "+checkPrefix+"*")
	}
}

// CheckDB copies the file beside itself, verifies the copy whole (pages, chains, signatures) and removes it: a file that is
// written to cannot be checked.
func (n *Node) CheckDB(ctx context.Context, by engines.Actor, corrID string, progress func(wire.CheckLine)) (verdict wire.CheckLine, err error) {
	if err := n.onDisk("check"); err != nil {
		return verdict, err
	}
	if err := n.roomFor(n.boot.Node.DataDir, false); err != nil {
		return verdict, err
	}
	dir, err := os.MkdirTemp(n.boot.Node.DataDir, checkPrefix)
	if err != nil {
		return verdict, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	at := func(stage string) func(done, total int64) {
		return func(done, total int64) { progress(wire.CheckLine{Stage: stage, Done: done, Total: total}) }
	}
	m, err := n.store.Snapshot(ctx, dir, n.snapshotOptions(false), at(stageCopy))
	if errors.Is(err, store.ErrCorrupt) {
		return n.checked(ctx, by, corrID, []string{err.Error()}), nil
	}
	if err != nil {
		return verdict, err
	}
	report, err := store.Verify(ctx, m.Path, nil, n.checks(ctx), at(stageVerify))
	if err != nil {
		return verdict, err
	}
	var findings []string
	for _, s := range report.Steps {
		if !s.OK {
			findings = append(findings, s.Name+": "+s.Detail)
		}
	}
	return n.checked(ctx, by, corrID, findings), nil
}

// checked is the last line of a check, which is on the audit chain too.
func (n *Node) checked(ctx context.Context, by engines.Actor, corrID string, findings []string) wire.CheckLine {
	ok := len(findings) == 0
	e := auditEvent("db.check", by, corrID, map[string]string{"ok": strconv.FormatBool(ok), "findings": strconv.Itoa(len(findings))})
	n.note(context.WithoutCancel(ctx), e)
	if !ok {
		n.log.Error("check_failed", "findings", len(findings), "reason", findings[0], "next", "restore a snapshot with `ronbox db restore`")
	}
	return wire.CheckLine{Stage: stageVerify, OK: &ok, Findings: findings}
}

// checks are what the engines prove of a file.
func (n *Node) checks(ctx context.Context) []store.Check {
	return append([]store.Check{registryCheck(ctx)}, ledger.Checks()...)
}

// registryCheck verifies the registry's log in a file.
func registryCheck(ctx context.Context) store.Check {
	return store.Check{Name: "registry", Run: func(r store.Reader) error {
		report, err := rverify.Verify(ctx, registry.NewLog(r), rverify.Options{})
		if err != nil {
			return err
		}
		if report.Problem != nil {
			return report.Problem
		}
		return nil
	}}
}
