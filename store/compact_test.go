package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// holed returns a file from which most rows were deleted, and its state hash.
func holed(t *testing.T) (path, hash string) {
	t.Helper()
	path = newFile(t)
	r := open(t, path)
	for i := range 64 {
		mustCommit(r, put{Key: fmt.Sprintf("%02d", i), Value: strings.Repeat("v", 128<<10)})
	}
	var keys []string
	for i := range 56 {
		keys = append(keys, fmt.Sprintf("%02d", i))
	}
	if _, err := Commit(t.Context(), r.Store, Bulk, sweep(keys, false)); err != nil {
		t.Fatal(err)
	}
	hash = r.hashAll()
	r.stop()
	return path, hash
}

func TestCompact(t *testing.T) {
	path, hash := holed(t)
	was, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	info := was.Info()
	if err := was.Close(); err != nil {
		t.Fatal(err)
	}
	var end, total int64
	done, err := Compact(t.Context(), path, func(d, n int64) {
		if d < end {
			t.Errorf("progress goes back from %d to %d", end, d)
		}
		end, total = d, n
	})
	if err != nil || done.StateHash.String() != hash || done.After*4 > done.Before || end != total ||
		end != done.Before {
		t.Fatalf("%+v, %v; progress %d of %d; want state %s", done, err, end, total, hash)
	}
	rep, err := Verify(t.Context(), path, nil, nil, nil)
	if err != nil || !rep.OK || rep.Size != done.After || rep.Info != info {
		t.Errorf("%+v, %v; want %+v", rep, err, info)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	if err != nil || len(left) != 1 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
	r := open(t, path)
	mustCommit(r, put{Key: "k", Value: "v"})
	r.stop()
}

// A stopped compaction leaves the old file unchanged and no other file beside it.
func TestCompactStopped(t *testing.T) {
	path, _ := holed(t)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	unchanged := func(name string) {
		t.Helper()
		now, err := os.ReadFile(path)
		left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
		if err != nil || string(now) != string(raw) || len(left) != 1 {
			t.Errorf("%s: the file was changed, or there is %v, %v", name, left, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Compact(ctx, path, func(int64, int64) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	unchanged("cancelled")
	r := open(t, newFile(t))
	if _, err := Compact(t.Context(), r.Path(), nil); !errors.Is(err, ErrLocked) {
		t.Errorf("beside a node: %v", err)
	}
	r.stop()
	if _, err := Compact(t.Context(), filepath.Join(t.TempDir(), "no", "file"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a file: %v", err)
	}
	damaged := copyOf(t, path)
	truncate(t, damaged, 9*PageSize)
	if _, err := Compact(t.Context(), damaged, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a damaged file: %v", err)
	}
	small(t, 3<<20, func(dir string) {
		full := filepath.Join(dir, "ronbox.db")
		raw, err := template()
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		r := open(t, full)
		mustCommit(r, put{Key: "k", Value: strings.Repeat("v", 1<<20)})
		r.stop()
		fillDisk(t, filepath.Join(dir, "ballast"), 256<<10)
		if _, err := Compact(t.Context(), full, nil); !errors.Is(err, ErrFull) {
			t.Errorf("without room: %v", err)
		}
		if left, _ := filepath.Glob(full + "*"); len(left) != 1 {
			t.Errorf("without room: there is %v", left)
		}
	})
}

// The next compaction removes the files that a crash left.
func TestCompactAfterACrash(t *testing.T) {
	path, hash := holed(t)
	for _, rest := range []string{path + ".compacting", path + ".before-compact"} {
		if err := os.WriteFile(rest, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if done, err := Compact(t.Context(), path, nil); err != nil || done.StateHash.String() != hash {
		t.Errorf("%+v, %v", done, err)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 1 {
		t.Errorf("left %v", left)
	}
}

// A compaction leaves the new file in place if a node has already opened it. Otherwise commits of
// that node would be lost.
func TestCompactionLeavesAStartedNodeAlone(t *testing.T) {
	path, _ := holed(t)
	fresh := copyOf(t, path)
	node, err := os.OpenFile(fresh, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := lockFile(node, true, 0); err != nil { // as a node does right after the rename
		t.Fatal(err)
	}
	folder, err := lockFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := swap(fresh, path, folder); err != nil {
		t.Error(err)
	}
	has, err := node.Stat()
	named, err2 := os.Stat(path)
	if err := errors.Join(err, err2, folder.Close(), node.Close()); err != nil || !os.SameFile(has, named) {
		t.Errorf("the file of the node has lost its name, %v", err)
	}
	if left, _ := filepath.Glob(path + ".*"); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// A compacted snapshot has the same rows as a plain snapshot, is smaller, and is marked in its
// manifest. It is restored in the same way.
func TestCompactSnapshot(t *testing.T) {
	path, hash := holed(t)
	r := open(t, path)
	dir := t.TempDir()
	plain, err := r.Snapshot(t.Context(), dir, SnapshotOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var end, total int64
	cas := &CASList{Count: 2, Bytes: 99, ListB3: plain.B3}
	o := SnapshotOptions{Compact: true, Versions: map[string]string{"ronbox": "1.2.3"}, CAS: cas}
	m, err := r.Snapshot(t.Context(), dir, o, func(done, all int64) { end, total = done, all })
	if err != nil || m.StateHash.String() != hash || m.StateHash != plain.StateHash || m.Size*4 > plain.Size ||
		end != total {
		t.Fatalf("%+v, %v; progress %d of %d", m, err, end, total)
	}
	read, err := ReadManifest(m.Path)
	if err != nil || !read.Compacted || read.Versions["ronbox"] != "1.2.3" || read.CAS == nil || *read.CAS != *cas ||
		plain.Compacted {
		t.Errorf("%+v, %v", read, err)
	}
	if raw, err := os.ReadFile(plain.ManifestPath); err != nil || strings.Contains(string(raw), "cas") ||
		strings.Contains(string(raw), "versions") {
		t.Errorf("a plain manifest: %s, %v", raw, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := r.Snapshot(ctx, dir, SnapshotOptions{Compact: true}, func(int64, int64) { cancel() }); !errors.Is(
		err,
		context.Canceled,
	) {
		t.Errorf("cancelled: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 4 {
		t.Errorf("the folder holds %v", left)
	}
	r.stop()
	to := filepath.Join(t.TempDir(), "data", "ronbox.db")
	if _, err := Restore(t.Context(), m.Path, to, RestoreOptions{Now: day}, nil); err != nil {
		t.Error(err)
	}
}
