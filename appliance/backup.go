package appliance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/config"
	"ronbox/appliance/tokens"
	"ronbox/engines"
	"ronbox/httpapi"
	nodeapi "ronbox/httpapi/node"
	"ronbox/store"
)

// rowWithin bounds the audit row of a snapshot that has been taken.
const rowWithin = 5 * time.Second

// Snapshot copies the state of this moment into a folder while writes go on, verifies it, and puts it on the audit chain.
func (n *Node) Snapshot(
	ctx context.Context, by engines.Actor, corrID string, r nodeapi.SnapshotRequest, progress func(done, total int64),
) (nodeapi.Snapshot, error) {
	if err := n.onDisk("snapshot"); err != nil {
		return nodeapi.Snapshot{}, err
	}
	if st, err := os.Stat(r.Dir); err == nil && !st.IsDir() {
		return nodeapi.Snapshot{}, &httpapi.BodyError{Field: "dir", Reason: "is no directory"}
	}
	if err := n.roomFor(r.Dir, r.Compact); err != nil {
		return nodeapi.Snapshot{}, err
	}
	m, err := n.store.Snapshot(ctx, r.Dir, n.snapshotOptions(r.Compact), progress)
	if err != nil {
		return nodeapi.Snapshot{}, err
	}
	e := tokens.AuditEvent("db.snapshot", by, corrID, map[string]string{
		"file": m.Path, "b3": m.B3.String(), "seq": strconv.FormatUint(m.Seq, 10), "compact": strconv.FormatBool(r.Compact),
	})
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rowWithin) // the caller may have left, the snapshot is there
	defer cancel()
	if _, err := store.Commit(ctx, n.store, store.Control, auditNote{e}); err != nil {
		return nodeapi.Snapshot{}, fmt.Errorf("audit snapshot %s: %w", m.Path, err)
	}
	return nodeapi.Snapshot{File: m.Path, Manifest: m.ManifestPath, B3: m.B3.String(), Seq: m.Seq}, nil
}

func (n *Node) snapshotOptions(compact bool) store.SnapshotOptions {
	versions := map[string]string{"ronbox": n.build.Version}
	for _, s := range services() {
		if s.schema != "" {
			versions[s.name] = s.schema
		}
	}
	return store.SnapshotOptions{Compact: compact, Versions: versions}
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
// the remains of killed ones go: they may be filling the disk.
func (n *Node) scheduledSnapshot(ctx context.Context) error {
	dir := snapshotDir(n.conf())
	_, failed := n.Snapshot(ctx, self("janitor"), "", nodeapi.SnapshotRequest{Dir: dir}, nil)
	if ctx.Err() != nil {
		return failed
	}
	gone, err := store.Retain(dir, n.now(), store.DefaultRetain())
	for _, path := range gone {
		n.log.Info("snapshot_removed", "file", path, "reason", "kept are the last of 24 hours, 7 days and 4 weeks")
	}
	return errors.Join(failed, err)
}

// lastSnapshot is when the newest one was taken, so that a restart does not put off the next. It is zero without one: the first is due
// at once.
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

// tempAge is how long a temporary file of a verb was not written to before it is taken for one that a killed verb has left.
const tempAge = time.Hour

// tempName is how verbs and the doctor name temporary files.
var tempName = regexp.MustCompile(`^\.ronbox-(sync-)?[0-9]+$`)

// sweep removes what killed runs have left: copies as large as the file, that a node was checking, compacting, restoring or taking snapshots of,
// and temporary files of verbs. Call it once the file is this node's.
func (n *Node) sweep() {
	entries, err := os.ReadDir(n.boot.Node.DataDir)
	var removed []string
	for _, e := range entries {
		info, gone := e.Info()
		if gone != nil || !(e.IsDir() && strings.HasPrefix(e.Name(), checkPrefix)) &&
			!(info.Mode().IsRegular() && tempName.MatchString(e.Name()) && time.Since(info.ModTime()) > tempAge) {
			continue
		}
		if gone = os.RemoveAll(n.boot.Path(e.Name())); gone == nil {
			removed = append(removed, n.boot.Path(e.Name()))
		}
		err = errors.Join(err, gone)
	}
	beside, failed := store.SweepBeside(n.store.Path())
	dead, swept := store.Sweep(snapshotDir(n.boot))
	for _, path := range slices.Concat(removed, beside, dead) {
		n.log.Info("remains_removed", "file", path, "reason", "a killed run has left it")
	}
	if err = errors.Join(err, failed, swept); err != nil {
		n.log.Warn("what killed runs have left may still be there", "reason", err.Error(), "next", "remove what the reason names, if nothing writes it")
	}
}

// CheckDB copies the file beside itself, verifies the copy whole (pages, chains, signatures) and removes it: a file that is
// written to cannot be checked.
func (n *Node) CheckDB(ctx context.Context, by engines.Actor, corrID string, progress func(nodeapi.CheckLine)) (last nodeapi.CheckLine, err error) {
	if err := n.onDisk("check"); err != nil {
		return last, err
	}
	if err := n.roomFor(n.boot.Node.DataDir, false); err != nil {
		return last, err
	}
	dir, err := os.MkdirTemp(n.boot.Node.DataDir, checkPrefix)
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	at := func(stage string) func(done, total int64) {
		return func(done, total int64) { progress(nodeapi.CheckLine{Stage: stage, Done: done, Total: total}) }
	}
	m, err := n.store.Snapshot(ctx, dir, n.snapshotOptions(false), at(stageCopy))
	if errors.Is(err, store.ErrCorrupt) {
		return n.checked(ctx, by, corrID, []string{err.Error()}), nil
	}
	if err != nil {
		return last, err
	}
	checks := []store.Check{{Name: "auth", Run: tokens.Check}}
	for _, s := range services() {
		if s.checks != nil {
			checks = append(checks, s.checks(ctx)...)
		}
	}
	report, err := store.Verify(ctx, m.Path, nil, checks, at(stageVerify))
	if err != nil {
		return last, err
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
func (n *Node) checked(ctx context.Context, by engines.Actor, corrID string, findings []string) nodeapi.CheckLine {
	ok := len(findings) == 0
	e := tokens.AuditEvent("db.check", by, corrID, map[string]string{"ok": strconv.FormatBool(ok), "findings": strconv.Itoa(len(findings))})
	n.note(context.WithoutCancel(ctx), e)
	if !ok {
		n.log.Error("check_failed", "findings", len(findings), "reason", findings[0], "next", "restore a snapshot with `ronbox db restore`")
	}
	return nodeapi.CheckLine{Stage: stageVerify, OK: &ok, Findings: findings}
}

// roomFor refuses a copy of the file that would fill the disk that the file is on: the node would take no more writes until
// the copy is gone. Where that is unknown, the copying will show it.
func (n *Node) roomFor(dir string, compact bool) error {
	var file, folder unix.Stat_t
	for unix.Stat(dir, &folder) != nil {
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return nil
	}
	if unix.Stat(n.store.Path(), &file) != nil || file.Dev != folder.Dev {
		return nil
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return nil
	}
	own := n.store.Bytes()
	need := own
	if compact {
		need -= n.store.FreeBytes()
	}
	return copyFits(need, int64(disk.Bavail)*int64(disk.Bsize), own, n.conf().Store.MinFree.Bytes())
}

// copyFits refuses a copy of need bytes beside a file of own bytes if less would stay free than the store keeps, which is no more than an
// eighth of what it could have.
func copyFits(need, free, own, minFree int64) error {
	if keep := min(minFree, (free+own)/8); free-need < keep {
		return fmt.Errorf("%w: the copy takes %d MiB, of the %d MiB that are free here %d MiB are kept: name a folder on another disk",
			store.ErrFull, need>>20, free>>20, keep>>20)
	}
	return nil
}

// DBInfo describes the open file.
func (n *Node) DBInfo(context.Context) (nodeapi.DBInfo, error) {
	info := n.store.Info()
	if info == nil {
		return nodeapi.DBInfo{}, errNotOpen
	}
	return nodeapi.DBInfo{
		File: n.store.Path(), NodeID: info.NodeID, Incarnation: info.Incarnation, Schema: info.Schema, Seq: info.Seq, Clean: info.Clean,
		Restored: info.Restored, RestoredFrom: info.RestoredFrom, AuthEpoch: info.AuthEpoch, PageSize: store.PageSize,
		Bytes: n.store.Bytes(), MaxBytes: n.maxBytes(), FreeBytes: n.store.FreeBytes(),
	}, nil
}

// DBStats visits the pages of every bucket, which takes seconds on a file of gigabytes.
func (n *Node) DBStats(ctx context.Context) (nodeapi.DBStats, error) {
	s, err := n.store.Stats(ctx)
	if err != nil {
		return nodeapi.DBStats{}, err
	}
	ms := func(ns float64) float64 { return ns / float64(time.Millisecond) }
	out := nodeapi.DBStats{
		Bytes: s.Bytes, MaxBytes: s.MaxBytes, FreeBytes: (s.FreePages + s.PendingPages) * int64(s.PageSize), DiskFreeBytes: max(s.DiskFree, 0),
		PageSize: s.PageSize, FreePages: int(s.FreePages), PendingPages: int(s.PendingPages), Buckets: []nodeapi.BucketStats{},
		Readers: int(s.Readers), OldestReaderSeconds: s.OldestReader.Seconds(), Groups: s.Groups, Commands: s.Commands,
		CommitP50MS: ms(float64(s.Commit.P50)), CommitP99MS: ms(float64(s.Commit.P99)),
		BatchP50: float64(s.Batch.P50), BatchP99: float64(s.Batch.P99),
	}
	for _, b := range s.Buckets {
		out.Buckets = append(out.Buckets, nodeapi.BucketStats{
			Name: b.Name, Class: b.Class.String(), Rows: b.Rows, Bytes: b.Bytes, Depth: b.Depth,
		})
	}
	return out, nil
}

// AcceptRestore lets a restored node write again. On a node that is not restored it changes nothing.
func (n *Node) AcceptRestore(ctx context.Context, by engines.Actor, corrID string) error {
	if err := n.store.AcceptRestore(ctx, tokens.AuditEvent("db.accept_restore", by, corrID, nil)); err != nil {
		return fmt.Errorf("accept restore: %w", err)
	}
	n.board.Set(ownService, "accept_restore", nil)
	n.ensureAgain(ctx)
	return nil
}
