package target_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"ronbox/engines/archive/target"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened returns a fresh target and its directory.
func opened(t testing.TB) (target.Target, string) {
	t.Helper()
	dir := t.TempDir()
	d, err := target.Parse("file://"+dir, target.Server{})
	if err == nil {
		err = d.Open(t.Context(), true)
	}
	if err != nil {
		t.Fatal(err)
	}
	return d, dir
}

func file(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func names(t testing.TB, d target.Target, prefix, after string, most int) (all []string) {
	t.Helper()
	err := d.List(t.Context(), prefix, after, func(i target.Item) bool {
		all = append(all, i.Name)
		return len(all) < most
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"file:///mnt/usb/ronbox": "/mnt/usb/ronbox", "file:///mnt/usb/": "/mnt/usb", "file:///mnt/a%20b": "/mnt/a b",
		"file://host/mnt": "", "file:mnt": "", "/mnt": "", "file:///a/../b": "", "file:///a//b": "",
		"file:///a?x=1": "", "s3://bucket": "", "": "",
	} {
		if got, err := target.Dir(text); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// A temporary file is no object, and no folder is left empty.
func TestDirectory(t *testing.T) {
	d, dir := opened(t)
	create(t, d, "n/x")
	if err := os.WriteFile(filepath.Join(dir, "n/.ronbox-1"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := names(t, d, "", "", 9); len(got) != 2 {
		t.Errorf("%q", got)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "n/.ronbox-1")), d.Delete(t.Context(), "n/x")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "n")); err == nil {
		t.Error("an empty folder is left")
	}
}

// A directory without its mark is not written: it may be the empty one below a mount point.
func TestMark(t *testing.T) {
	d, dir := opened(t)
	if err := d.Create(t.Context(), "a", file(t, "a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, target.Mark)); err != nil {
		t.Fatal(err)
	}
	_, missing := d.Read(t.Context(), "b", 0, 1)
	for what, err := range map[string]error{
		"open": d.Open(t.Context(), true), "create": d.Create(t.Context(), "b", file(t, "b")), "read": missing,
		"delete": d.Delete(t.Context(), "a"), "list": d.List(t.Context(), "", "", nil),
	} {
		if !errors.Is(err, target.ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, target.Mark), []byte(`{"format":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Open(t.Context(), true); !errors.Is(err, target.ErrFormat) {
		t.Error(err)
	}
	none, err := target.Parse("file://"+filepath.Join(dir, "none"), target.Server{})
	if err != nil {
		t.Fatal(err)
	}
	if err := none.Open(t.Context(), true); !errors.Is(err, target.ErrUnreachable) {
		t.Error(err)
	}
	empty, err := target.Parse("file://"+t.TempDir(), target.Server{})
	if err != nil {
		t.Fatal(err)
	}
	if err := empty.Open(t.Context(), false); !errors.Is(err, target.ErrChanged) {
		t.Error(err)
	}
}

// A node that was killed while it made the mark leaves a file, which refuses no later call and is
// removed after a day.
func TestKilledAtTheMark(t *testing.T) {
	dir, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	d, err := target.Parse("file://"+link, target.Server{})
	if err = errors.Join(err, os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, ".ronbox-left")
	if err := os.WriteFile(left, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Open(t.Context(), true), d.Open(t.Context(), false)); err != nil {
		t.Fatal(err)
	}
	day := time.Now().Add(-25 * time.Hour)
	err = errors.Join(os.Chtimes(left, day, day), d.Sweep(t.Context(), "a"))
	if all, _ := os.ReadDir(dir); err != nil || len(all) != 1 || all[0].Name() != target.Mark {
		t.Errorf("%v, %v", err, all)
	}
}

// A call that ends early leaves no object, and old temporary files are removed.
func TestInterrupted(t *testing.T) {
	d, dir := opened(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Create(ctx, "a/b", file(t, strings.Repeat("x", 2<<20))); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "a", "*"))
	if err != nil || len(left) != 0 || len(names(t, d, "", "", 9)) != 1 {
		t.Errorf("%q, %v", left, err)
	}
	old, young := filepath.Join(dir, "a/.ronbox-old"), filepath.Join(dir, "a/.ronbox-new")
	for _, path := range []string{old, young} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	day := time.Now().Add(-25 * time.Hour)
	err = errors.Join(os.Chtimes(old, day, day), d.Sweep(t.Context(), "a"), d.Sweep(t.Context(), "none"))
	if _, gone := os.Stat(old); err != nil || gone == nil {
		t.Errorf("%v, %v", err, gone)
	}
	if _, err := os.Stat(young); err != nil {
		t.Error(err)
	}
}

// A disk that is full, mounted read-only or not mounted says so, with what is to be done.
func TestDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		if os.Geteuid() == 0 {
			t.Fatalf("root cannot mount a tmpfs, which this test needs: %v", err)
		}
		t.Skipf("only root can mount a tmpfs: %v", err)
	}
	mounted := true
	unmount := func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); mounted && err != nil {
			t.Error(err)
		}
		mounted = false
	}
	defer unmount()
	d, err := target.Parse("file://"+dir, target.Server{})
	if err == nil {
		err = d.Open(t.Context(), true)
	}
	if err != nil {
		t.Fatal(err)
	}
	create(t, d, "a/b")
	says := func(what string, err, want error, text string) {
		t.Helper()
		if !errors.Is(err, want) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	big := file(t, strings.Repeat("x", 1<<20))
	says("full", d.Create(t.Context(), "a/c", big), target.ErrFull, dir+"/a/")
	create(t, d, "a/d") // nothing was left
	if err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	says("read-only", d.Create(t.Context(), "a/e", file(t, "x")), target.ErrDenied, "ReadWritePaths="+dir+" ")
	says("read-only", d.Delete(t.Context(), "a/d"), target.ErrDenied, "ReadWritePaths="+dir+" ")
	if got := names(t, d, "", "", 9); len(got) != 3 {
		t.Errorf("%q", got)
	}
	unmount()
	says("not mounted", d.Create(t.Context(), "a/e", file(t, "x")), target.ErrChanged, dir)
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("below the mount: %v, %v", left, err)
	}
}

// A full and a denying target are told from one that is away.
func TestRefusals(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	d, dir := opened(t)
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := d.Create(t.Context(), "a/b", file(t, "x")); !errors.Is(err, target.ErrDenied) {
		t.Error(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
}
