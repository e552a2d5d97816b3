package store

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// A file system that does not report its free space, such as memory or a tmpfs without a limit, can
// also refuse a write. The store tries again after some time.
func TestRefusalWithoutADisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, Options{})
		r.refused(errRefused)
		if r.look(r.db, r.room.last.Load().size, true); r.Health() == nil {
			t.Error("forgotten at once")
		}
		time.Sleep(diskRest + 1)
		if r.look(r.db, r.room.last.Load().size, true); r.Health() != nil {
			t.Errorf("never forgotten: %v", r.Health())
		}
		r.stop()
	})
}

// grows leaves the file unchanged, and releases the blocks on the disk.
func TestGrowsGivesBack(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, PageSize)); err != nil {
		t.Fatal(err)
	}
	_, before, _ := diskSpace(f)
	if !grows(f, allocSize) {
		t.Error("16 MiB do not fit")
	}
	_, after, _ := diskSpace(f)
	if info, err := f.Stat(); err != nil || info.Size() != PageSize || after > before {
		t.Errorf("%d bytes long, %d on the disk, %d before; %v", info.Size(), after, before, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// Only errors for lack of space mean that the file cannot grow. An unsupported or interrupted
// attempt does not.
func TestNoRoomErrors(t *testing.T) {
	for err, want := range map[error]bool{
		unix.ENOSPC: true, unix.EDQUOT: true, unix.EFBIG: true, unix.EOPNOTSUPP: false, unix.ENOSYS: false,
		unix.EINVAL: false, unix.EINTR: false,
	} {
		if wantsRoom(err) != want {
			t.Errorf("%v: want %v", err, want)
		}
	}
}

// bytesOf returns at most spaceMax, even if the product of count and size overflows.
func TestBytesOf(t *testing.T) {
	for _, tt := range []struct {
		blocks uint64
		size   int64
		want   int64
	}{{0, 4096, 0}, {3, 4096, 12288}, {1 << 63, 4096, spaceMax}, {math.MaxUint64, 1, spaceMax}, {7, 0, 0}, {1 << 50,
		1 << 20, spaceMax}} {
		if got := bytesOf(tt.blocks, tt.size); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

// Health follows the last group, however large it was, without waiting for the next one.
func TestOneGroupFillsTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, Options{}).start()
		fill := do[int]{"test.fill/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			for i := range 14 {
				rows.Put(w, fmt.Sprint(i), make([]byte, MaxValue-16))
			}
			return 0, nil
		}}
		mustCommit(r, fill)
		time.Sleep(2 * probeEvery)
		synctest.Wait()
		if err := r.Health(); !errors.Is(err, ErrFull) {
			t.Errorf("health %v with %d of %d bytes used", err, r.Bytes(), r.maxBytes())
		}
		r.stop()
	})
}

// A row that is deleted twice is counted once.
func TestShrinksCountsARowOnce(t *testing.T) {
	r := inMemory(t, Options{}).start()
	mustCommit(r, put{Key: "k", Value: strings.Repeat("v", 64<<10)})
	twice := do[int]{"test.twice/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
		rows.Delete(w, "k")
		rows.Delete(w, "k")
		rows.Put(w, "l", make([]byte, 100<<10))
		return 0, nil
	}}
	var g group
	g.open(r.Store)
	tx, err := r.db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	g.use(tx)
	g.reader.owner = "test"
	if _, err := twice.fn(g.reader, Stamp{}, &g.writes); err != nil || g.writes.shrinks() {
		t.Errorf("36 KiB more count as fewer, %v", err)
	}
	if err := g.rollback(tx); err != nil {
		t.Fatal(err)
	}
	r.stop()
}
