package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
)

// endpoint is one address with the server behind it.
type endpoint struct {
	f       *Front
	name    string // of its task
	network string // "tcp" or "unix"
	bind    string
	http    *http.Server
	may     func(uid, gid uint32) bool // which peers of a socket are let in
	conns   *places
	calls   atomic.Int64                // handlers running
	silent  atomic.Int64                // connections that have not asked for anything yet
	rejects map[string]func(n int)      // by reason
	open    atomic.Pointer[capListener] // nil before listen
}

// Reasons of conn_rejects_total.
const (
	rejectTotal = "total"
	rejectPeer  = "peer"
)

func (f *Front) newEndpoint(cfg Config, name, network, bind string, limit int) *endpoint {
	m := f.o.Metrics
	e := &endpoint{f: f, name: name, network: network, bind: bind, may: f.o.SocketMay, conns: newPlaces(limit),
		rejects: map[string]func(int){
			rejectTotal: m.Counter("conn_rejects_total", serviceNode, "reason", rejectTotal),
			rejectPeer:  m.Counter("conn_rejects_total", serviceNode, "reason", rejectPeer),
		}}
	m.Gauge("conns_open", serviceNode, func() float64 { return float64(e.conns.n.Load()) }, "listener", name)
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	e.http = &http.Server{
		Handler:           e,
		Protocols:         protocols,
		ReadHeaderTimeout: cfg.ReadTimeout.D(),
		IdleTimeout:       cfg.IdleTimeout.D(),
		MaxHeaderBytes:    int(cfg.MaxHeader.Bytes()),
		ConnContext:       withPeer,
		// OPTIONS * is counted and carries a correlation id like any other request.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     f.o.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return e
}

// withPeer puts who is at the other end into the context of every request of c.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(interface{ who() *Peer }); ok {
		return WithPeer(ctx, t.who())
	}
	return ctx
}

// listen opens the address; a second call after close opens it again.
func (e *endpoint) listen(ctx context.Context) error {
	inner, err := e.openSocket(ctx)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", e.bind, err)
	}
	e.bind = inner.Addr().String() // a restart must come back on the port that 0 gave
	e.open.Store(newCapListener(inner, e))
	return nil
}

func (e *endpoint) openSocket(ctx context.Context) (net.Listener, error) {
	if e.network == "unix" {
		return listenSocket(ctx, e.bind)
	}
	lc := net.ListenConfig{KeepAlive: keepAlive}
	return lc.Listen(ctx, e.network, e.bind)
}

func (e *endpoint) addr() string {
	if l := e.open.Load(); l != nil {
		return l.Addr().String()
	}
	return ""
}

func (e *endpoint) close() error {
	if l := e.open.Load(); l != nil {
		return l.Close()
	}
	return nil
}

func (e *endpoint) task(doc string) flow.Task {
	return flow.Task{Service: serviceNode, Name: e.name, Count: 1, Restart: flow.Always, Doc: doc, Run: e.run}
}

// run accepts until shutdown. A run after a failure finds its listener closed and opens the address anew.
func (e *endpoint) run(ctx context.Context) error {
	l := e.open.Load()
	if l == nil || l.closed.Load() {
		if err := e.listen(ctx); err != nil {
			return err
		}
		l = e.open.Load()
	}
	stop := context.AfterFunc(ctx, func() { _ = e.http.Close() })
	defer stop()
	err := e.http.Serve(l)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeHTTP counts who is inside.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.calls.Add(1)
	defer e.calls.Add(-1)
	PeerOf(r).ask()
	e.f.o.Handler.ServeHTTP(w, r)
}

// shutdown shuts the door, lets who is inside be answered until ctx ends, then cuts the connections. Only a handler that
// runs on even so is an error; a connection that never asked is not.
func (e *endpoint) shutdown(ctx context.Context) error {
	e.answerLate(ctx)
	if e.http.Shutdown(ctx) == nil {
		return e.close()
	}
	err := errors.Join(e.http.Close(), e.close())
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutGrace)
	defer cancel()
	if !settled(grace, &e.calls) {
		return errors.Join(err, fmt.Errorf("%s: %d calls run on", e.name, e.calls.Load()))
	}
	return err
}

// answerLate lets in who has connected by now and waits a moment for each to ask: once net/http shuts down it drops what
// has been sent and not been read.
func (e *endpoint) answerLate(ctx context.Context) {
	l := e.open.Load()
	if l == nil || !l.stop() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lateGrace)
	defer cancel()
	select {
	case <-l.emptied:
		settled(ctx, &e.silent)
	case <-ctx.Done():
	}
}

const (
	keepAlive = 60 * time.Second
	cutGrace  = 250 * time.Millisecond // for handlers whose context has ended to return
	lateGrace = 100 * time.Millisecond // for who has connected to ask
	pollEvery = 2 * time.Millisecond
)

// settled waits for n to come down to 0, and says whether it did before ctx ended.
func settled(ctx context.Context, n *atomic.Int64) bool {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	for n.Load() > 0 {
		select {
		case <-poll.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
