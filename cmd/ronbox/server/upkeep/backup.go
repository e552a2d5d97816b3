package upkeep

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"ronbox/appliance/obs"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// rowWithin bounds the wait for the audit row of a completed snapshot.
const rowWithin = 5 * time.Second

// Backup takes the snapshots of a node, on request and by a schedule.
type Backup struct {
	d BackupDeps
	// Unix ns of the newest snapshot, or of the start of the node until one is known; 0: not known
	last   atomic.Int64
	failed atomic.Pointer[error] // of the last scheduled snapshot, or of its folder at the start
}

// BackupDeps are the neighbours of a Backup.
type BackupDeps struct {
	Config   func() *config.Config // the current one
	Store    *store.Store
	Log      hclog.Logger
	Now      func() time.Time
	Started  func() time.Time                         // reading at the start of the node
	OnDisk   func(what string) error                  // refuses an action that a node in memory cannot do
	Record   func(context.Context, store.Event) error // appends an audit row
	Versions map[string]string                        // of the program and of documents, for manifests
}

// NewBackup returns the Backup of a node. It opens and starts nothing.
func NewBackup(d BackupDeps) *Backup { return &Backup{d: d} }

// Snapshot copies the current state into a folder while writes continue, verifies the copy and
// appends an audit row.
func (b *Backup) Snapshot(
	ctx context.Context, by engines.Actor, corrID string, r nodeapi.SnapshotRequest, progress func(done, total int64),
) (nodeapi.Snapshot, error) {
	m, err := b.copyInto(ctx, r.Dir, r.Compact, progress)
	if err != nil {
		return nodeapi.Snapshot{}, err
	}
	return b.audit(ctx, by, corrID, m)
}

// copyInto takes a snapshot without its audit row. It returns store.ErrFull if there is no room for
// the copy, and a SnapshotDirError if the folder cannot be written.
func (b *Backup) copyInto(
	ctx context.Context, dir string, compact bool, progress func(done, total int64),
) (m store.Manifest, err error) {
	if err := b.d.OnDisk("snapshot"); err != nil {
		return m, err
	}
	if err := CheckSnapshotDir(dir); err != nil {
		return m, err
	}
	if err := b.RoomFor(dir, compact); err != nil {
		return m, err
	}
	began := b.d.Now()
	if m, err = b.d.Store.Snapshot(ctx, dir, b.Options(compact), progress); err != nil {
		return m, snapshotDirError(dir, err)
	}
	b.Taken(began)
	if dir == b.d.Config().SnapshotDir() {
		b.failed.Store(nil)
	}
	return m, nil
}

// audit appends the audit row of a snapshot.
func (b *Backup) audit(
	ctx context.Context, by engines.Actor, corrID string, m store.Manifest,
) (nodeapi.Snapshot, error) {
	e := tokens.AuditEvent("db.snapshot", by, corrID, map[string]string{
		"file":    m.Path,
		"b3":      m.B3.String(),
		"seq":     strconv.FormatUint(m.Seq, 10),
		"compact": strconv.FormatBool(m.Compacted),
	})
	// the snapshot exists even if the caller has left
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rowWithin)
	defer cancel()
	if err := b.d.Record(ctx, e); err != nil {
		return nodeapi.Snapshot{}, fmt.Errorf("audit snapshot %s: %w", m.Path, err)
	}
	return nodeapi.Snapshot{File: m.Path, Manifest: m.ManifestPath, B3: m.B3.String(), Seq: m.Seq}, nil
}

// Options returns the options of a snapshot.
func (b *Backup) Options(compact bool) store.SnapshotOptions {
	return store.SnapshotOptions{Compact: compact, Versions: b.d.Versions}
}

// RoomFor returns an error if a copy of the file would fill the disk of the file, which would block
// writes until the copy is removed. If the free space is unknown it returns nil.
func (b *Backup) RoomFor(dir string, compact bool) error { return b.roomWith(dir, compact, 0) }

// roomWith is RoomFor after more bytes of the disk were freed.
func (b *Backup) roomWith(dir string, compact bool, more int64) error {
	var file, folder unix.Stat_t
	for unix.Stat(dir, &folder) != nil {
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		return nil
	}
	if unix.Stat(b.d.Store.Path(), &file) != nil || file.Dev != folder.Dev {
		return nil
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(dir, &disk); err != nil {
		return nil
	}
	own := b.d.Store.Bytes()
	need := own
	if compact {
		need -= b.d.Store.FreeBytes()
	}
	return copyFits(need, int64(disk.Bavail)*int64(disk.Bsize)+more, own, b.d.Config().Store.MinFree.Bytes())
}

// copyFits returns ErrFull if a copy of need bytes beside a file of own bytes would leave less free
// space than the store keeps: minFree, but at most an eighth of the sum of free and own.
func copyFits(need, free, own, minFree int64) error {
	if keep := min(minFree, (free+own)/8); free-need < keep {
		return fmt.Errorf(
			"%w: the copy takes %d MiB; %d MiB are free here and %d MiB must stay free: name a folder on another disk",
			store.ErrFull,
			need>>20,
			free>>20,
			keep>>20,
		)
	}
	return nil
}

// Taken records the time of a snapshot, or of a base of the archive.
func (b *Backup) Taken(at time.Time) {
	if ns := at.UnixNano(); ns > b.last.Load() {
		b.last.Store(ns)
	}
}

// Describe registers the metrics of the age of the newest snapshot.
func (b *Backup) Describe(m *obs.Metrics, service string) {
	m.Gauge("backup_interval_seconds", service, func() float64 { return b.every().Seconds() })
	m.Gauge("backup_age_seconds", service, func() float64 {
		last := b.last.Load()
		if last == 0 || b.inMemory() {
			return math.NaN()
		}
		return b.d.Now().Sub(time.Unix(0, last)).Seconds()
	})
}
