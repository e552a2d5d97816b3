package front

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/unit"
)

// reload takes a changed configuration into force.
func (r *rig) reload(t testing.TB, change func(*setup)) {
	t.Helper()
	s := &setup{cfg: r.cfg, tls: r.tls, uds: r.uds}
	change(s)
	swap, _, err := r.Prepare(t.Context(), s.cfg, s.tls, s.uds)
	if err != nil {
		t.Fatal(err)
	}
	swap()
}

// load runs clients, some with one connection per request, some with connections kept until an
// answer closes them. Each looks up the address for each connection. more waits until more requests
// were answered.
func (r *rig) load(t *testing.T) (more, stop func()) {
	var end atomic.Bool
	var asked atomic.Int64
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			for !end.Load() {
				if err := r.visit(i%2 == 0, &asked, &end); err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
			}
		})
	}
	more = func() {
		t.Helper()
		goal := asked.Load() + 20
		waitFor(t, "further requests", func() bool { return asked.Load() >= goal || t.Failed() })
	}
	return more, func() { end.Store(true); clients.Wait() }
}

// visit connects once and asks once, or until an answer ends the connection.
func (r *rig) visit(once bool, asked *atomic.Int64, end *atomic.Bool) error {
	c, err := net.Dial("tcp", r.Addr())
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil // the address was left between the look and the dial
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	in := bufio.NewReader(c)
	for {
		if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if asked.Add(1); resp.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", resp.StatusCode)
		}
		if once || resp.Close || end.Load() {
			return nil
		}
	}
}

// New timeouts under load: the socket never closes, and no client notices.
func TestNewSettingsUnderLoad(t *testing.T) {
	r := newRig(t, noReserve, withAcceptors(3)).listening(t)
	at := r.Addr()
	more, stop := r.load(t)
	for i := range 50 {
		r.reload(t, func(s *setup) { s.cfg.IdleTimeout = unit.Duration(time.Duration(50+i) * time.Second) })
		more()
	}
	stop()
	if r.Addr() != at {
		t.Errorf("moved from %s to %s", at, r.Addr())
	}
	waitFor(t, "older generations to end",
		func() bool { return r.Conns() == 0 && len(unfinished(r.tcp.all()[1:])) == 0 })
	r.reload(t, func(s *setup) { s.cfg.IdleTimeout = unit.Duration(time.Minute) })
	if n := len(r.tcp.all()); n > 2 {
		t.Errorf("%d generations are kept", n)
	}
}

// Generations that follow one another faster than their acceptors can begin all end, and the last
// one accepts.
func TestReloadsInQuickSuccession(t *testing.T) {
	r := newRig(t, withAcceptors(4)).listening(t)
	for i := range 500 {
		r.reload(t, func(s *setup) { s.cfg.IdleTimeout = unit.Duration(time.Duration(50+i%7) * time.Second) })
		if i%10 == 0 {
			if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
				t.Fatalf("reload %d: %d", i, status)
			}
		}
	}
}

// A new address under load: every connection made is answered, and kept ones are closed with an
// answer.
func TestNewAddressUnderLoad(t *testing.T) {
	r := newRig(t, noReserve, withAcceptors(3)).listening(t)
	first := r.Addr()
	more, stop := r.load(t)
	for i := range 20 {
		r.reload(t, func(s *setup) { s.cfg.Bind = fmt.Sprintf("127.0.0.%d:0", 2+i%2) })
		more()
	}
	stop()
	waitFor(t, "the old address to be free", func() bool {
		c, err := net.Dial("tcp", first)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
		t.Errorf("%d at the new one", status)
	}
}

func TestConnectionInHandIsFinishedAndEnds(t *testing.T) {
	r := newRig(t).listening(t)
	idle, busy := r.dial(t), r.dial(t)
	if status, _, _ := ask(t, idle, "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	_, _ = io.WriteString(busy, "GET /hold HTTP/1.1\r\nHost: x\r\n\r\n")
	waitFor(t, "call", func() bool { return r.calls.Load() == 2 })
	r.reload(t, func(s *setup) { s.cfg.Bind = "127.0.0.2:0" })
	if status, _, h := ask(t, idle, "/"); status != http.StatusOK || h.Get("Connection") != "close" {
		t.Errorf("idle: %d %v, want its answer and the end", status, h)
	}
	close(r.hold)
	if got := readStatus(t, busy); got != http.StatusOK {
		t.Errorf("busy: %d, want its answer", got)
	}
}

// From one address of a port to all of them and back, which a plain bind refuses.
func TestBindWidensAndNarrows(t *testing.T) {
	port := fixedPort(t)
	r := newRig(t, func(s *setup) { s.cfg.Bind, s.cfg.Plaintext = "127.0.0.1:"+port, true }).listening(t)
	for _, host := range []string{"0.0.0.0", "127.0.0.1", ""} {
		r.reload(t, func(s *setup) { s.cfg.Bind = net.JoinHostPort(host, port) })
		waitFor(t, "an answer on the widened address", func() bool {
			c, err := net.Dial("tcp", "127.0.0.1:"+port)
			if err != nil {
				return false
			}
			defer func() { _ = c.Close() }()
			status, _, _ := ask(t, c, "/")
			return status == http.StatusOK
		})
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = l.Close()
			t.Errorf("%s: the port is open to others", host)
		}
	}
}

// fixedPort is a free one that no client's connection is given.
func fixedPort(t *testing.T) string {
	t.Helper()
	for port := 21_000 + os.Getpid()%5000; port < 32_000; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf(":%d", port)); err == nil {
			_ = l.Close()
			return fmt.Sprint(port)
		}
	}
	t.Fatal("no free port")
	return ""
}

func TestUndoneReloadChangesNothing(t *testing.T) {
	r := newRig(t, withSocket(filepath.Join(t.TempDir(), "admin.sock"))).listening(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	other := filepath.Join(t.TempDir(), "other.sock")
	at := r.Addr()
	for _, tt := range []struct {
		doc    string
		change func(*setup)
		fails  bool
	}{
		{"a taken address", func(s *setup) { s.cfg.Bind = taken.Addr().String() }, true},
		{"no certificate", func(s *setup) { s.tls = TLSConfig{Enabled: true, CertPath: "/none", KeyPath: "/none"} }, true},
		{"no socket", func(s *setup) { s.uds.Path = "" }, true},
		{"a bad socket after a good address", func(s *setup) { s.cfg.Bind, s.uds.Path = "127.0.0.2:0", "/proc/none/x" }, true},
		{"good, and undone", func(s *setup) { s.cfg.Bind, s.uds.Path, s.cfg.MaxConns = "127.0.0.2:0", other, 1 }, false},
	} {
		s := &setup{cfg: r.cfg, tls: r.tls, uds: r.uds}
		tt.change(s)
		_, undo, err := r.Prepare(t.Context(), s.cfg, s.tls, s.uds)
		if (err != nil) != tt.fails {
			t.Errorf("%s: %v", tt.doc, err)
		}
		if err == nil {
			undo()
		}
		if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK || r.Addr() != at {
			t.Errorf("%s: %d at %s", tt.doc, status, r.Addr())
		}
	}
	if _, err := os.Stat(other); !os.IsNotExist(err) {
		t.Errorf("%v: the undone socket is still there", err)
	}
}

func TestLimitsChangeInPlace(t *testing.T) {
	r := newRig(t, noReserve).listening(t)
	kept := r.dial(t)
	if status, _, _ := ask(t, kept, "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	r.reload(t, func(s *setup) { s.cfg.MaxConns, s.cfg.Trusted = 1, []string{"127.0.0.1/32"} })
	if status, _, _ := answer(t, r.dial(t)); status != http.StatusServiceUnavailable {
		t.Errorf("%d over the new cap", status)
	}
	_, _ = io.WriteString(kept, "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n")
	if status, body, h := answer(t, kept); status != http.StatusOK || body != "192.0.2.7" ||
		h.Get("Connection") == "close" {
		t.Errorf("%d %q %v: want the same connection, its proxy trusted now", status, body, h)
	}
	if len(r.tcp.all()) != 1 {
		t.Error("a new server for new limits")
	}
}

func TestTLSIsTurnedOnWhileServing(t *testing.T) {
	with, s := withTLS(t), &setup{}
	with(s)
	r := newRig(t).listening(t)
	plain := r.dial(t)
	if status, _, _ := ask(t, plain, "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	at := r.Addr()
	r.reload(t, with)
	if c, err := hello(t, r, nil); err != nil || r.Addr() != at {
		t.Errorf("%v at %s", err, r.Addr())
	} else if status, _, _ := ask(t, c, "/"); status != http.StatusOK {
		t.Error(status)
	}
	if status, _, h := ask(t, plain, "/"); status != http.StatusOK || h.Get("Connection") != "close" {
		t.Errorf("%d %v on the plain connection", status, h)
	}
}

func TestSocketMoves(t *testing.T) {
	dir := t.TempDir()
	first, second := filepath.Join(dir, "a.sock"), filepath.Join(dir, "b.sock")
	r := newRig(t, withSocket(first)).listening(t)
	r.reload(t, func(s *setup) { s.uds.Path = second })
	c, err := net.Dial("unix", second)
	if err != nil || r.SocketPath() != second {
		t.Fatal(err, r.SocketPath())
	}
	defer func() { _ = c.Close() }()
	if status, _, _ := ask(t, c, "/"); status != http.StatusOK {
		t.Error(status)
	}
	waitFor(t, "the old socket to go", func() bool { _, err := os.Stat(first); return os.IsNotExist(err) })
}

// Whenever the accept loop looks for what to do next, a socket that is left is either still the
// current one or found as one to be emptied: else clients connected there would wait for ever, and
// its file would stay.
func TestSocketIsLeftWhileTheLoopLooks(t *testing.T) {
	e := newRig(t, withSocket(filepath.Join(t.TempDir(), "s"))).admin
	if err := e.listen(t.Context(), settings{bind: filepath.Join(t.TempDir(), "0")},
		access{file: 0o600, dir: 0o700}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, g := range e.all() {
			_ = g.socket.Close()
		}
	}()
	dir := t.TempDir()
	for i := range 300 {
		socket, err := e.open(t.Context(), settings{bind: filepath.Join(dir, fmt.Sprint(i))},
			access{file: 0o600, dir: 0o700})
		if err != nil {
			t.Fatal(err)
		}
		before, next := e.generation(), e.newGeneration(settings{}, socket)
		over := make(chan struct{})
		go func() { defer close(over); e.follow(next, nil) }()
		for looking := true; looking; {
			select {
			case <-over:
				looking = false
			default:
			}
			if g, err := e.nextToServe(t.Context()); err != nil || g != before {
				t.Fatalf("round %d: the loop was given %p and %v while it had to empty %p", i, g, err, before)
			}
		}
		before.closed.Store(true)
		_ = before.socket.Close()
	}
}

// A generation that is just admitting a connection is not forgotten, however many follow: else
// nothing would end that connection.
func TestGenerationIsKeptWhileItLetsIn(t *testing.T) {
	at, gate := make(chan struct{}), make(chan struct{})
	path := filepath.Join(t.TempDir(), "admin.sock")
	r := newRig(t, withSocket(path), func(s *setup) {
		s.o.SocketMay = func(uint32, uint32) bool { close(at); <-gate; return true }
	}).listening(t)
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	<-at
	first := r.admin.generation()
	for i := range 3 {
		r.reload(t, func(s *setup) { s.cfg.IdleTimeout = unit.Duration(time.Duration(50+i) * time.Second) })
	}
	kept := slices.Contains(r.admin.all(), first)
	close(gate)
	if !kept {
		t.Error("forgotten")
	}
	if status, _, h := ask(t, c, "/"); status != http.StatusOK || h.Get("Connection") != "close" {
		t.Errorf("%d %v, want its answer and the end", status, h)
	}
}

// A reload that comes after the end changes nothing and leaves nothing open.
func TestReloadAfterShutdown(t *testing.T) {
	r := newRig(t).listening(t)
	cfg := r.cfg
	cfg.Bind = "127.0.0.2:0"
	swap, _, err := r.Prepare(t.Context(), cfg, r.tls, r.uds)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	swap()
	if c, err := net.Dial("tcp", r.Addr()); err == nil {
		_ = c.Close()
		t.Error("the address is open")
	}
}
