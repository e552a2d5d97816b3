package front

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/unit"
)

func TestSlowHeadersAreClosed(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.ReadTimeout = unit.Duration(100 * time.Millisecond) }).listening(t)
	for _, begun := range []string{"", "GET /he", "GET / HTTP/1.1\r\nHost: x\r\nX-A: "} {
		c := r.dial(t)
		if _, err := io.WriteString(c, begun); err != nil {
			t.Fatal(err)
		}
		if got := readStatus(t, c); got != 0 && got != http.StatusBadRequest {
			t.Errorf("%q: %d, want the connection closed", begun, got)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: the connection is still open: %v", begun, err)
		}
	}
	if r.calls.Load() != 0 {
		t.Error("a half request reached the handler")
	}
	if n := r.counted("node read"); n != 3 {
		t.Errorf("%d requests were not read in time, want 3", n)
	}
}

// An answer that nobody reads is counted once, where it comes from.
func TestUnreadAnswersAreCounted(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		r := newRig(t).listening(t)
		unreadAnswer(t, r, r.dial(t))
	})
	t.Run("TLS", func(t *testing.T) {
		r := newRig(t, withTLS(t)).listening(t)
		c, err := hello(t, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		unreadAnswer(t, r, c)
	})
}

func unreadAnswer(t *testing.T, r *rig, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "GET /unread HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-r.sent; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	_, _ = io.Copy(io.Discard, c) // until the connection is closed
	if n := r.counted("bank write"); n != 1 {
		t.Errorf("%d answers were not written in time, want 1: %v", n, r.tally())
	}
}

func TestHugeHeadersAreRefused(t *testing.T) {
	r := newRig(t).listening(t)
	c := r.dial(t)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Big: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	if got := readStatus(t, c); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d, want 431", got)
	}
}

func TestConnectionsAreCapped(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.MaxConns, s.cfg.Reserved = 2, 0 }).listening(t)
	get := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	first, second := r.dial(t), r.dial(t)
	for _, c := range []net.Conn{first, second} { // both are accepted before the third knocks
		_, _ = io.WriteString(c, get)
		if got := readStatus(t, c); got != http.StatusOK {
			t.Fatalf("%d below the cap", got)
		}
	}
	if got := readStatus(t, r.dial(t)); got != http.StatusServiceUnavailable {
		t.Errorf("%d over the cap, want a canned 503", got)
	}
	if got := sum(t, r.metrics, "conn_rejects_total", "reason", rejectTotal); got != 1 {
		t.Errorf("conn_rejects_total = %v, want 1", got)
	}
	if got := sum(t, r.metrics, "conns_open", "listener", "http"); got != 2 {
		t.Errorf("conns_open = %v, want 2", got)
	}
	_, _ = io.WriteString(first, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if got := readStatus(t, first); got != http.StatusOK {
		t.Fatal(got)
	}
	waitFor(t, "a place to come free", func() bool { return r.Conns() == 1 })
	c := r.dial(t)
	_, _ = io.WriteString(c, get)
	if got := readStatus(t, c); got != http.StatusOK {
		t.Errorf("%d, want the freed place", got)
	}
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
		t.Errorf("%q %v, want the own uid to be let in", answer, err)
	}
}

func TestSocketRefusesOthers(t *testing.T) {
	if !uidAllowed(0, 0) || !uidAllowed(uint32(os.Getuid()), 0) || uidAllowed(uint32(os.Getuid())+1, 0) || uidAllowed(65534, 0) && os.Getuid() != 65534 {
		t.Error("the own uid and root are let in, and nobody else")
	}
	path := filepath.Join(t.TempDir(), "admin.sock")
	r := newRig(t, withSocket(path), func(s *setup) { s.o.SocketMay = func(uint32, uint32) bool { return false } }).listening(t)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if got := readStatus(t, c); got != 0 {
		t.Errorf("a stranger got %d, want nothing", got)
	}
	if got := sum(t, r.metrics, "conn_rejects_total", "reason", rejectPeer); got != 1 {
		t.Errorf("conn_rejects_total = %v, want 1", got)
	}
	waitFor(t, "place to come free", func() bool { return r.admin.book.open() == 0 })
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

func TestSocketPathThatCannotBe(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	if err := (UDSConfig{Path: long}).Validate(); err == nil {
		t.Error("Validate took a path of more than 107 bytes")
	}
	if _, err := listenSocket(t.Context(), long, access{0o600, 0o700}); err == nil {
		t.Error("listenSocket took it")
	}
}

func TestAddressInUseIsAnError(t *testing.T) {
	r := newRig(t).listening(t)
	if err := newRig(t, func(s *setup) { s.cfg.Bind = r.Addr() }).Listen(t.Context()); err == nil {
		t.Error("bound twice")
	}
}

// A task that is started again finds its listener gone and comes back on the same address.
func TestTaskComesBackOnItsAddress(t *testing.T) {
	r := newRig(t).listening(t)
	addr := r.Addr()
	r2 := newRig(t, func(s *setup) { s.cfg.Bind = "127.0.0.1:0" })
	if err := r2.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	was := r2.Addr()
	_ = r2.tcp.close()
	done := make(chan error, 1)
	go func() { done <- r2.tcp.run(t.Context()) }()
	waitFor(t, "listener", func() bool { return !r2.tcp.generation().socket.closed.Load() })
	if r2.Addr() != was || addr == was {
		t.Errorf("came back on %s, was %s", r2.Addr(), was)
	}
	if err := r2.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Errorf("run after shutdown: %v, want nil", err)
	}
}

// Shutdown waits for calls in hand, and cuts them when its time is over.
func TestShutdownWaitsThenCuts(t *testing.T) {
	for _, tt := range []struct {
		doc, path string
		within    time.Duration
		status    int
	}{{"in time", "/hold", 20 * time.Second, http.StatusOK}, {"too late", "/wait", 50 * time.Millisecond, 0}} {
		r := newRig(t).listening(t)
		c := r.dial(t)
		_, _ = io.WriteString(c, "GET "+tt.path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		waitFor(t, "call", func() bool { return r.tcp.calls.Load() == 1 })
		ctx, cancel := context.WithTimeout(t.Context(), tt.within)
		release := time.AfterFunc(100*time.Millisecond, func() { close(r.hold) })
		defer release.Stop()
		if err := r.Shutdown(ctx); err != nil {
			t.Errorf("%s: Shutdown: %v", tt.doc, err)
		}
		cancel()
		if got := readStatus(t, c); got != tt.status {
			t.Errorf("%s: %d, want %d", tt.doc, got, tt.status)
		}
	}
}

func TestShutdownSaysWhatRunsOn(t *testing.T) {
	r := newRig(t).listening(t)
	_, _ = io.WriteString(r.dial(t), "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
	waitFor(t, "call", func() bool { return r.calls.Load() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(ctx); err == nil || !strings.Contains(err.Error(), "1 calls run on") {
		t.Errorf("err = %v, want one call that runs on", err)
	}
	close(r.hold)
}

func TestShutdownDoesNotMindSilentConnections(t *testing.T) {
	r := newRig(t).listening(t)
	r.dial(t)
	waitFor(t, "connection", func() bool { return r.Conns() == 1 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
}

// A door that is shut lets nobody else in, while who has connected can still be accepted.
func TestShutDoor(t *testing.T) {
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
	if !s.shut() {
		t.Error("the door is shut and not said to be: who waits would be left behind when time has passed")
	}
	if c, err := net.DialTimeout("tcp", s.Addr().String(), 100*time.Millisecond); err == nil {
		_ = c.Close()
		t.Error("connected through a shut door")
	}
	c, err := s.Accept()
	if err != nil {
		t.Fatalf("who had connected: %v", err)
	}
	_ = c.Close()
}

// Two nodes that were given one socket path: the second is told, the first keeps its socket, also after the second has ended.
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

// Who knocked before the door was shut is let in and told so.
func TestShutdownAnswersWhoHasConnected(t *testing.T) {
	r := newRig(t)
	if err := r.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	var all []net.Conn
	for range 20 {
		c := r.dial(t)
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		all = append(all, c)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.Shutdown(t.Context()) }()
	waitFor(t, "shutdown to begin", func() bool { return (r.tcp.generation().end.Load() == endStopped) })
	if err := r.tcp.run(t.Context()); err != nil {
		t.Errorf("run: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for i, c := range all {
		if got := readStatus(t, c); got != http.StatusOK {
			t.Errorf("connection %d: %d, want an answer", i, got)
		}
	}
}
