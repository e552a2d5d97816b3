package systemd

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"ronbox/appliance/host/hosttest"
)

func TestNotifyTellsTheManager(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = manager.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	if err := Notify("RELOADING=1\nMONOTONIC_USEC=5"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := manager.Read(buf)
	if got := string(buf[:n]); err != nil || got != "RELOADING=1\nMONOTONIC_USEC=5" {
		t.Errorf("%q %v", got, err)
	}
	t.Setenv("NOTIFY_SOCKET", path+".gone")
	if err := Notify("READY=1"); err == nil {
		t.Error("a manager that is gone was told")
	}
}

func TestWatchdogInterval(t *testing.T) {
	for _, tt := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"30000000", "", 30 * time.Second},
		{"30000000", fmt.Sprint(os.Getpid()), 30 * time.Second},
		{"30000000", "1", 0}, // another process is meant
		{"soon", "", 0},
		{"-1", "", 0},
	} {
		t.Setenv("WATCHDOG_USEC", tt.usec)
		t.Setenv("WATCHDOG_PID", tt.pid)
		if got := WatchdogInterval(); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// TestMain also runs as the started process, which prints the sockets that it got.
func TestMain(m *testing.M) {
	switch os.Getenv("SYSTEMD_TEST_CHILD") {
	case "":
		goleak.VerifyTestMain(m)
		return
	case "again":
		runAgain()
		return
	}
	first, err := Listeners()
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	for name, l := range first {
		if kept, ok := l.(*Kept); ok {
			fmt.Println(name, l.Addr(), "kept", kept.Bind, heard(l))
			continue
		}
		fmt.Println(name, l.Addr())
	}
	second, err := Listeners()
	fmt.Println("then", len(second), err, os.Getenv("LISTEN_FDS"))
}

// heard returns the bytes of the connection that waits.
func heard(l net.Listener) string {
	c, err := l.Accept()
	if err != nil {
		return err.Error()
	}
	raw, _ := io.ReadAll(c)
	_ = c.Close()
	return string(raw)
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

var update = flag.Bool("update", false, "rewrite the golden files")

func shipped() map[string]string {
	all := map[string]string{
		UnitName:        Unit("/usr/bin/ronbox", "/var/lib/ronbox", "ronbox"),
		HTTPSocketName:  HTTPSocket("127.0.0.1:8080"),
		AdminSocketName: AdminSocket("/var/lib/ronbox/admin.sock", "ronbox"),
	}
	for _, f := range Drill("/usr/bin/ronbox", "ronbox") {
		all[f.Name] = f.Text
	}
	return all
}

func TestUnitsAreGolden(t *testing.T) {
	for name, got := range shipped() {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || got != string(want) {
			t.Errorf("%s differs from %s (%v), see go test -update:\n%s", name, path, err, got)
		}
	}
}

// The rules of the stop and of the return that the node is built on.
func TestUnitKeepsTheNodesPromises(t *testing.T) {
	unit := shipped()[UnitName]
	for _, line := range []string{
		"Type=notify", "WatchdogSec=30", "TimeoutStopSec=15", "Restart=on-failure", "RestartPreventExitStatus=65 77 78",
		"StartLimitIntervalSec=0", "RestartSec=5", "SuccessExitStatus=10", "SystemCallErrorNumber=EPERM", "LimitMEMLOCK=infinity", "ExecStart=/usr/bin/ronbox serve --data-dir /var/lib/ronbox",
	} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("the unit lacks %s", line)
		}
	}
	for name, text := range shipped() {
		if strings.Count(text, "@") != strings.Count(text, "@system-service") {
			t.Errorf("%s has a place left unfilled", name)
		}
	}
}

// systemd itself reads the units and has nothing to say, whatever the paths look like.
func TestSystemdVerifiesTheUnits(t *testing.T) {
	analyze := hosttest.Tool(t, "systemd-analyze", "systemd")
	dir := t.TempDir()
	binary := filepath.Join(dir, "ron box$1%n")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	units := map[string]string{
		UnitName:        Unit(binary, filepath.Join(dir, `data "1" \%i`), "daemon"),
		HTTPSocketName:  HTTPSocket("[::1]:8080"),
		AdminSocketName: AdminSocket("/run/ronbox/admin.sock", "daemon"),
	}
	for _, f := range Drill(binary, "daemon") {
		units[f.Name] = f.Text
	}
	args := []string{"verify", "--man=no"}
	for name, text := range units {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	out, err := exec.CommandContext(t.Context(), analyze, args...).CombinedOutput()
	if err != nil || strings.Contains(string(out), dir) || strings.Contains(string(out), "ronbox") {
		t.Errorf("systemd-analyze: %v\n%s\n%s", err, out, units[UnitName])
	}
}

func TestNoValueAddsALine(t *testing.T) {
	clean := Unit("/a", "/b", "c")
	for _, evil := range []string{"x\nExecStartPre=/bin/evil", "x\r\n[Service]", "x\x00y"} {
		if got := Drill(evil, evil)[0].Text; strings.Count(got, "\n") != strings.Count(Drill("/a", "b")[0].Text, "\n") {
			t.Errorf("%q adds a line:\n%s", evil, got)
		}
		for _, got := range []string{Unit(evil, "/b", "c"), Unit("/a", evil, "c"), Unit("/a", "/b", evil)} {
			if strings.Count(got, "\n") != strings.Count(clean, "\n") {
				t.Errorf("%q adds a line:\n%s", evil, got)
			}
		}
		if strings.Count(HTTPSocket(evil)+AdminSocket(evil, evil), "\n") != strings.Count(
			HTTPSocket("")+AdminSocket("", ""),
			"\n",
		) {
			t.Errorf("%q adds a line to a socket", evil)
		}
	}
}

func TestSocketUnitTakesEveryBind(t *testing.T) {
	for bind, want := range map[string]string{
		"127.0.0.1:8080": "127.0.0.1:8080", "[::1]:8080": "[::1]:8080", ":8080": "8080", "localhost:80": "127.0.0.1:80",
	} {
		if got := HTTPSocket(bind); !strings.Contains(got, "\nListenStream="+want+"\n") {
			t.Errorf("%s gives %s", bind, got)
		}
	}
}

func TestHomesStayShutUnlessTheDataIsThere(t *testing.T) {
	for dir, want := range map[string]string{
		"/var/lib/ronbox": "yes", "/home/a/data": "read-only", "/root": "read-only", "/homestead": "yes", "/run/user/1": "read-only",
	} {
		if got := homes(dir); got != want {
			t.Errorf("%s: ProtectHome=%s, want %s", dir, got, want)
		}
	}
}

// The unit is the last part of the path in the hierarchy of systemd. A session or a scope is not a unit.
func TestOwnUnit(t *testing.T) {
	for groups, want := range map[string]string{
		"0::/system.slice/ronbox.service\n":                                         "ronbox.service",
		"0::/system.slice/system-ronbox.slice/ronbox@a.service\n":                   "ronbox@a.service",
		"4:cpu:/x.service\n1:name=systemd:/system.slice/ronbox.service\n":           "ronbox.service",
		"0::/user.slice/user-0.slice/session-1.scope\n":                             "",
		"0::/user.slice/user-0.slice/user@0.service/app.slice/app-terminal.scope\n": "",
		"0::/\n": "",
		"":       "",
	} {
		if got := unitOf(groups); got != want {
			t.Errorf("%q: %q, want %q", groups, got, want)
		}
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if got := OwnUnit(); got != "" {
		t.Errorf("a process that no unit runs is of %q", got)
	}
}

// A package counts as installed only on a machine that systemd runs.
func TestInstalled(t *testing.T) {
	root := t.TempDir()
	for _, tt := range []struct {
		dir  string
		want bool
	}{{"tmp", false}, {"usr/lib/systemd/system/" + UnitName, false}, {"run/systemd/system", true}} {
		if err := os.MkdirAll(filepath.Join(root, tt.dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if got := Installed(root); got != tt.want {
			t.Errorf("with %s: %v", tt.dir, got)
		}
	}
}
