package upkeep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	nodehttp "ronbox/httpapi/node"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// inMemory reports whether the node keeps its data in memory.
func (b *Backup) inMemory() bool { return b.d.Config().Amnesia.Enabled }

// Job returns the job that takes scheduled snapshots.
func (b *Backup) Job(now time.Time) *Job {
	return &Job{Name: "snapshot", Every: b.every, Do: b.scheduled, Last: b.newest(now)}
}

// every returns the interval of scheduled snapshots, or 0 without a schedule. A node in
// memory has nothing to copy.
func (b *Backup) every() time.Duration {
	if b.inMemory() {
		return 0
	}
	return b.d.Config().Store.SnapshotEvery.D()
}

// leastSnapshots is the number of snapshots that are never removed to make room for another.
const leastSnapshots = 2

// scheduled takes a snapshot and removes old ones. Without room for it the oldest snapshots
// of the node are removed first. If the snapshot fails, the retention rule still applies and
// leftovers are removed, because they may be filling the disk.
func (b *Backup) scheduled(ctx context.Context) error {
	dir := b.d.Config().SnapshotDir()
	m, failed := b.copyInto(ctx, dir, false, nil)
	helps := b.roomWith(dir, false, b.removable(ctx)) == nil // else all would go for nothing
	for helps && errors.Is(failed, store.ErrFull) && b.removeOldest(dir) {
		m, failed = b.copyInto(ctx, dir, false, nil)
	}
	if failed == nil {
		_, failed = b.audit(ctx, tokens.Self("janitor"), "", m)
	}
	if ctx.Err() != nil {
		return failed
	}
	b.failed.Store(&failed)
	gone, err := store.Retain(dir, b.d.Now(), store.DefaultRetain())
	for _, path := range gone {
		b.d.Log.Info("snapshot_removed", "file", path, "reason", "kept are the last of 24 hours, 7 days and 4 weeks")
	}
	return errors.Join(failed, err)
}

// fault returns why scheduled snapshots fail, as the last try or the start has shown. It
// reads only memory: the folder may be on a disk that does not answer.
func (b *Backup) fault() error {
	failed := b.failed.Load()
	if failed == nil || errors.Is(*failed, store.ErrBusy) {
		return nil
	}
	dir, ok := errors.AsType[*nodehttp.SnapshotDirError](*failed)
	if ok && dir.Path != b.d.Config().SnapshotDir() {
		return nil // a reload has named another folder
	}
	return *failed
}

// removable returns the bytes of the snapshots that removeOldest may remove.
func (b *Backup) removable(ctx context.Context) (bytes int64) {
	list, err := b.List(ctx)
	if err != nil {
		return 0
	}
	kept := 0
	for _, s := range list.Snapshots { // newest first
		if !s.Verified {
			continue
		}
		if kept++; kept > leastSnapshots {
			bytes += s.Bytes
		}
	}
	return bytes
}

// removeOldest removes the oldest snapshot of the node in dir, but keeps leastSnapshots. It reports
// whether it has removed any file.
func (b *Backup) removeOldest(dir string) bool {
	gone, err := store.RemoveOldest(dir, b.d.Store.Info().NodeID, leastSnapshots)
	for _, path := range gone {
		b.d.Log.Warn("snapshot_removed", "file", path, "reason", "there is no room for the next one",
			"next", "make room, or let store.snapshot_dir name another disk")
	}
	if err != nil {
		b.d.Log.Warn("snapshot was not removed", "reason", err.Error())
	}
	return len(gone) > 0 && err == nil
}

// firstSnapshot is the time from the start until the first scheduled snapshot, unless the interval
// is shorter.
const firstSnapshot = 10 * time.Minute

// newest returns the time of the newest snapshot, so that a restart does not delay the next
// one. Without a snapshot the first one is due after firstSnapshot.
func (b *Backup) newest(now time.Time) time.Time {
	cfg := b.d.Config()
	if b.inMemory() {
		return now
	}
	newest, err := store.Newest(cfg.SnapshotDir(), b.d.Store.Info().NodeID, now)
	if b.last.Load() == 0 {
		b.Taken(b.d.Started()) // until a snapshot is known the age counts from the start
		if err == nil && !newest.IsZero() {
			b.last.Store(newest.UnixNano())
		}
	}
	every := b.every()
	if every == 0 {
		return now
	}
	if err != nil {
		b.d.Log.Warn("snapshot folder cannot be read", "reason", err.Error(), "next", "correct store.snapshot_dir")
	}
	fault := CheckSnapshotDir(cfg.SnapshotDir())
	b.failed.Store(&fault)
	if newest.IsZero() {
		return now.Add(min(every, firstSnapshot) - every)
	}
	return newest
}

// maxSnapshots bounds a list of snapshots. The retention rule keeps at most 35 of a node.
const maxSnapshots = 1000

// Suffixes of the files of snapshots: a copy gets its name after it was verified, and a copy that
// did not verify gets the second suffix.
const (
	snapshotSuffix = ".db"
	badSuffix      = ".db.bad"
)

// List lists the snapshots of this node in the folder of scheduled snapshots, newest first. It
// returns ErrAmnesia in amnesia mode. A missing folder is empty.
func (b *Backup) List(ctx context.Context) (nodeapi.SnapshotList, error) {
	if b.inMemory() {
		return nodeapi.SnapshotList{}, fmt.Errorf("snapshots: %w", store.ErrAmnesia)
	}
	info := b.d.Store.Info()
	if info == nil {
		return nodeapi.SnapshotList{}, process.ErrNotOpen
	}
	out := nodeapi.SnapshotList{Dir: b.d.Config().SnapshotDir(), Snapshots: []nodeapi.SnapshotInfo{}}
	entries, err := os.ReadDir(out.Dir) // sorted by name, which has the time
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err != nil {
		return out, fmt.Errorf("snapshots: %w", err)
	}
	for i := len(entries) - 1; i >= 0 && len(out.Snapshots) < maxSnapshots; i-- {
		if ctx.Err() != nil {
			return out, context.Cause(ctx)
		}
		if one, ok := snapshotInfo(out.Dir, entries[i], info.NodeID); ok {
			out.Snapshots = append(out.Snapshots, one)
		}
	}
	return out, nil
}

// snapshotInfo describes one file of the folder. It returns false if the file is no snapshot of the
// node, or was removed meanwhile.
func snapshotInfo(dir string, e fs.DirEntry, nodeID string) (out nodeapi.SnapshotInfo, ok bool) {
	name := e.Name()
	bad := strings.HasSuffix(name, badSuffix)
	if !strings.HasPrefix(name, "ronbox-") || !bad && !strings.HasSuffix(name, snapshotSuffix) {
		return out, false
	}
	file, err := e.Info()
	if err != nil || !file.Mode().IsRegular() {
		return out, false
	}
	out = nodeapi.SnapshotInfo{Name: name, Bytes: file.Size(), CreatedAt: file.ModTime().UTC()}
	if bad {
		return out, true
	}
	m, err := store.ReadManifest(filepath.Join(dir, name))
	if err != nil {
		return out, true // not verified, or its manifest is gone
	}
	out.CreatedAt, out.Seq, out.B3 = m.At, m.Seq, m.B3.String()
	out.Compacted, out.Verified = m.Compacted, true
	return out, m.NodeID == nodeID
}
