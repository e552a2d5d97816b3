package store

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestRestoreNeedsAcceptance(t *testing.T) {
	snapshot := snapshotOf(t)
	path := filepath.Join(t.TempDir(), "data", "ronbox.db")
	by := Event{Event: "db.restore", Decision: "allow", Reason: "drill", UID: "0"}
	var pct []int64
	info, err := Restore(
		t.Context(),
		snapshot,
		path,
		RestoreOptions{Now: day, By: by, KeepTokens: true},
		func(done, total int64) {
			pct = append(pct, done*100/total)
		},
	)
	if err != nil || !info.Restored || info.AuthEpoch != 1 || info.RestoredFrom == "" ||
		info.RestoredFrom == info.Incarnation {
		t.Fatalf("%+v, %v", info, err)
	}
	if len(pct) == 0 || pct[len(pct)-1] != 100 {
		t.Errorf("progress %v", pct)
	}
	r := open(t, path)
	for _, l := range []Lane{Work, Bulk} {
		if _, err := Commit(t.Context(), r.Store, l, put{Key: "k"}); !errors.Is(err, ErrRestored) {
			t.Errorf("%s before acceptance: %v", l, err)
		}
	}
	if _, err := Commit(t.Context(), r.Store, Control, put{Key: "control", Value: "v"}); err != nil {
		t.Errorf("control before acceptance: %v", err)
	}
	r.stop()
	r = open(t, path)
	if i := r.Info(); !i.Restored {
		t.Errorf("a restart accepted the restore: %+v", i)
	}
	for range 2 { // the second one changes nothing
		if err := r.AcceptRestore(t.Context(), Event{Event: "db.accept_restore", Decision: "allow"}); err != nil {
			t.Fatal(err)
		}
	}
	mustCommit(r, put{Key: "k", Value: "v"})
	if i := r.Info(); i.Restored || i.AuditSeq != 2 || i.RestoredFrom != info.RestoredFrom ||
		i.Incarnation != info.Incarnation {
		t.Errorf("accepted: %+v", i)
	}
	r.stop()
	if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || !rep.OK || rep.Info.Restored {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A restore keeps the file it replaces, and one that fails leaves it where it is.
func TestRestoreKeepsTheOldFile(t *testing.T) {
	snapshot, path := snapshotOf(t), filled(t)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := copyOf(t, snapshot)
	truncate(t, bad, 3*PageSize)
	if _, err := Restore(t.Context(), bad, path, RestoreOptions{Now: day}, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a damaged snapshot: %v", err)
	}
	if _, err := Restore(t.Context(), path+".none", path, RestoreOptions{Now: day}, nil); !errors.Is(
		err,
		fs.ErrNotExist,
	) {
		t.Errorf("a missing snapshot: %v", err)
	}
	failing := Check{Name: "engine", Run: func(Reader) error { return errRefused }}
	if _, err := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day, Checks: []Check{failing}},
		nil); !errors.Is(
		err,
		ErrCorrupt,
	) {
		t.Errorf("a snapshot that an engine refuses: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Restore(ctx, snapshot, path, RestoreOptions{Now: day}, func(done, total int64) {
		if done == total {
			cancel()
		}
	}); err != nil {
		t.Errorf("cancelled after the last byte: %v", err)
	}
	dir, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(dir) != 2 || !strings.HasPrefix(dir[1].Name(), "ronbox.db.before-restore-") {
		t.Fatalf("the folder holds %v, %v", dir, err)
	}
	kept, err := os.ReadFile(filepath.Join(filepath.Dir(path), dir[1].Name()))
	if err != nil || string(kept) != string(raw) {
		t.Errorf("the file kept is not the one that was there, %v", err)
	}
}

// Makers of the file in one folder exclude each other, whether there is a file to lock or not.
func TestOneMaker(t *testing.T) {
	snapshot := snapshotOf(t)
	dir := t.TempDir()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(d.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "ronbox.db")
	id, err := NewIdentity(day)
	if err != nil {
		t.Fatal(err)
	}
	var locked *LockedError
	if err := Create(path, id); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("create: %v", err)
	}
	if _, err := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day}, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("restore: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Create(path, id); err != nil {
		t.Error(err)
	}
}

// What a crash leaves between the steps of a restore opens as the old file, and the next restore
// passes.
func TestRestoreAfterACrash(t *testing.T) {
	snapshot, path := snapshotOf(t), filled(t)
	if err := os.WriteFile(path+".restoring", []byte("half a copy"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(path, path+".before-restore-20260301T120000.000Z"); err != nil {
		t.Fatal(err)
	}
	r := open(t, path)
	if len(r.all()) != 40 {
		t.Errorf("%d rows", len(r.all()))
	}
	r.stop()
	if _, err := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day}, nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("over a file that was kept: %v", err)
	}
	if _, err := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day.Add(time.Second)}, nil); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(path + "*")
	if err != nil || len(left) != 3 {
		t.Errorf("left %v, %v", left, err)
	}
}

// What root makes in the place of a node's file is the node's, or it could not open it. For others
// there is nothing to change.
func TestOwnerIsKept(t *testing.T) {
	snapshot, path := snapshotOf(t), newFile(t)
	fresh := filepath.Join(t.TempDir(), "ronbox.db")
	owner := uint32(os.Geteuid())
	if owner == 0 {
		owner = 12345
		for _, p := range []string{path, filepath.Dir(fresh)} {
			if err := os.Chown(p, int(owner), int(owner)); err != nil {
				t.Fatal(err)
			}
		}
	}
	expect := func(p string) {
		t.Helper()
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil || st.Uid != owner {
			t.Errorf("%s belongs to %d, not to %d, %v", p, st.Uid, owner, err)
		}
	}
	if _, err := Compact(t.Context(), path, nil); err != nil {
		t.Fatal(err)
	}
	expect(path)
	for _, dst := range []string{path, fresh} {
		if _, err := Restore(t.Context(), snapshot, dst, RestoreOptions{Now: day}, nil); err != nil {
			t.Fatal(err)
		}
		expect(dst)
	}
}
