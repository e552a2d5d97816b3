package front

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

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

func TestSocketIsReachedByWhomTheMapNames(t *testing.T) {
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

// Whoever may use the socket must get to it; a closed directory further up is told, not opened.
func TestClosedWayToTheSocketIsTold(t *testing.T) {
	top := t.TempDir()
	if err := os.Chmod(top, 0o700); err != nil {
		t.Fatal(err)
	}
	var log lines
	r := newRig(t, withSocket(filepath.Join(top, "admin", "s.sock")), func(s *setup) { s.o.Log = hclog.New(&hclog.LoggerOptions{Output: &log}) }).listening(t)
	if strings.Contains(log.String(), "uds.out_of_reach") {
		t.Errorf("told though nobody else is named: %s", log.String())
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

// A socket whose queue is full is somebody's, though it cannot be connected to.
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
	if l, err := listenSocket(t.Context(), path, access{0o600, 0o700}); err == nil || !strings.Contains(err.Error(), path) {
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
	early := func(network, at string) net.Conn { // who comes before the node runs waits, and is answered
		c, err := net.Dial(network, at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first, second := early("tcp", tcp.Addr().String()), early("unix", path)
	r := newRig(t, withSocket("/nowhere/at/all"), func(s *setup) {
		s.cfg.Bind = "192.0.2.1:1" // nobody's
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

// The file of an inherited socket is where the service manager has put it, and closed as that has been told.
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
	r := newRig(t, withSocket(nowhere), func(s *setup) { s.o.Inherited = map[string]net.Listener{"ronbox-admin": admin} }).listening(t)
	r.reload(t, stranger)
	if _, err := os.Stat(filepath.Dir(nowhere)); !os.IsNotExist(err) {
		t.Errorf("%v: a directory was made for a socket that is elsewhere", err)
	}
	if got := modeOf(t, path); got != 0o600 || r.SocketPath() != path {
		t.Errorf("mode %o at %s, want 600 at %s", got, r.SocketPath(), path)
	}
}

// An inherited socket that nothing here would answer on is closed, not left to those who wait.
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
