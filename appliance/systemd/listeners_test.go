package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// TestMain plays the started process when it is told to: it takes its sockets and prints what it got.
func TestMain(m *testing.M) {
	if os.Getenv("SYSTEMD_TEST_CHILD") == "" {
		goleak.VerifyTestMain(m)
		return
	}
	first, err := Listeners()
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	for name, l := range first {
		fmt.Println(name, l.Addr())
	}
	second, err := Listeners()
	fmt.Println("then", len(second), err, os.Getenv("LISTEN_FDS"))
}

// child starts this test binary as a service manager would, with the sockets under the names.
func child(t *testing.T, names string, files ...*os.File) string {
	t.Helper()
	script := fmt.Sprintf("LISTEN_PID=$$ LISTEN_FDS=%d LISTEN_FDNAMES=%s exec %q", len(files), names, os.Args[0])
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.Env = append(os.Environ(), "SYSTEMD_TEST_CHILD=1")
	cmd.ExtraFiles = files
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func socketFile(t *testing.T) (*os.File, string) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, l.Addr().String()
}

func unixFile(t *testing.T, network string) (*os.File, string) {
	t.Helper()
	at := filepath.Join(t.TempDir(), "s.sock")
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: at, Net: network})
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.File()
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f, at
}

// unheard is a TCP socket that nothing listens on.
func unheard(t *testing.T) *os.File {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "unheard")
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestSocketsAreInheritedByName(t *testing.T) {
	a, at := unixFile(t, "unix")
	b, other := socketFile(t)
	got := child(t, AdminName+":"+HTTPName, a, b)
	for _, want := range []string{AdminName + " " + at + "\n", HTTPName + " " + other + "\n", "then 0 <nil> \n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}

func TestUnknownSocketsAreRefused(t *testing.T) {
	a, _ := socketFile(t)
	b, _ := socketFile(t)
	path, _ := unixFile(t, "unix")
	packets, _ := unixFile(t, "unixpacket")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	for _, tt := range []struct {
		doc, names string
		files      []*os.File
	}{
		{"a name of nobody's", "other", []*os.File{a}},
		{"no name", "", []*os.File{a}},
		{"two of one name", HTTPName + ":" + HTTPName, []*os.File{a, b}},
		{"not a socket", HTTPName, []*os.File{null}},
		{"a path for TCP", HTTPName, []*os.File{path}},
		{"TCP for a path", AdminName, []*os.File{a}},
		{"packets for a stream", AdminName, []*os.File{packets}},
		{"nothing listens", HTTPName, []*os.File{unheard(t)}},
	} {
		if got := child(t, tt.names, tt.files...); !strings.HasPrefix(got, "refused: inherited socket") {
			t.Errorf("%s: %q, want a refusal", tt.doc, got)
		}
	}
}

func TestWithoutAManagerNothingHappens(t *testing.T) {
	if l, err := Listeners(); len(l) != 0 || err != nil {
		t.Errorf("%v %v, want no sockets", l, err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if err := Notify("READY=1"); err != nil {
		t.Error(err)
	}
	t.Setenv("WATCHDOG_USEC", "")
	if d := WatchdogInterval(); d != 0 {
		t.Errorf("watchdog of %s, want none", d)
	}
}
