package host

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// On any machine, Doctor runs each check once and gives advice for each problem.
func TestDoctor(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	in := Inputs{
		DataDir:  filepath.Join(dir, "not", "yet"),
		Bind:     "127.0.0.1:0",
		MaxBytes: 1 << 20,
		MinFree:  1,
		MaxConns: 16,
	}
	seen := map[string]int{}
	for _, f := range Doctor(t.Context(), in) {
		seen[f.Check]++
		if f.Seen == "" || (f.Advice == "") != (f.Level == OK) || f.Level != OK && f.Level != Warn && f.Level != Bad {
			t.Errorf("%+v", f)
		}
	}
	for _, check := range []string{
		"data_dir", "private_files", "port", "file_system", "disk_space", "disk_sync", "kernel", "clock", "swap", "memory", "open_files", "cpu", "somaxconn",
	} {
		if seen[check] != 1 {
			t.Errorf("%s was looked at %d times", check, seen[check])
		}
	}
	in.Amnesia, in.Bind = true, ""
	for _, f := range Doctor(t.Context(), in) {
		if f.Check == "disk_sync" || f.Check == "disk_space" || f.Check == "port" {
			t.Errorf("looked at without need: %+v", f)
		}
	}
	if got := BootChecks(in); len(got) != 8 {
		t.Errorf("a glance sees %v", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("doctor left %v, %v", left, err)
	}
}

// A start sees what others may do with the data folder and with the private files there.
func TestBootSeesPermissions(t *testing.T) {
	dir := t.TempDir()
	file, closed := filepath.Join(dir, "ronbox.db"), filepath.Join(dir, "node.key")
	for path, mode := range map[string]os.FileMode{file: 0o644, closed: 0o600} {
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	in := Inputs{DataDir: dir, Private: []string{file, closed, filepath.Join(dir, "none")}}
	levels := func(mode os.FileMode) map[string]Finding {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		out := map[string]Finding{}
		for _, f := range BootChecks(in) {
			out[f.Check] = f
		}
		return out
	}
	got := levels(0o777)
	if f := got["data_dir"]; f.Level != Bad || f.Advice != "chmod 700 "+dir {
		t.Errorf("%+v", f)
	}
	if f := got["private_files"]; f.Level != Warn || f.Advice != "chmod 600 "+file {
		t.Errorf("%+v", f)
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if got = levels(0o700); got["data_dir"].Level != OK || got["private_files"].Level != OK {
		t.Errorf("%+v", got)
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]Level{dir: Bad, file: Bad, filepath.Join(dir, "none"): OK, filepath.Join(file, "below"): Bad} {
		if got := checkFolder(Inputs{DataDir: path}); got.Level != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func TestPortFree(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.53.56:0") // an address that is not used elsewhere
	if err != nil {
		t.Fatal(err)
	}
	if err := PortFree(t.Context(), l.Addr().String()); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a taken port: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := PortFree(t.Context(), l.Addr().String()); err != nil {
		t.Errorf("a free port: %v", err)
	}
}

func TestSyncLatency(t *testing.T) {
	dir := t.TempDir()
	l, err := SyncLatency(t.Context(), dir, 5)
	if err != nil || l.Samples != 5 || l.Median <= 0 || l.Most < l.Median {
		t.Errorf("%+v, %v", l, err)
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := SyncLatency(done, dir, 5); !errors.Is(err, errNoSample) {
		t.Errorf("no time for it: %v", err)
	}
	if _, err := SyncLatency(t.Context(), filepath.Join(dir, "none"), 5); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if l, err := summarize([]time.Duration{5, 1, 9}); err != nil || l != (Latency{Median: 5, Most: 9, Samples: 3}) {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestFileSystem(t *testing.T) {
	dir := t.TempDir()
	f, err := ReadFileSystem(filepath.Join(dir, "a", "b"))
	if err != nil || f.Type == "" || f.Total <= 0 || f.Free < 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := ReadFileSystem("/proc/self"); err != nil || f.Type != "proc" {
		t.Errorf("%+v, %v", f, err)
	}
	image := filepath.Join(dir, "image")
	if got := fastCommit(image); got != Unknown {
		t.Errorf("no device: %s", got)
	}
	for compat, want := range map[uint32]Answer{0: No, compatFast: Yes} {
		if err := os.WriteFile(image, superblock(superMagic, compat), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := fastCommit(image); got != want {
			t.Errorf("%#x: %s", compat, got)
		}
	}
}

// Raise is idempotent.
func TestLimits(t *testing.T) {
	l, err := ReadLimits()
	if err != nil || l.Cores < 1 || l.FilesHard < l.Files || l.Files == 0 {
		t.Fatalf("%+v, %v", l, err)
	}
	files, memory, err := Raise(l, 1<<40)
	if err != nil || files != l.FilesHard || memory <= 0 {
		t.Errorf("%d files, %d bytes, %v", files, memory, err)
	}
	again, err := ReadLimits()
	if err != nil || again.Files != l.FilesHard {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestClock(t *testing.T) {
	for _, tt := range []struct {
		state  int
		status int32
		want   bool
	}{{unix.TIME_OK, 0, true}, {unix.TIME_ERROR, 0, false}, {unix.TIME_OK, unix.STA_UNSYNC, false}, {unix.TIME_INS, unix.STA_PLL, true}} {
		if c := clockOf(tt.state, tt.status, 1500); c.Synchronised != tt.want || c.MaxError != 1500*time.Microsecond {
			t.Errorf("%+v gives %+v", tt, c)
		}
	}
	if _, err := ReadClock(); err != nil {
		t.Error(err)
	}
}

func TestFacts(t *testing.T) {
	if k, err := ReadKernel(); err != nil || !k.atLeast(3, 2) {
		t.Errorf("%+v, %v", k, err)
	}
	if m, err := ReadMemory(); err != nil || m.Available > m.Total {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := ReadSwap(); err != nil {
		t.Error(err)
	}
	if n, err := ReadSoMaxConn(); err != nil || n <= 0 {
		t.Errorf("%d, %v", n, err)
	}
}

func TestNoDump(t *testing.T) {
	if err := NoDump(); err != nil {
		t.Fatal(err)
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || n != 0 {
		t.Errorf("dumpable is %d, %v", n, err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
}

// Memory is locked where nothing bounds it, and refused with advice where something does.
func TestLockMemory(t *testing.T) {
	may, err := mayLock()
	if err != nil {
		t.Fatal(err)
	}
	err = LockMemory()
	if may && err != nil || !may && !errors.Is(err, ErrLockLimit) {
		t.Errorf("may is %v: %v", may, err)
	}
	if err := unix.Munlockall(); err != nil {
		t.Error(err)
	}
}
