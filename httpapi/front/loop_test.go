package front

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ronbox/appliance/unit"
)

// loopless is an endpoint that listens and that nobody accepts for.
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

// A reload is in force, whatever it meets: also a loop that opens anew a listener that has failed, with the settings before.
func TestReloadBesideAReopening(t *testing.T) {
	_, e := loopless(t)
	for i := range 300 {
		_ = e.close() // as after a failure
		want := e.generation().settings
		want.bind, want.idle = fmt.Sprintf("127.0.0.%d:0", 1+i/2%2), time.Duration(i)
		c, err := e.prepare(t.Context(), want, access{})
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan struct{})
		go func() { defer close(over); c.swap() }()
		if _, err := e.ready(t.Context()); err != nil {
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

// The loop ends with its context, also one that ends while a listener is opened anew.
func TestLoopEndsWhileItReopens(t *testing.T) {
	for i := range 200 {
		_, e := loopless(t)
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

// A shutdown that comes while a listener is opened anew is no failure of the loop, and nobody listens after it.
func TestShutdownBesideAReopening(t *testing.T) {
	for i := range 100 {
		r, e := loopless(t)
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
			t.Fatalf("round %d: somebody listens", i)
		}
	}
}

// Shutdown closes what a reload has left and no loop has come to.
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

// A request that has been taken from the kernel, and that nobody has looked at yet, is one: its connection makes no room for another.
func TestWhatIsBeingReadIsNoSilence(t *testing.T) {
	for _, secure := range []bool{false, true} {
		change := []func(*setup){func(s *setup) { s.cfg.MaxConns, s.cfg.Reserved = 1, 2 }}
		if secure {
			change = append(change, withTLS(t))
		}
		r, e := loopless(t, change...)
		var in *life
		var raw net.Conn
		for range 2 { // the first has the ordinary place, the second is in the reserve
			raw = r.dial(t)
			accepted, err := e.generation().socket.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c := e.admit(e.generation(), accepted)
			defer func() { _ = accepted.Close() }()
			in = c.(interface{ who() *life }).who()
		}
		if !in.idles() {
			t.Errorf("TLS %v: who is silent is not told", secure)
		}
		_, _ = io.WriteString(raw, "GET /probe HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := in.raw.Read(make([]byte, 512)); err != nil { // as a Read does that has not returned
			t.Fatal(err)
		}
		if in.idles() {
			t.Errorf("TLS %v: who has asked is to make room", secure)
		}
	}
}

// Under TLS too who has begun something and does not go on makes room, in the handshake and after it.
func TestDawdlersUnderTLSMakeRoom(t *testing.T) {
	for _, tt := range []struct {
		doc   string
		begin func(*testing.T, *rig) net.Conn
	}{
		{"silent", func(t *testing.T, r *rig) net.Conn { return r.dial(t) }},
		{"half a hello", func(t *testing.T, r *rig) net.Conn {
			c := r.dial(t)
			_, _ = io.WriteString(c, "\x16\x03\x01\x02\x00\x01")
			return c
		}},
		{"no request", func(t *testing.T, r *rig) net.Conn { return shaken(t, r) }},
		{"half a record", func(t *testing.T, r *rig) net.Conn {
			c := shaken(t, r)
			_, _ = io.WriteString(c.NetConn(), "\x17\x03\x03\x01\x00half")
			return c
		}},
		{"half a request", func(t *testing.T, r *rig) net.Conn {
			c := shaken(t, r)
			_, _ = io.WriteString(c, "GET /probe HTTP/1.1\r\nHo")
			return c
		}},
	} {
		r := newRig(t, withTLS(t), func(s *setup) {
			s.cfg.MaxConns, s.cfg.Reserved, s.cfg.ReadTimeout = 1, 1, unit.Duration(time.Minute)
		}).listening(t)
		first := shaken(t, r)
		if status, _, _ := ask(t, first, "/"); status != http.StatusOK {
			t.Fatal(status)
		}
		dawdler := tt.begin(t, r)
		waitFor(t, tt.doc+" to be idle", func() bool {
			idle, _ := idlers(r.tcp.book.reserved(), time.Now())
			return len(idle) == 1 && idle[0].idles()
		})
		r.dial(t)
		if _, err := dawdler.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("%s: %v, want it gone", tt.doc, err)
		}
	}
}

func shaken(t *testing.T, r *rig) *tls.Conn {
	t.Helper()
	c, err := hello(t, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
