package front

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

func TestAddressInUseIsAnError(t *testing.T) {
	r := newRig(t).listening(t)
	if err := newRig(t, func(s *setup) { s.cfg.Bind = r.Addr() }).Listen(t.Context()); err == nil {
		t.Error("bound twice")
	}
}

// A stopped listener takes no new connection, while one made before can still be accepted.
func TestStopAccept(t *testing.T) {
	l, err := bindTCP(t.Context(), "127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &socket{Listener: l}
	defer func() { _ = s.Close() }()
	early, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = early.Close() }()
	if !s.stopAccept() {
		t.Error("it stopped and does not report so: waiting connections would be left behind when time has passed")
	}
	if c, err := net.DialTimeout("tcp", s.Addr().String(), 100*time.Millisecond); err == nil {
		_ = c.Close()
		t.Error("connected to a stopped listener")
	}
	c, err := s.Accept()
	if err != nil {
		t.Fatalf("made before: %v", err)
	}
	_ = c.Close()
}

func withSocket(path string) func(*setup) {
	return func(s *setup) { s.uds.Path = path }
}

func TestSocketIsTheOwnersOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	newRig(t, withSocket(path)).listening(t)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 || info.Mode().Type() != os.ModeSocket {
		t.Fatalf("%v %v, want a socket 0600", info.Mode(), err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	answer, err := io.ReadAll(c)
	if want := fmt.Sprintf("\r\n\r\nuid:%d", os.Getuid()); err != nil || !strings.HasSuffix(string(answer), want) {
		t.Errorf("%q %v, want the own uid to be admitted", answer, err)
	}
}

func TestSocketRefusesOthers(t *testing.T) {
	if !uidAllowed(0, 0) || !uidAllowed(uint32(os.Getuid()), 0) || uidAllowed(uint32(os.Getuid())+1, 0) ||
		uidAllowed(65534, 0) && os.Getuid() != 65534 {
		t.Error("the own uid and root are admitted, and no other")
	}
	path := filepath.Join(t.TempDir(), "admin.sock")
	r := newRig(t, withSocket(path),
		func(s *setup) { s.o.SocketMay = func(uint32, uint32) bool { return false } }).listening(t)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	answer, err := io.ReadAll(c)
	if want := fmt.Sprintf("this user (uid %d) may not use the socket", os.Getuid()); err != nil ||
		!strings.HasPrefix(string(answer), "HTTP/1.1 403 ") || !strings.Contains(string(answer), want) {
		t.Errorf("a stranger got %q %v, want 403 and %q", answer, err, want)
	}
	if got := sum(t, r.metrics, "conn_rejects_total", "reason", rejectPeer); got != 1 {
		t.Errorf("conn_rejects_total = %v, want 1", got)
	}
	waitFor(t, "slot to come free", func() bool { return r.admin.conns.open() == 0 })
}

func TestStaleSocketIsReplacedAndOtherFilesAreNot(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale.sock")
	old, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	old.SetUnlinkOnClose(false)
	_ = old.Close()
	newRig(t, withSocket(stale)).listening(t)

	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, withSocket(plain))
	if err := r.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("err = %v, want a refusal to remove a file", err)
	}
	if raw, _ := os.ReadFile(plain); string(raw) != "mine" {
		t.Error("the file is gone")
	}
	if _, err := net.Dial("tcp", r.Addr()); err == nil {
		t.Error("TCP stayed open after Listen failed")
	}
}

// Two nodes that were given one socket path: the second fails, the first keeps its socket, also
// after the second has ended.
func TestLiveSocketIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	newRig(t, withSocket(path)).listening(t)
	second := newRig(t, withSocket(path))
	if err := second.Listen(t.Context()); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("err = %v, want EADDRINUSE", err)
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first node's socket is gone: %v", err)
	}
	_ = c.Close()
}

func TestSocketPathThatCannotBe(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := (UDSConfig{Path: long}).Validate(); err == nil {
		t.Error("Validate took a path of more than 107 bytes")
	}
	if _, err := listenSocket(t.Context(), long, access{0o600, 0o700}); err == nil {
		t.Error("listenSocket took it")
	}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

func stranger(s *setup) {
	s.uds.Map = map[string][]string{fmt.Sprintf("uid:%d", os.Getuid()+1): {"node.admin"}}
}

func TestSocketIsOpenToTheMap(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "admin")
	path := filepath.Join(dir, "s.sock")
	newRig(t, withSocket(path), stranger).listening(t)
	if file, in := modeOf(t, path), modeOf(t, dir); file != 0o666 || in != 0o711 {
		t.Errorf("socket %o in a directory %o, want 666 in 711", file, in)
	}
}

func TestSocketOfTheOwnerIsClosed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "admin")
	path := filepath.Join(dir, "s.sock")
	newRig(t, withSocket(path), func(s *setup) {
		s.uds.AllowUIDs = []uint32{uint32(os.Getuid()), 0}
		s.uds.Map = map[string][]string{fmt.Sprintf("uid:%d", os.Getuid()): {"node.admin"}}
	}).listening(t)
	if file, in := modeOf(t, path), modeOf(t, dir); file != 0o600 || in != 0o700 {
		t.Errorf("socket %o in a directory %o, want 600 in 700", file, in)
	}
}

func TestDirectoryThatHoldsMoreIsNotOpened(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ronbox.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, withSocket(filepath.Join(dir, "s.sock")), stranger)
	if err := r.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "directory of its own") {
		t.Errorf("err = %v, want advice", err)
	}
	if got := modeOf(t, dir); got != 0o700 {
		t.Errorf("the directory has mode %o now", got)
	}
}

// Peers that may use the socket must get to it; a closed directory further up is logged, not
// opened.
func TestClosedWayToTheSocketIsLogged(t *testing.T) {
	top := t.TempDir()
	if err := os.Chmod(top, 0o700); err != nil {
		t.Fatal(err)
	}
	var log lines
	r := newRig(t, withSocket(filepath.Join(top, "admin", "s.sock")),
		func(s *setup) { s.o.Log = hclog.New(&hclog.LoggerOptions{Output: &log}) }).listening(t)
	if strings.Contains(log.String(), "uds.out_of_reach") {
		t.Errorf("logged though no other is named: %s", log.String())
	}
	r.reload(t, stranger)
	if text := log.String(); !strings.Contains(text, "uds.out_of_reach") || !strings.Contains(text, top) {
		t.Errorf("%q does not name %s", text, top)
	}
	if got := modeOf(t, top); got != 0o700 {
		t.Errorf("the directory has mode %o now", got)
	}
}

func TestSocketOpensAndClosesWithTheMap(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "admin")
	path := filepath.Join(dir, "s.sock")
	r := newRig(t, withSocket(path)).listening(t)
	r.reload(t, stranger)
	if file, in := modeOf(t, path), modeOf(t, dir); file != 0o666 || in != 0o711 {
		t.Errorf("opened: socket %o in %o", file, in)
	}
	s := &setup{cfg: r.cfg, tls: r.tls, uds: r.uds}
	s.uds.Map = nil
	_, undo, err := r.Prepare(t.Context(), s.cfg, s.tls, s.uds)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	if file := modeOf(t, path); file != 0o666 {
		t.Errorf("undone: socket %o", file)
	}
	r.reload(t, func(s *setup) { s.uds.Map = nil })
	if file := modeOf(t, path); file != 0o600 {
		t.Errorf("closed: socket %o", file)
	}
}

// A socket with a full queue is in use, though connecting to it fails.
func TestBusySocketIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "busy.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	for {
		c, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer func() { _ = c.Close() }()
	}
	if l, err := listenSocket(t.Context(), path, access{0o600, 0o700}); err == nil ||
		!strings.Contains(err.Error(), path) {
		t.Errorf("listener %v, err = %v, want a refusal that names the file", l, err)
	}
	if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSocket {
		t.Errorf("%v: the socket is gone", err)
	}
}

func TestInheritedSocketsStandIn(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "inherited.sock")
	admin, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	early := func(network, at string) net.Conn { // a client that comes before the node runs waits, and is answered
		c, err := net.Dial(network, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first, second := early("tcp", tcp.Addr().String()), early("unix", path)
	r := newRig(t, withSocket("/nowhere/at/all"), func(s *setup) {
		s.cfg.Bind = "192.0.2.1:1" // no address of this machine
		s.o.Inherited = map[string]net.Listener{"ronbox-http": tcp, "ronbox-admin": admin}
	}).listening(t)
	if r.Addr() != tcp.Addr().String() {
		t.Errorf("address %s, want the inherited %s", r.Addr(), tcp.Addr())
	}
	for _, c := range []net.Conn{first, second} {
		if status, _, _ := ask(t, c, "/"); status != http.StatusOK {
			t.Errorf("%s: %d", c.LocalAddr(), status)
		}
	}
}

// The file of an inherited socket is where the service manager has put it, with the mode it was
// given.
func TestInheritedSocketStaysAsItIs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "inherited.sock")
	admin, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	nowhere := filepath.Join(t.TempDir(), "nowhere", "s.sock")
	r := newRig(t, withSocket(nowhere),
		func(s *setup) { s.o.Inherited = map[string]net.Listener{"ronbox-admin": admin} }).listening(t)
	r.reload(t, stranger)
	if _, err := os.Stat(filepath.Dir(nowhere)); !os.IsNotExist(err) {
		t.Errorf("%v: a directory was made for a socket that is elsewhere", err)
	}
	if got := modeOf(t, path); got != 0o600 || r.SocketPath() != path {
		t.Errorf("mode %o at %s, want 600 at %s", got, r.SocketPath(), path)
	}
}

// An inherited socket that nothing here would answer on is closed: its clients do not wait in vain.
func TestInheritedSocketWithoutUseIsClosed(t *testing.T) {
	admin, err := net.Listen("unix", filepath.Join(t.TempDir(), "inherited.sock"))
	if err != nil {
		t.Fatal(err)
	}
	newRig(t, func(s *setup) { s.o.Inherited = map[string]net.Listener{"ronbox-admin": admin} }).listening(t)
	if _, err := admin.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v, want it closed", err)
	}
}

func TestPeerNames(t *testing.T) {
	for name, ok := range map[string]bool{
		"uid:0": true, "gid:4294967295": true, "uid:4294967296": false, "uid:-1": false, "root": false, "pid:1": false, "uid:": false,
	} {
		if err := (UDSConfig{Map: map[string][]string{name: nil}}).Validate(); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}
