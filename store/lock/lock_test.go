package lock

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

func TestLockHolder(t *testing.T) {
	const table = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n" +
		"2: FLOCK  ADVISORY  WRITE 22 fe:00:78 0 EOF\n" +
		"3: FLOCK  ADVISORY  WRITE 33 00:1b:77 0 EOF\n" +
		"3: -> FLOCK  ADVISORY  WRITE 34 fe:00:77 0 EOF\n" +
		"4: FLOCK  ADVISORY  READ 44 fe:00:77 0 EOF\ngarbage\n"
	for _, tt := range []struct {
		dev, inode uint64
		want       int
	}{{0xfe00, 77, 44}, {0x1b, 77, 33}, {0x55, 77, 44}, {0xfe00, 78, 22}, {0xfe00, 7, 0}} {
		if got := lockHolder([]byte(table), tt.dev, tt.inode); got != tt.want {
			t.Errorf("%x:%d is held by %d, want %d", tt.dev, tt.inode, got, tt.want)
		}
	}
}

// The kernel gives its table of locks in pieces, and a lock that ends between two of them hides
// another: the holder is found all the same.
func TestHolderAmongOthers(t *testing.T) {
	dir := t.TempDir()
	take := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
			return nil
		}
		if err := File(f, true, 0); err != nil {
			t.Error(err)
		}
		return f
	}
	held := take("held")
	defer held.Close()
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	for i := range 4 {
		others.Go(func() {
			var files []*os.File
			for n := 0; ctx.Err() == nil; n++ {
				files = append(files, take(strconv.Itoa(i)+"."+strconv.Itoa(n%100)))
				if len(files) == 50 {
					_ = files[0].Close()
					files = files[1:]
				}
			}
			for _, f := range files {
				_ = f.Close()
			}
		})
	}
	missed := 0
	for range 500 {
		if e := Holder(held.Name()); e == nil || e.PID != os.Getpid() {
			missed++
		}
	}
	if missed > 0 { // of one reading each, some 2 of 500
		t.Errorf("%d times the holder is not found", missed)
	}
	cancel()
	others.Wait()
}

// A child that this process has just forked holds the locks of its parent until it runs its own
// program: a lock that was given back is taken again all the same.
func TestLockBesideForks(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var forks sync.WaitGroup
	for range 4 {
		forks.Go(func() {
			for ctx.Err() == nil {
				_ = exec.Command("/bin/true").Run()
			}
		})
	}
	path := filepath.Join(t.TempDir(), "lock")
	for range 300 {
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := File(f, true, 0); err != nil {
			t.Error(err)
		}
		_ = f.Close()
	}
	cancel()
	forks.Wait()
}
