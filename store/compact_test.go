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

	"golang.org/x/sys/unix"

	"ronbox/store/lock"
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
	if err := lock.File(node, true, 0); err != nil { // as a node does right after the rename
		t.Fatal(err)
	}
	_, folder, err := lock.Folder(path)
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

// moved moves a file to a folder of its own and leaves a relative link to it.
func moved(t *testing.T, path string) (target string) {
	t.Helper()
	big := filepath.Join(filepath.Dir(path), "big")
	target = filepath.Join(big, "moved.db")
	to, err := filepath.Rel(filepath.Dir(path), target)
	if err = errors.Join(err, os.Mkdir(big, 0o700), os.Rename(path, target), os.Symlink(to, path)); err != nil {
		t.Fatal(err)
	}
	return target
}

// A compaction and a restore replace the file that a link names, beside which their temporary files
// lie. The link stays, also if the file is missing. A link into a missing folder, as of a disk that
// is not mounted, is refused.
func TestLinkedFile(t *testing.T) {
	snapshot := snapshotOf(t)
	path, hash := holed(t)
	target := moved(t, path)
	second := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, second); err != nil {
		t.Fatal(err)
	}
	whole := func(step, hash string, files int) {
		t.Helper()
		to, err := os.Readlink(path)
		if err != nil || to != filepath.Join("big", "moved.db") {
			t.Fatalf("%s: the link names %q, %v", step, to, err)
		}
		rep, err := Verify(t.Context(), target, nil, nil, nil)
		if err != nil || !rep.OK || hash != "" && rep.StateHash.String() != hash {
			t.Errorf("%s: %+v, %v", step, rep, err)
		}
		beside, err := os.ReadDir(filepath.Dir(path))
		there, failed := os.ReadDir(filepath.Dir(target))
		if err != nil || failed != nil || len(beside) != 2 || len(there) != files {
			t.Errorf("%s: %v beside the link, %v beside the file, %v, %v", step, beside, there, err, failed)
		}
	}
	if done, err := Compact(t.Context(), second, nil); err != nil || done.After*4 > done.Before {
		t.Fatalf("compact: %+v, %v", done, err)
	}
	whole("compact", hash, 1)
	if err := os.WriteFile(target+newSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if removed, err := SweepBeside(path); err != nil || len(removed) != 1 || removed[0] != target+newSuffix {
		t.Errorf("swept %q, %v", removed, err)
	}
	if _, err := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day}, nil); err != nil {
		t.Fatalf("restore: %v", err)
	}
	whole("restore", "", 2) // the old file is kept
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day}, nil); err != nil {
		t.Fatalf("restore without a file: %v", err)
	}
	whole("restore without a file", "", 2)
	if err := os.RemoveAll(filepath.Dir(target)); err != nil {
		t.Fatal(err)
	}
	_, err := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day}, nil)
	_, kept := os.Readlink(path)
	if !errors.Is(err, fs.ErrNotExist) || kept != nil {
		t.Errorf("restore without a folder: %v, the link: %v", err, kept)
	}
}

// Target resolves as the kernel does: a ".." leads out of the folder that a link names.
func TestTarget(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "a", "b"), 0o700), os.Mkdir(filepath.Join(dir, "c"), 0o700),
		os.Symlink("../a/b", filepath.Join(dir, "c", "down")), os.Symlink("down/../f", filepath.Join(dir, "c", "up")),
		os.Symlink("loop", filepath.Join(dir, "loop")), os.Symlink("no/f", filepath.Join(dir, "lost"))); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path, want string
		err        error
	}{
		{"f", "f", nil},
		{"c/up", "a/f", nil},
		{"a/../c/up", "a/f", nil},
		{"loop", "loop", unix.ELOOP},
		{"lost", "no/f", fs.ErrNotExist},
	} {
		got, err := lock.Target(dir + "/" + tt.path)
		if got != dir+"/"+tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s: %s, %v", tt.path, got, err)
		}
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
