package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// maxSnapshots bounds a list of snapshots. The retention rule keeps at most 35 of a node.
const maxSnapshots = 1000

// Suffixes of the files of snapshots: a copy gets its name after it was verified, and a copy that
// did not verify gets the second suffix.
const (
	snapshotSuffix = ".db"
	badSuffix      = ".db.bad"
)

// Snapshots lists the snapshots of this node in the folder of scheduled snapshots, newest first. It
// returns ErrAmnesia in amnesia mode. A missing folder is empty.
func (n *Node) Snapshots(ctx context.Context) (nodeapi.SnapshotList, error) {
	if n.boot.Amnesia.Enabled {
		return nodeapi.SnapshotList{}, fmt.Errorf("snapshots: %w", store.ErrAmnesia)
	}
	info := n.store.Info()
	if info == nil {
		return nodeapi.SnapshotList{}, errNotOpen
	}
	out := nodeapi.SnapshotList{Dir: snapshotDir(n.conf()), Snapshots: []nodeapi.SnapshotInfo{}}
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
