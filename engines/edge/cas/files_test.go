package cas_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/cas"
)

// openFiles returns the number of files of d that the process has open.
func openFiles(t testing.TB, d *cas.Dir) (n int) {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if to, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && strings.HasPrefix(to, d.Root()) {
			n++
		}
	}
	return n
}

// share opens an object with that body.
func share(t testing.TB, d *cas.Dir, body string) *cas.Shared {
	t.Helper()
	f, err := d.Share(b3.Sum([]byte(body)), int64(len(body)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// wants compares what f still reads.
func wants(t testing.TB, f *cas.Shared, want string) {
	t.Helper()
	if got, err := io.ReadAll(f); err != nil || string(got) != want {
		t.Errorf("%.20q, %v, want %.20q", got, err, want)
	}
}

// Readers of an object share one file, which stays open after them, and have positions of their own.
func TestShare(t *testing.T) {
	d := prepared(t)
	put(t, d, "0123456789")
	a, b := share(t, d, "0123456789"), share(t, d, "0123456789")
	_, _ = a.Seek(5, io.SeekStart)
	wants(t, a, "56789")
	wants(t, b, "0123456789")
	a.Close()
	b.Close()
	again := share(t, d, "0123456789")
	wants(t, again, "0123456789")
	if n := openFiles(t, d); n != 1 {
		t.Errorf("%d files are open, want 1", n)
	}
	d.CloseFiles()
	wants(t, share(t, d, "0123456789"), "0123456789")
	again.Close()
	if n := openFiles(t, d); n != 1 {
		t.Errorf("%d files are open after CloseFiles, want that of the last reader", n)
	}
}

// The file of an object without its name is closed at once, or with its last reader, who reads on.
func TestChangedNameFreesItsFile(t *testing.T) {
	for what, change := range map[string]func(*cas.Dir, b3.Digest) error{
		"remove":    (*cas.Dir).Remove,
		"set aside": (*cas.Dir).Quarantine,
		"replace": func(d *cas.Dir, _ b3.Digest) error {
			put(t, d, "body")
			return nil
		},
	} {
		d := prepared(t)
		name := put(t, d, "body")
		share(t, d, "body").Close()
		if err := change(d, name); err != nil {
			t.Fatal(err)
		}
		if n := openFiles(t, d); n != 0 {
			t.Errorf("%s: %d files are open", what, n)
		}
		put(t, d, "body")
		f := share(t, d, "body")
		if err := change(d, name); err != nil {
			t.Fatal(err)
		}
		wants(t, f, "body")
		f.Close()
		if n := openFiles(t, d); n != 0 {
			t.Errorf("%s while it is read: %d files are open", what, n)
		}
	}
}

// A file that was removed or changed behind the back of the Dir is noticed.
func TestShareSeesTheDisk(t *testing.T) {
	d := prepared(t)
	name := put(t, d, "body")
	share(t, d, "body").Close()
	if err := errors.Join(os.Chmod(d.Path(name), 0o600), os.Truncate(d.Path(name), 2)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Share(name, 4); !errors.Is(err, cas.ErrCorrupt) {
		t.Errorf("a short file: %v", err)
	}
	put(t, d, "body")
	share(t, d, "body").Close()
	if err := os.Remove(d.Path(name)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Share(name, 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was removed: %v", err)
	}
	if n := openFiles(t, d); n != 0 {
		t.Errorf("%d files are open", n)
	}
}

// At most MaxOpen files stay open, those that were used last.
func TestOpenFilesAreBounded(t *testing.T) {
	d := prepared(t)
	for i := range cas.MaxOpen + 40 {
		put(t, d, fmt.Sprint(i))
		share(t, d, fmt.Sprint(i)).Close()
		share(t, d, "0").Close()
	}
	if n := openFiles(t, d); n != cas.MaxOpen {
		t.Errorf("%d files are open, want %d", n, cas.MaxOpen)
	}
	for body, listed := range map[string]bool{"0": true, "1": false, fmt.Sprint(cas.MaxOpen): true} {
		before := openFiles(t, d)
		if err := d.Remove(b3.Sum([]byte(body))); err != nil {
			t.Fatal(err)
		}
		if closed := openFiles(t, d) < before; closed != listed {
			t.Errorf("the file of object %s was open: %t, want %t", body, closed, listed)
		}
	}
}

// Whatever happens to objects while they are read, a reader reads the bytes of its object.
func TestShareUnderChanges(t *testing.T) {
	d := prepared(t)
	bodies := make([]string, cas.MaxOpen+8)
	for i := range bodies {
		bodies[i] = strings.Repeat(fmt.Sprint(i, " "), 100)
		put(t, d, bodies[i])
	}
	var wg sync.WaitGroup
	var stop atomic.Bool
	var read, missing atomic.Int64
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				body := bodies[rand.N(len(bodies))]
				f, err := d.Share(b3.Sum([]byte(body)), int64(len(body)))
				if errors.Is(err, fs.ErrNotExist) {
					missing.Add(1)
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				wants(t, f, body)
				f.Close()
				read.Add(1)
			}
		})
	}
	for i := range 600 {
		body := bodies[rand.N(len(bodies))]
		var err error
		switch i % 3 {
		case 0:
			err = d.Remove(b3.Sum([]byte(body)))
		case 1:
			err = d.Quarantine(b3.Sum([]byte(body)))
		}
		if err != nil {
			t.Fatal(err)
		}
		put(t, d, bodies[rand.N(len(bodies))])
	}
	for read.Load() == 0 || missing.Load() == 0 {
		put(t, d, bodies[0])
	}
	stop.Store(true)
	wg.Wait()
	if n := openFiles(t, d); n > cas.MaxOpen {
		t.Errorf("%d files are open", n)
	}
	for _, body := range bodies {
		if err := d.Remove(b3.Sum([]byte(body))); err != nil {
			t.Fatal(err)
		}
	}
	if n := openFiles(t, d); n != 0 {
		t.Errorf("%d files are open after all objects were removed", n)
	}
}
