package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

func TestCleanErrors(t *testing.T) {
	write := func(errno syscall.Errno) error { return &fs.PathError{Op: "write", Path: "db", Err: errno} }
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{berrors.ErrMaxSizeReached, true},
		{fmt.Errorf("merge: %w", berrors.ErrMaxSizeReached), true},
		{write(syscall.ENOSPC), true}, {write(syscall.EDQUOT), true}, {write(syscall.EFBIG), true},
		{errors.New("file resize error: truncate db: no space left on device"), true},
		{write(syscall.EIO), false},
		{syscall.EIO, false}, {syscall.ENOSPC, false}, // bare: of a sync
		{&fs.PathError{Op: "sync", Path: "db", Err: syscall.ENOSPC}, false},
		{errors.New("file sync error: input/output error"), false},
		{errors.New("mmap allocate error: cannot allocate memory"), false},
		{context.Canceled, false},
	} {
		if got := clean(tt.err); got != tt.want {
			t.Errorf("clean(%v) = %v", tt.err, got)
		}
	}
}

// breakSync puts /dev/null in the place of the database's descriptor: writes pass and go nowhere,
// fdatasync is EINVAL.
func breakSync(t *testing.T, r *rig) {
	t.Helper()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Dup3(int(null.Fd()), int(fileOf(t, r.db).Fd()), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := null.Close(); err != nil {
		t.Fatal(err)
	}
}

// After a failed sync nothing succeeds any more, every caller hears of it, and a reopened file has
// every write that was acknowledged.
func TestFailedSyncPoisons(t *testing.T) {
	path := newFile(t)
	r := open(t, path)
	var mu sync.Mutex
	acked := map[string]bool{}
	var wg sync.WaitGroup
	half := make(chan struct{})
	for i := range 16 {
		wg.Go(func() {
			for n := 0; ; n++ {
				if i == 0 && n == 20 {
					close(half)
				}
				key := fmt.Sprintf("%d/%d", i, n)
				_, err := Commit(t.Context(), r.Store, Lane(i%lanes), put{Key: key, Value: "1"})
				if err != nil {
					if !errors.Is(err, ErrPoisoned) {
						t.Errorf("%s: %v", key, err)
					}
					return
				}
				mu.Lock()
				acked[key] = true
				mu.Unlock()
			}
		})
	}
	<-half
	breakSync(t, r)
	wg.Wait()
	<-r.Failed()
	<-r.done
	checkPoisoned(t, r)
	r.abandon()

	back := open(t, path)
	have := back.all()
	for key := range acked {
		if have[key] != "1" {
			t.Errorf("acknowledged %s is lost", key)
		}
	}
	if len(acked) < 16 || back.Info().Clean {
		t.Errorf("%d acknowledged, clean = %v", len(acked), back.Info().Clean)
	}
	back.stop()
}

func checkPoisoned(t *testing.T, r *rig) {
	t.Helper()
	var gone context.Context = t.Context()
	if _, err := Commit(gone, r.Store, Control,
		put{Key: "x"}); !errors.Is(err, ErrPoisoned) || errors.Is(err, ErrUnknown) ||
		errors.Is(err, ErrDied) {
		t.Errorf("commit: %v", err)
	}
	if err := r.View(gone, func(Reader) error { return nil }); !errors.Is(err, ErrPoisoned) {
		t.Errorf("view: %v", err)
	}
	if _, err := r.Snapshot(gone, t.TempDir(), SnapshotOptions{}, nil); !errors.Is(err, ErrPoisoned) {
		t.Errorf("snapshot: %v", err)
	}
	if err := r.Health(); !errors.Is(err, ErrPoisoned) {
		t.Errorf("health: %v", err)
	}
	if err := r.end; !errors.Is(err, ErrPoisoned) || errors.Is(err, ErrDied) {
		t.Errorf("committer ended with %v", err)
	}
	if err := r.Close(); !errors.Is(err, ErrPoisoned) {
		t.Errorf("close: %v", err)
	}
}

// hookWrites replaces what bbolt writes pages with.
func hookWrites(t *testing.T, db *bolt.DB, fn func(b []byte, off int64) (int, error)) {
	t.Helper()
	type ops struct {
		writeAt func(b []byte, off int64) (int, error)
	}
	p := (*ops)(fieldOf(t, db, "ops", unsafe.Sizeof(ops{})))
	p.writeAt = fn
}

// Errors of single page writes: want of room is clean and heals, any other poisons. A command in
// hand learns what became of it.
func TestFailedWrites(t *testing.T) {
	for _, tt := range []struct {
		name  string
		errno syscall.Errno
		meta  bool // fail the meta page, not a data page
		want  error
	}{
		{"disk full", syscall.ENOSPC, false, ErrFull},
		{"quota", syscall.EDQUOT, false, ErrFull},
		{"file limit", syscall.EFBIG, false, ErrFull},
		{"disk full at the meta page", syscall.ENOSPC, true, ErrFull},
		{"i/o error", syscall.EIO, false, ErrPoisoned},
		{"i/o error at the meta page", syscall.EIO, true, ErrPoisoned},
	} {
		path := newFile(t)
		r := open(t, path)
		r.db.NoSync = true // a commit of two seconds is followed by a probe, which fails in place of the command
		mustCommit(r, put{Key: "k", Value: "old"})
		file := fileOf(t, r.db)
		hookWrites(t, r.db, func(b []byte, off int64) (int, error) {
			if (off < 2*PageSize) == tt.meta {
				return 0, &fs.PathError{Op: "write", Path: path, Err: tt.errno}
			}
			return file.WriteAt(b, off)
		})
		seq := r.Info().Seq
		_, err := Commit(t.Context(), r.Store, Work, put{Key: "k", Value: "new"})
		if !errors.Is(err, tt.want) || errors.Is(err, ErrUnknown) != (tt.want == ErrPoisoned) {
			t.Errorf("%s: err = %v, want %v", tt.name, err, tt.want)
		}
		if tt.want == ErrPoisoned {
			r.abandon()
			continue
		}
		if r.get("k") != "old" || r.Info().Seq != seq || !errors.Is(r.room.cause(), ErrFull) {
			t.Errorf("%s: k = %q, seq %d, room %v", tt.name, r.get("k"), r.Info().Seq, r.room.cause())
		}
		if _, err := Commit(t.Context(), r.Store, Work, put{Key: "k"}); !errors.Is(err, ErrFull) {
			t.Errorf("%s: work goes on: %v", tt.name, err)
		}
		hookWrites(t, r.db, file.WriteAt)
		r.stop()
		r = open(t, path)
		if mustCommit(r, put{Key: "k", Value: "healed"}) != seq+1 || r.get("k") != "healed" {
			t.Errorf("%s: did not heal", tt.name)
		}
		r.stop()
	}
}

// A disk that fails while a file is prepared, or migrated, ends the process as one that fails later
// does; the file is as it was.
func TestFailedPrepare(t *testing.T) {
	for name, make := range map[string]func(path string) *Store{
		"boot":      func(path string) *Store { return newStore(path, testConfig()) },
		"migration": func(path string) *Store { return lifted(path, lifts(7), nil) },
	} {
		path := counted(t, 3)
		s := make(path)
		if err := s.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		hookWrites(t, s.db,
			func([]byte, int64) (int, error) { return 0, &fs.PathError{Op: "write", Path: path, Err: syscall.EIO} })
		if err := s.Prepare(t.Context()); !errors.Is(err, ErrPoisoned) || !errors.Is(s.Err(), ErrPoisoned) ||
			!errors.Is(s.Close(), ErrPoisoned) {
			t.Errorf("%s: %v, store %v", name, err, s.Err())
		}
		if err := s.db.Close(); err != nil {
			t.Error(err)
		}
		if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || !rep.OK || rep.Info.Schema != Schema ||
			!rep.Info.Clean {
			t.Errorf("%s: %+v, %v", name, rep, err)
		}
	}
}

// A meta page that was written and yet reported as "no room" shows the new state: that is no clean
// error.
func TestNoRoomAfterTheMetaPage(t *testing.T) {
	path := newFile(t)
	r := open(t, path)
	mustCommit(r, put{Key: "k", Value: "old"})
	file := fileOf(t, r.db)
	hookWrites(t, r.db, func(b []byte, off int64) (int, error) {
		n, err := file.WriteAt(b, off)
		if off < 2*PageSize {
			err = &fs.PathError{Op: "write", Path: path, Err: syscall.ENOSPC}
		}
		return n, err
	})
	if _, err := Commit(t.Context(), r.Store, Work, put{Key: "k", Value: "new"}); !errors.Is(err, ErrPoisoned) ||
		!errors.Is(err, ErrUnknown) {
		t.Errorf("err = %v", err)
	}
	r.abandon()
}

// At max_bytes a write is refused, reads go on, and the file is as it was.
func TestMaxBytes(t *testing.T) {
	cfg := testConfig()
	cfg.MaxBytes = minBytes
	r := idle(t, newFile(t), cfg).start()
	value := string(make([]byte, MaxValue))
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = Commit(t.Context(), r.Store, Work, put{Key: fmt.Sprintf("%03d", n), Value: value})
	}
	if !errors.Is(err, ErrFull) || r.Err() != nil || n < 20 {
		t.Fatalf("after %d MiB: %v, store %v", n, err, r.Err())
	}
	if len(r.get("000")) != MaxValue || r.get(fmt.Sprintf("%03d", n-1)) != "" || r.Bytes() > int64(minBytes) {
		t.Errorf("rows are not as before the refusal, or the file has %d bytes", r.Bytes())
	}
	r.stop()
}

// A page the disk does not give is a fault of the map: the reader gets an error, the store is
// poisoned, the process lives to say so.
func TestUnreadablePagePoisons(t *testing.T) {
	for _, via := range []string{"view", "command"} {
		path := newFile(t)
		r := open(t, path)
		for i := range 64 {
			mustCommit(r, put{Key: fmt.Sprint(i), Value: string(make([]byte, 4000))})
		}
		if err := os.Truncate(path, 3*PageSize); err != nil {
			t.Fatal(err)
		}
		var err error
		walk := func(rd Reader) (n int) {
			for _, v := range rows.All(rd) {
				n += len(v)
			}
			return n
		}
		if via == "view" {
			err = r.View(t.Context(), func(rd Reader) error { walk(rd); return nil })
		} else {
			_, err = Commit(t.Context(), r.Store, Work,
				do[int]{"test.walk/1", func(rd Reader, _ Stamp, _ *Writes) (int, error) { return walk(rd), nil }})
		}
		if !errors.Is(err, ErrPoisoned) || !errors.Is(r.Err(), ErrPoisoned) || errors.Is(r.Err(), ErrDied) ||
			errors.Is(err, ErrUnknown) {
			t.Errorf("%s: err = %v, store %v", via, err, r.Err())
		}
		r.abandon()
	}
}

// limitFileSize makes the kernel refuse to let this process's files grow beyond n bytes, until it
// is called again.
func limitFileSize(n uint64) error {
	signal.Ignore(syscall.SIGXFSZ)
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &l); err != nil {
		return err
	}
	l.Cur = min(n, l.Max)
	return unix.Setrlimit(unix.RLIMIT_FSIZE, &l)
}
