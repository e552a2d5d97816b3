package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A store in memory commits, reads and reports its state, but takes no snapshot. It creates no file
// in any folder and shares no data with a second store in memory.
func TestMemory(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	r := inMemory(t, Options{Path: filepath.Join(dir, "ronbox.db")}).start()
	other := inMemory(t, Options{}).start()
	mustCommit(r, put{Key: "k", Value: "v"})
	mustCommit(r, subCommand{Ops: []subOp{{Sub: "a", Key: "k", Value: "v"}}})
	if r.get("k") != "v" || other.get("k") != "" || r.Info().NodeID == other.Info().NodeID || r.Info().Seq != 2 ||
		!r.Info().Clean {
		t.Errorf("%+v beside %+v", r.Info(), other.Info())
	}
	if _, err := r.Snapshot(t.Context(), dir, SnapshotOptions{}, nil); !errors.Is(err, ErrAmnesia) {
		t.Errorf("a snapshot: %v", err)
	}
	st, err := r.Stats(t.Context())
	if err != nil || st.MaxBytes != int64(minMemory) || st.DiskFree != -1 || st.Bytes == 0 || st.Bytes > 4*memoryStep {
		t.Errorf("%+v, %v", st, err)
	}
	if r.Path() != memoryName || r.db.AllocSize != memoryStep || r.Health() != nil {
		t.Errorf("path %s, growth step %d, health %v", r.Path(), r.db.AllocSize, r.Health())
	}
	other.stop()
	r.stop()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
}

// The memory cannot be executed, is closed at exec, and stands in for one path alone.
func TestMemoryFile(t *testing.T) {
	f, err := newMemory()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	err = onFile(f, func(fd int) error {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("flags %x, %v", flags, err)
		}
		seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
		probe, old := unix.MemfdCreate("probe", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
		if old == nil && seals&unix.F_SEAL_EXEC == 0 {
			t.Errorf("seals %x: it can be made executable", seals)
		}
		if old == nil {
			err = errors.Join(err, unix.Close(probe))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	o := opening{memory: f}
	if _, err := o.open(memoryName, "/etc/passwd", os.O_RDWR, 0); !errors.Is(err, ErrAmnesia) {
		t.Errorf("another path: %v", err)
	}
	if got, err := o.open(memoryName, memoryName, os.O_RDWR, 0); err != nil || got != f {
		t.Errorf("its path: %v, %v", got, err)
	}
}

// Memory that cannot be locked is refused at the start, unless the process may lock unlimited
// memory.
func TestMemoryLocked(t *testing.T) {
	cfg := DefaultAmnesiaConfig()
	cfg.MaxBytes = minMemory
	s := New(testConfig(), Options{Memory: &cfg, Mlock: true})
	s.Declare("test", testRows, testDerived, testLog)
	err := ready(t.Context(), s)
	var limit unix.Rlimit
	if e := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); e != nil {
		t.Fatal(e)
	}
	if !locksFreely() && limit.Cur < uint64(minMemory) {
		if err == nil || !strings.HasPrefix(err.Error(), "amnesia.max_bytes: ") {
			t.Errorf("err = %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	r := (&rig{Store: s, t: t}).start()
	fillUp(r, 64<<10) // it grows, and each growth is locked
	r.stop()
}
