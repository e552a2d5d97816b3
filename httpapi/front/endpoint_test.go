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
	"sync"
	"testing"
	"time"
)

// loopless returns an endpoint that listens, and no loop that accepts.
func loopless(t *testing.T, change ...func(*setup)) (*rig, *endpoint) {
	t.Helper()
	r := newRig(t, change...)
	if err := r.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, g := range r.tcp.all() {
			_ = g.socket.Close()
		}
	})
	return r, r.tcp
}

// patiently has a shutdown wait for handlers and clients for as long as a busy machine needs.
func (r *rig) patiently() *rig {
	r.cutGrace, r.backlogGrace = time.Minute, time.Minute
	return r
}

func withAcceptors(n int) func(*setup) { return func(s *setup) { s.cfg.Acceptors = n } }

// The configured number of loops accepts, and all of them end when the listener fails.
func TestAcceptors(t *testing.T) {
	for _, n := range []int{3, 2, 5} {
		r, e := loopless(t, withAcceptors(n))
		ended := make(chan error, 1)
		go func() { ended <- e.run(t.Context()) }()
		waitFor(t, "acceptors", func() bool { return e.generation().accepting.Load() == int32(n) })
		var clients sync.WaitGroup
		for range 20 {
			clients.Go(func() {
				if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
					t.Errorf("%d acceptors: %d", n, status)
				}
			})
		}
		clients.Wait()
		_ = e.close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("%d acceptors: run ends with %v", n, err)
		}
	}
}

// Connections that several acceptors took after their generation had ended are all kept for the
// next, or closed.
func TestHandover(t *testing.T) {
	_, e := loopless(t)
	s := e.generation().socket
	var clients []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		accepted, err := s.Accept()
		if err != nil {
			t.Fatal(err)
		}
		s.handOver(accepted)
		clients = append(clients, c)
	}
	taken := s.takeHandover()
	if taken == nil || taken.RemoteAddr().String() != clients[2].LocalAddr().String() {
		t.Errorf("%v was kept, want the last", taken)
	}
	_ = taken.Close()
	_ = s.Close()
	for i, c := range clients {
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("connection %d: %v, want it closed", i, err)
		}
	}
	if s.takeHandover() != nil {
		t.Error("one is kept by a closed socket")
	}
}

// A reload takes effect even if the loop concurrently opens a failed listener again with the old
// settings.
func TestReloadBesideAReopening(t *testing.T) {
	_, e := loopless(t)
	for i := range 300 {
		_ = e.close() // as after a failure
		want := e.generation().settings
		want.bind, want.idle = fmt.Sprintf("127.0.0.%d:0", 10+i/2%2), time.Duration(i)
		c, err := e.prepare(t.Context(), want, access{})
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() { defer close(over); c.swap() }()
		if _, err := e.nextToServe(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-over
		if got := e.generation().settings; got != want {
			t.Fatalf("round %d: %+v is in force, want %+v", i, got, want)
		}
		for _, g := range e.all()[1:] {
			g.closed.Store(true)
			_ = g.socket.Close()
		}
	}
}

// The loop ends with its context, even while it opens a listener again.
func TestLoopEndsWhileItReopens(t *testing.T) {
	for i := range 200 {
		_, e := loopless(t, withAcceptors(1+i%2))
		_ = e.close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.run(ctx) }()
		cancel()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("round %d: it accepts on", i)
		}
	}
}

// A task that is started again finds its listener gone and comes back on the same address.
func TestTaskComesBackOnItsAddress(t *testing.T) {
	r := newRig(t).listening(t)
	addr := r.Addr()
	r2 := newRig(t)
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

// A shutdown while a listener is opened again is not an error, and no listener is left.
func TestShutdownBesideAReopening(t *testing.T) {
	for i := range 100 {
		r, e := loopless(t, withAcceptors(1+i%2))
		_ = e.close()
		ended := make(chan error, 1)
		go func() { ended <- e.run(t.Context()) }()
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Fatalf("round %d: the loop ends with %v", i, err)
		}
		if c, err := net.Dial("tcp", e.addr()); err == nil {
			_ = c.Close()
			t.Fatalf("round %d: the address is open", i)
		}
	}
}

// Shutdown closes generations that no loop has served.
func TestShutdownClosesWhatWasLeft(t *testing.T) {
	dir := t.TempDir()
	r, _ := loopless(t, withSocket(filepath.Join(dir, "0")))
	var left []string
	for i := range 3 {
		left = append(left, r.Addr())
		r.reload(t, func(s *setup) {
			s.cfg.Bind, s.uds.Path = fmt.Sprintf("127.0.0.%d:0", 2+i), filepath.Join(dir, fmt.Sprint(i+1))
		})
	}
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	for _, at := range left {
		if c, err := net.Dial("tcp", at); err == nil {
			_ = c.Close()
			t.Errorf("%s is open", at)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) > 0 {
		t.Errorf("%v, %v: socket files are left", all, err)
	}
}

// Shutdown also finishes the requests of older generations, on the same socket and on a previous
// one.
func TestShutdownEndsOlderGenerations(t *testing.T) {
	r := newRig(t).patiently().listening(t)
	var all []net.Conn
	for i := range 3 {
		idle, busy := r.dial(t), r.dial(t)
		if status, _, _ := ask(t, idle, "/"); status != http.StatusOK {
			t.Fatal(status)
		}
		_, _ = io.WriteString(busy, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
		waitFor(t, "call", func() bool { return r.tcp.calls.Load() == int64(i)+1 })
		all = append(all, idle, busy)
		r.reload(t, func(s *setup) {
			s.cfg.Bind, s.cfg.IdleTimeout = []string{s.cfg.Bind, "127.0.0.2:0", s.cfg.Bind}[i], s.cfg.IdleTimeout+1
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for i, c := range all {
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d: %v, want it closed", i, err)
		}
	}
	waitFor(t, "connections to go", func() bool { return r.Conns() == 0 })
}

// Shutdown waits for running handlers until its deadline, then closes their connections.
func TestShutdownWaitsThenCuts(t *testing.T) {
	for _, tt := range []struct {
		doc, path string
		within    time.Duration
		status    int
	}{{"in time", "/hold", 20 * time.Second, http.StatusOK}, {"too late", "/wait", 50 * time.Millisecond, 0}} {
		r := newRig(t).patiently().listening(t)
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

// A connection made before the listener stops is admitted and answered.
func TestShutdownAnswersTheBacklog(t *testing.T) {
	t.Run("one acceptor", func(t *testing.T) { shutdownWithBacklog(t, 1) })
	t.Run("three acceptors", func(t *testing.T) { shutdownWithBacklog(t, 3) })
}

func shutdownWithBacklog(t *testing.T, acceptors int) {
	r := newRig(t, withAcceptors(acceptors)).patiently()
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
