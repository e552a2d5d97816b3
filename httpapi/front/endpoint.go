package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
)

// endpoint is one address and the generations of servers behind it, of which the last accepts.
type endpoint struct {
	f       *Front
	name    string // of its task
	network string // "tcp" or "unix"
	book    *book
	calls   atomic.Int64           // handlers running
	silent  atomic.Int64           // connections that have not asked for anything yet
	rejects map[string]func(n int) // by reason

	mu      *flow.Mutex
	current *generation   // guarded by mu; nil before listen
	old     []*generation // those before, while they have connections; guarded by mu
	access  access        // to the socket file; guarded by mu
	ended   bool          // by shutdown; guarded by mu
}

// Reasons of conn_rejects_total.
const (
	rejectTotal   = "total"
	rejectPerIP   = "per_ip"
	rejectPeer    = "peer"    // may not use the socket
	rejectReserve = "reserve" // was silent in a reserved place that another needed
)

func (f *Front) newEndpoint(name, network string, max limits) *endpoint {
	m := f.o.Metrics
	e := &endpoint{
		f: f, name: name, network: network, book: newBook(f.o.Catalog, max), rejects: map[string]func(int){},
		mu: flow.NewMutex(f.o.Catalog, serviceNode, flow.RankCounters),
	}
	for _, reason := range []string{rejectTotal, rejectPerIP, rejectPeer, rejectReserve} {
		e.rejects[reason] = m.Counter("conn_rejects_total", serviceNode, "reason", reason)
	}
	m.Gauge("conns_open", serviceNode, func() float64 { return float64(e.book.open()) }, "listener", name)
	return e
}

// listen opens the address.
func (e *endpoint) listen(ctx context.Context, s settings, a access) error {
	socket, err := e.open(ctx, s.bind, a)
	if err != nil {
		return err
	}
	g := e.newGeneration(s, socket)
	e.mu.Lock()
	e.current, e.access = g, a
	e.mu.Unlock()
	return nil
}

// open binds an address. The first time a socket that was inherited for it stands in.
func (e *endpoint) open(ctx context.Context, bind string, a access) (*socket, error) {
	all := e.all()
	if l := e.f.inherited(e.network); l != nil && len(all) == 0 {
		s := &socket{Listener: l, bind: bind, inherited: true}
		s.inline()
		return s, nil
	}
	var l net.Listener
	var err error
	if e.network == "unix" {
		l, err = listenSocket(ctx, bind, a)
	} else {
		l, err = bindTCP(ctx, bind, sockets(all))
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", bind, err)
	}
	s := &socket{Listener: l, bind: bind}
	s.inline()
	return s, nil
}

func sockets(all []*generation) (out []*socket) {
	for _, g := range all {
		out = append(out, g.socket)
	}
	return out
}

// generation is the one that accepts.
func (e *endpoint) generation() *generation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current
}

// all are the generations that have something to finish, the one that accepts first.
func (e *endpoint) all() []*generation {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.current == nil {
		return nil
	}
	return append([]*generation{e.current}, e.old...)
}

func (e *endpoint) addr() string {
	if g := e.generation(); g != nil {
		return g.Addr().String()
	}
	return ""
}

func (e *endpoint) close() error {
	if g := e.generation(); g != nil {
		return g.socket.Close()
	}
	return nil
}

func (e *endpoint) task(doc string) flow.Task {
	return flow.Task{Service: serviceNode, Name: e.name, Count: 1, Restart: flow.Always, Doc: doc, Run: e.run}
}

// run accepts, one generation after the other, until shutdown.
func (e *endpoint) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, e.drop)()
	for {
		g, err := e.ready(ctx)
		if err == nil && ctx.Err() == nil { // if it ends from now on, g is one of those that are dropped
			err = g.serve()
		}
		switch {
		case ctx.Err() != nil:
			e.drop() // also what has been opened since
			return context.Cause(ctx)
		case errors.Is(err, http.ErrServerClosed):
			return nil
		case !errors.Is(err, errEnded):
			return err
		case e.generation() == g:
			return nil // stopped
		}
	}
}

// ready gives the generation to accept for: one that was moved from and has connections waiting, else the current one.
// That one, when a failure has closed it, is replaced by one that comes back on its address, which is the port that 0 gave.
func (e *endpoint) ready(ctx context.Context) (*generation, error) {
	all := e.all()
	for _, g := range all[1:] {
		if g.waits() {
			return g, nil
		}
	}
	g := all[0]
	if !g.socket.closed.Load() || g.end.Load() != endNone {
		return g, nil
	}
	e.mu.Lock()
	a, ended := e.access, e.ended
	e.mu.Unlock()
	if ended {
		return nil, http.ErrServerClosed
	}
	socket, err := e.open(ctx, g.Addr().String(), a)
	if err != nil {
		return nil, err
	}
	socket.bind = g.socket.bind
	again := e.newGeneration(g.settings, socket)
	if !e.follow(again, g) {
		return e.ready(ctx) // a reload, or the end, came first
	}
	return again, nil
}

// noteAccept says what net/http tries again without a word, such as too many open files.
func (e *endpoint) noteAccept(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		e.f.o.Log.Warn("accept.failed", "listener", e.name, "error", err.Error())
	}
}

// drop cuts every connection.
func (e *endpoint) drop() {
	for _, g := range e.all() {
		_ = g.drop()
	}
}

// shutdown shuts the door, lets who is inside be answered until ctx ends, then cuts the connections. Only a handler that
// runs on even so is an error; a connection that never asked is not.
func (e *endpoint) shutdown(ctx context.Context) error {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	all := e.all()
	if len(all) == 0 {
		return nil
	}
	e.answerLate(ctx, all[0])
	var err error
	inTime := true
	for _, g := range all {
		inTime = g.http.Shutdown(ctx) == nil && inTime
		err = errors.Join(err, g.socket.Close()) // net/http has closed it if it has accepted from it
	}
	if inTime {
		return err
	}
	for _, g := range all {
		err = errors.Join(err, g.drop())
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutGrace)
	defer cancel()
	if !settled(grace, &e.calls) {
		return errors.Join(err, fmt.Errorf("%s: %d calls run on", e.name, e.calls.Load()))
	}
	return err
}

// answerLate lets in who has connected by now and waits a moment for each to ask: once net/http shuts down it drops what
// has been sent and not been read.
func (e *endpoint) answerLate(ctx context.Context, g *generation) {
	if g.socket.closed.Load() || !g.stop() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lateGrace)
	defer cancel()
	select {
	case <-g.emptied:
		settled(ctx, &e.silent)
	case <-ctx.Done():
	}
}

const (
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
