package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"ronbox/appliance/host/hosttest"
	"ronbox/store/page"
)

// filled returns a closed file with rows in several buckets and more than one level of pages.
func filled(t testing.TB) string {
	t.Helper()
	r := open(t, newFile(t))
	for i := range 40 {
		mustCommit(r, put{Key: fmt.Sprintf("%03d", i), Value: string(make([]byte, 200))})
	}
	mustCommit(r, do[int]{"test.audit/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
		w.Audit(Event{Event: "test", Decision: "allow"})
		return 0, nil
	}})
	r.stop()
	return r.Path()
}

// The check after a crash reports its progress and ends with its context. The next boot repeats the
// check.
func TestCheckTellsOfItself(t *testing.T) {
	path, _ := holed(t)
	r := open(t, path)
	r.poison(errRefused, false) // as a crash: the file is not marked clean
	<-r.done
	r.cancel()
	if err := r.db.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var at, all int64
	told := 0
	s := newStore(path, testConfig())
	s.opt.Progress = func(stage string, done, total int64) {
		if stage != "check" || done <= at || done > total {
			t.Errorf("%s is at %d of %d, after %d", stage, done, total, at)
		}
		if at, all = done, total; ctx.Err() == nil {
			cancel()
			return
		}
		told++
	}
	if err := ready(ctx, s); !errors.Is(err, context.Canceled) || told != 0 {
		t.Fatalf("err = %v, told %d times more", err, told)
	}
	s = newStore(path, testConfig())
	s.opt.Progress, at = func(_ string, done, total int64) { at, all, told = done, total, told+1 }, 0
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if told < 2 || at != all || s.Info().Clean {
		t.Errorf("told %d times, up to %d of %d; clean %v", told, at, all, s.Info().Clean)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Every boot reads from the disk, even after a clean stop: if the last sync of Close failed, the
// page cache contains the clean flag but the disk does not.
func TestBootForgetsThePageCache(t *testing.T) {
	path, _ := holed(t)
	r := open(t, path)
	for i := range 32 {
		mustCommit(r, put{Key: fmt.Sprint(i), Value: string(make([]byte, 256<<10))})
	}
	r.stop()
	if err := dropPages(path); err != nil {
		t.Fatal(err)
	}
	cold := cached(t, path) // all pages, if the file system is in memory
	if _, err := os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	if warm := cached(t, path); warm < 1000 {
		t.Fatalf("%d pages are in the cache after reading all", warm)
	}
	s := newStore(path, testConfig())
	s.opt.Strict = false
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := cached(t, path); n > cold+500 {
		t.Errorf("%d pages are in the cache after a boot, %d after forgetting", n, cold)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// cached returns the number of pages of a file in the page cache.
func cached(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	data, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	in := make([]byte, (len(data)+os.Getpagesize()-1)/os.Getpagesize())
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)),
		uintptr(unsafe.Pointer(&in[0]))); errno != 0 {
		t.Fatal(errno)
	}
	for _, b := range in {
		n += int(b & 1)
	}
	if err := errors.Join(unix.Munmap(data), f.Close()); err != nil {
		t.Fatal(err)
	}
	return n
}

func copyOf(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(to, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

func overwrite(t testing.TB, path string, off int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Damage that preflight finds is refused before the file is mapped.
func TestDamagedFile(t *testing.T) {
	whole := filled(t)
	junk := make([]byte, 64)
	for _, tt := range []struct {
		name   string
		damage func(path string)
		want   error
	}{
		{"untouched", func(string) {}, nil},
		{"one torn meta page", func(p string) { overwrite(t, p, page.Header, junk) }, nil},
		{"the other torn meta page", func(p string) { overwrite(t, p, PageSize+page.Header, junk) }, nil},
		{"both meta pages", func(p string) {
			overwrite(t, p, page.Header, junk)
			overwrite(t, p, PageSize+page.Header, junk)
		}, ErrCorrupt},
		{"the freelist", func(p string) { overwrite(t, p, freelistOf(t, p)+8, junk) }, ErrCorrupt},
		{"cut short", func(p string) { truncate(t, p, 6*PageSize) }, ErrCorrupt},
		{"cut to a page", func(p string) { truncate(t, p, PageSize) }, ErrCorrupt},
		{"empty", func(p string) { truncate(t, p, 0) }, ErrCorrupt},
		{"gone", func(p string) { _ = os.Remove(p) }, fs.ErrNotExist},
	} {
		path := copyOf(t, whole)
		tt.damage(path)
		s := newStore(path, testConfig())
		if err := ready(t.Context(), s); !errors.Is(err, tt.want) {
			t.Errorf("%s: open: %v, want %v", tt.name, err, tt.want)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", tt.name, err)
		}
		if tt.want == nil {
			continue
		}
		rep, err := Verify(t.Context(), path, nil, nil, nil)
		if rep.OK || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: verify: %+v, %v", tt.name, rep, err)
		}
	}
}

// freelistOf returns the offset of the freelist of a file.
func freelistOf(t testing.TB, path string) int64 {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m, err := page.Preflight(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return int64(m.Freelist) * PageSize
}

func truncate(t testing.TB, path string, size int64) {
	t.Helper()
	if err := os.Truncate(path, size); err != nil {
		t.Fatal(err)
	}
}

// A file of a newer schema is refused.
func TestNewerSchema(t *testing.T) {
	path := filled(t)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		info, err := readInfo(tx)
		info.Schema = Schema + 1
		return errors.Join(err, writeInfo(tx, info))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if err := ready(t.Context(), newStore(path, testConfig())); !errors.Is(err, ErrSchema) {
		t.Errorf("open: %v", err)
	}
}

// For damage to any byte, Verify returns a report and does not crash. With a manifest it always
// detects the damage.
func TestVerifySurvivesEveryByte(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	r := open(t, newFile(t))
	for i := range 4 {
		mustCommit(r, put{Key: fmt.Sprint(i), Value: "v"})
	}
	m, err := r.Snapshot(t.Context(), t.TempDir(), SnapshotOptions{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	raw, err := os.ReadFile(m.Path)
	if err != nil {
		t.Fatal(err)
	}
	bare := filepath.Join(t.TempDir(), "bare.db")
	if err := os.WriteFile(bare, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(t.Context(), bare, nil, nil, nil); err != nil || !rep.OK {
		t.Fatalf("untouched: %+v, %v", rep, err)
	}
	found := 0
	for off := 0; off < len(raw); off += 1 + off%61 {
		flipped := raw[off] ^ byte(1<<(off%8))
		overwrite(t, bare, int64(off), []byte{flipped})
		rep, err := Verify(t.Context(), bare, nil, nil, nil)
		if err != nil {
			t.Fatalf("byte %d: %v", off, err)
		}
		if !rep.OK {
			found++
		}
		overwrite(t, bare, int64(off), raw[off:off+1])
	}
	if found == 0 {
		t.Error("no damage was found at all")
	}
	for off := int64(0); off < m.Size; off += 997 {
		overwrite(t, m.Path, off, []byte{raw[off] ^ 0x10})
		if rep, err := Verify(t.Context(), m.Path, nil, nil, nil); err != nil || rep.OK {
			t.Errorf("byte %d beside its manifest: %+v, %v", off, rep, err)
		}
		overwrite(t, m.Path, off, raw[off:off+1])
	}
}

func FuzzPreflight(f *testing.F) {
	raw, err := os.ReadFile(filled(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw[:2*PageSize], int64(len(raw)))
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, meta []byte, size int64) {
		path := filepath.Join(t.TempDir(), "fuzz")
		if err := os.WriteFile(path, meta, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := page.Preflight(file, size)
		if err == nil && int64(m.HighWater)*PageSize > size {
			t.Errorf("high water %d passes in a file of %d bytes", m.HighWater, size)
		}
		if w, err := page.NewWalk(file, int64(len(meta))); err == nil {
			_ = w.All()
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
