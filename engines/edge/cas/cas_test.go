package cas_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/appliance/host/hosttest"
	"ronbox/engines/edge/cas"
)

func TestMain(m *testing.M) {
	hosttest.InMemory()
	goleak.VerifyTestMain(m)
}

func prepared(t testing.TB) *cas.Dir {
	t.Helper()
	d := cas.New(filepath.Join(t.TempDir(), "edge", "cas"), cas.Faults{})
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	return d
}

// put stores an object.
func put(t testing.TB, d *cas.Dir, body string) b3.Digest {
	t.Helper()
	temp, err := d.Create()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.SplitAfter(body, "\n") {
		if _, err := temp.Write([]byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	name, size := temp.Sum()
	if size != int64(len(body)) || name != b3.Sum([]byte(body)) {
		t.Fatalf("%d bytes of %s", size, name)
	}
	if err := errors.Join(temp.Seal(), d.Place(temp), d.Sync(name)); err != nil {
		t.Fatal(err)
	}
	temp.Drop() // has no effect
	return name
}

// A stored object is read unchanged by its name until it is removed, and its file is read-only.
func TestPutAndRead(t *testing.T) {
	d := prepared(t)
	rapid.Check(t, func(rt *rapid.T) {
		body := rapid.StringOfN(rapid.RuneFrom([]rune("ab\n")), 0, 2000, -1).Draw(rt, "body")
		name := put(t, d, body)
		if again := put(t, d, body); again != name { // replaces the file
			rt.Fatalf("%s, then %s", name, again)
		}
		got, err := d.Read(name, int64(len(body)))
		if err != nil || string(got) != body {
			rt.Fatalf("%.20q, %v", got, err)
		}
		if at, err := os.Stat(d.Path(name)); err != nil || at.Mode().Perm() != 0o440 {
			rt.Fatalf("%v, %v", at.Mode(), err)
		}
		if _, err := d.Open(name, int64(len(body))+1); !errors.Is(err, cas.ErrCorrupt) {
			rt.Fatalf("another size: %v", err)
		}
		if err := errors.Join(d.Remove(name), d.Remove(name)); err != nil {
			rt.Fatal(err)
		}
		if _, err := d.Read(name, int64(len(body))); !errors.Is(err, fs.ErrNotExist) {
			rt.Fatalf("removed: %v", err)
		}
	})
}

// Read detects a changed byte at any position.
func TestChangedByte(t *testing.T) {
	d := prepared(t)
	body := strings.Repeat("0123456789", 100)
	name := put(t, d, body)
	for at := 0; at < len(body); at += 37 {
		changed := []byte(body)
		changed[at] ^= 1
		if err := errors.Join(os.Chmod(d.Path(name), 0o600), os.WriteFile(d.Path(name), changed, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Read(name, int64(len(body))); !errors.Is(err, cas.ErrCorrupt) {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
	if err := d.Quarantine(name); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Open(name, int64(len(body))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("set aside: %v", err)
	}
}

// The quarantine keeps only a few objects.
func TestQuarantineIsBounded(t *testing.T) {
	d := prepared(t)
	for i := range 100 {
		if err := d.Quarantine(put(t, d, strings.Repeat("x", i+1))); err != nil {
			t.Fatal(err)
		}
	}
	if files, err := os.ReadDir(filepath.Join(d.Root(), "quarantine")); err != nil || len(files) > 16 || len(files) < 2 {
		t.Errorf("%d files, %v", len(files), err)
	}
	if err := d.Quarantine(b3.Sum(nil)); err != nil {
		t.Errorf("nothing there: %v", err)
	}
}

// A start lists objects and other files, and empties tmp.
func TestPrepareAndWalk(t *testing.T) {
	d := prepared(t)
	want := map[string]bool{
		d.Path(put(t, d, "a")):                 true,
		d.Path(put(t, d, "b")):                 true,
		filepath.Join(d.Root(), "b3", "stray"): false,
	}
	if err := os.WriteFile(filepath.Join(d.Root(), "b3", "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(); err != nil {
		t.Fatal(err)
	}
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(filepath.Join(d.Root(), "tmp")); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	seen := map[string]bool{}
	err := d.Walk(context.Background(), func(path string, name b3.Digest) error {
		seen[path] = !name.IsZero()
		return nil
	})
	if err != nil || len(seen) != len(want) {
		t.Errorf("%v, %v", seen, err)
	}
	for path, ok := range want {
		if got, there := seen[path]; !there || got != ok {
			t.Errorf("%s: %t, %t", path, got, there)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Walk(ended, func(string, b3.Digest) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
