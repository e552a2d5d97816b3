package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Snapshot copies the current state into a folder while writes continue, verifies the copy and
// appends an audit row.
func (n *Node) Snapshot(
	ctx context.Context, by engines.Actor, corrID string, r nodeapi.SnapshotRequest, progress func(done, total int64),
) (nodeapi.Snapshot, error) {
	return n.backup.Snapshot(ctx, by, corrID, r, progress)
}

// Snapshots lists the snapshots of this node in the folder of scheduled snapshots, newest first. It
// returns ErrAmnesia in amnesia mode.
func (n *Node) Snapshots(ctx context.Context) (nodeapi.SnapshotList, error) {
	return n.backup.List(ctx)
}

// Stages of a check, as its lines name them.
const (
	stageCopy   = "snapshot"
	stageVerify = "verify"
)

// CheckDB copies the file beside itself, verifies the copy (pages, chains, signatures) and removes
// it. The file itself cannot be checked while it is written.
func (n *Node) CheckDB(
	ctx context.Context,
	by engines.Actor,
	corrID string,
	progress func(nodeapi.CheckLine),
) (last nodeapi.CheckLine, err error) {
	if err := n.onDisk("check"); err != nil {
		return last, err
	}
	if err := n.backup.RoomFor(n.boot.Node.DataDir, false); err != nil {
		return last, err
	}
	dir, err := os.MkdirTemp(n.boot.Node.DataDir, upkeep.CheckPrefix)
	if err != nil {
		return last, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	at := func(stage string) func(done, total int64) {
		return func(done, total int64) { progress(nodeapi.CheckLine{Stage: stage, Done: done, Total: total}) }
	}
	m, err := n.store.Snapshot(ctx, dir, n.backup.Options(false), at(stageCopy))
	if errors.Is(err, store.ErrCorrupt) {
		return n.checked(ctx, by, corrID, []string{err.Error()}), nil
	}
	if err != nil {
		return last, err
	}
	checks := []store.Check{{Name: "auth", Run: tokens.Check}}
	for _, s := range wiring.All() {
		if s.Checks != nil {
			checks = append(checks, s.Checks(ctx)...)
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

// checked appends an audit row for a check and returns its last line.
func (n *Node) checked(ctx context.Context, by engines.Actor, corrID string, findings []string) nodeapi.CheckLine {
	ok := len(findings) == 0
	e := tokens.AuditEvent("db.check", by, corrID,
		map[string]string{"ok": strconv.FormatBool(ok), "findings": strconv.Itoa(len(findings))})
	n.note(context.WithoutCancel(ctx), e)
	if !ok {
		n.log.Error(
			"check_failed",
			"findings",
			len(findings),
			"reason",
			findings[0],
			"next",
			"restore a snapshot with `ronbox db restore`",
		)
	}
	return nodeapi.CheckLine{Stage: stageVerify, OK: &ok, Findings: findings}
}

// Archive returns the state of the archive.
func (n *Node) Archive() nodeapi.Archive { return n.archive.Status() }

// ArchiveBase sends a base to the archive, and appends an audit row.
func (n *Node) ArchiveBase(
	ctx context.Context, by engines.Actor, corrID string, progress func(nodeapi.ArchiveLine),
) (nodeapi.Archive, error) {
	return n.archive.Base(ctx, by, corrID, progress)
}

// LedgerClosing returns the state of the closing of a period.
func (n *Node) LedgerClosing() nodeapi.LedgerClosing { return n.closing.State() }

// PlanLedgerClose returns what CloseLedger would close.
func (n *Node) PlanLedgerClose(ctx context.Context, r nodeapi.LedgerCloseRequest) (nodeapi.LedgerClosing, error) {
	return n.closing.Plan(ctx, r)
}

// CloseLedger begins to close a period, and appends an audit row.
func (n *Node) CloseLedger(
	ctx context.Context, by engines.Actor, corrID string, r nodeapi.LedgerCloseRequest,
) (nodeapi.LedgerClosing, error) {
	return n.closing.Close(ctx, by, corrID, r)
}

// CancelLedgerClose cancels the closing under way, and appends an audit row.
func (n *Node) CancelLedgerClose(
	ctx context.Context, by engines.Actor, corrID string,
) (nodeapi.LedgerClosing, error) {
	return n.closing.Cancel(ctx, by, corrID)
}

// DBInfo returns the identity and size of the open file.
func (n *Node) DBInfo(context.Context) (nodeapi.DBInfo, error) {
	info := n.store.Info()
	if info == nil {
		return nodeapi.DBInfo{}, process.ErrNotOpen
	}
	return nodeapi.DBInfo{
		File:         n.store.Path(),
		NodeID:       info.NodeID,
		Incarnation:  info.Incarnation,
		Schema:       info.Schema,
		Seq:          info.Seq,
		Clean:        info.Clean,
		Restored:     info.Restored,
		RestoredFrom: info.RestoredFrom,
		AuthEpoch:    info.AuthEpoch,
		PageSize:     store.PageSize,
		Bytes:        n.store.Bytes(),
		MaxBytes:     n.maxBytes(),
		FreeBytes:    n.store.FreeBytes(),
	}, nil
}

// DBStats returns space and commit statistics. It visits the pages of every bucket, which takes
// seconds for gigabytes.
func (n *Node) DBStats(ctx context.Context) (nodeapi.DBStats, error) {
	s, err := n.store.Stats(ctx)
	if err != nil {
		return nodeapi.DBStats{}, err
	}
	ms := func(ns float64) float64 { return ns / float64(time.Millisecond) }
	out := nodeapi.DBStats{
		Bytes:               s.Bytes,
		MaxBytes:            s.MaxBytes,
		FreeBytes:           (s.FreePages + s.PendingPages) * int64(s.PageSize),
		DiskFreeBytes:       max(s.DiskFree, 0),
		PageSize:            s.PageSize,
		FreePages:           int(s.FreePages),
		PendingPages:        int(s.PendingPages),
		Buckets:             []nodeapi.BucketStats{},
		Readers:             int(s.Readers),
		OldestReaderSeconds: s.OldestReader.Seconds(),
		Groups:              s.Groups,
		Commands:            s.Commands,
		CommitP50MS:         ms(float64(s.Commit.P50)),
		CommitP99MS:         ms(float64(s.Commit.P99)),
		BatchP50:            float64(s.Batch.P50),
		BatchP99:            float64(s.Batch.P99),
	}
	if bytes, most := n.services.Ledger().Cache(); most > 0 {
		out.LedgerCache = &nodeapi.CacheStats{Bytes: bytes, MaxBytes: most}
	}
	for _, b := range s.Buckets {
		out.Buckets = append(out.Buckets, nodeapi.BucketStats{
			Name: b.Name, Class: b.Class.String(), Rows: b.Rows, Bytes: b.Bytes, Depth: b.Depth,
		})
	}
	return out, nil
}

// AcceptRestore lets a restored node accept writes. It has no effect on a node that was not
// restored.
func (n *Node) AcceptRestore(ctx context.Context, by engines.Actor, corrID string) error {
	if err := n.store.AcceptRestore(ctx, tokens.AuditEvent("db.accept_restore", by, corrID, nil)); err != nil {
		return fmt.Errorf("accept restore: %w", err)
	}
	n.board.Set(ownService, "accept_restore", nil)
	n.ensureAgain(ctx)
	return nil
}
