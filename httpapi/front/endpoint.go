package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
)

// endpoint is one address with its generations of servers. The last generation accepts.
type endpoint struct {
	f         *Front
	name      string // of its task
	network   string // "tcp" or "unix"
	acceptors int    // accept loops of a generation
	conns     *connTable
	calls     atomic.Int64           // running handlers
	silent    atomic.Int64           // connections without a request so far
	rejects   map[string]func(n int) // by reason

	mu      *flow.Mutex
	current *generation   // guarded by mu; nil before listen
	old     []*generation // previous ones that have connections; guarded by mu
	access  access        // modes of the socket file; guarded by mu
	ended   bool          // shutdown was called; guarded by mu
}

// Reasons of conn_rejects_total.
const (
	rejectTotal   = "total"
	rejectPerIP   = "per_ip"
	rejectPeer    = "peer"    // may not use the socket
	rejectReserve = "reserve" // evicted because it was silent in a reserved slot
)

func (f *Front) newEndpoint(name, network string, acceptors int, max limits) *endpoint {
	m := f.o.Metrics
	e := &endpoint{
		f: f, name: name, network: network, acceptors: acceptors,
		conns: newConnTable(f.o.Catalog, max), rejects: map[string]func(int){},
		mu: flow.NewMutex(f.o.Catalog, serviceNode, flow.RankCounters),
	}
	for _, reason := range []string{rejectTotal, rejectPerIP, rejectPeer, rejectReserve} {
		e.rejects[reason] = m.Counter("conn_rejects_total", serviceNode, "reason", reason)
	}
	m.Gauge("conns_open", serviceNode, func() float64 { return float64(e.conns.open()) }, "listener", name)
	return e
}

// listen opens the address.
func (e *endpoint) listen(ctx context.Context, s settings, a access) error {
	socket, err := e.open(ctx, s, a)
	if err != nil {
		return err
	}
	g := e.newGeneration(s, socket)
	e.mu.Lock()
	e.current, e.access = g, a
	e.mu.Unlock()
	return nil
}

// open binds the address of s. The first call uses an inherited socket if there is one. It returns
// ErrPlaintext if s does not permit the address.
func (e *endpoint) open(ctx context.Context, s settings, a access) (*socket, error) {
	all := e.all()
	l := e.f.inherited(e.network)
	inherited := l != nil && len(all) == 0
	var err error
	switch {
	case inherited:
		l, inherited, err = takeOver(ctx, l, s.bind, e.network, a)
	case e.network == "unix":
		l, err = listenSocket(ctx, s.bind, a)
	default:
		l, err = bindTCP(ctx, s.bind, sockets(all))
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", s.bind, err)
	}
	if err := s.allows(l.Addr()); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	socket := &socket{Listener: l, bind: s.bind, inherited: inherited}
	socket.inlineUrgent()
	return socket, nil
}

func sockets(all []*generation) (out []*socket) {
	for _, g := range all {
		out = append(out, g.socket)
	}
	return out
}

// generation returns the current generation, which accepts.
func (e *endpoint) generation() *generation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current
}

// all returns the generations that have connections or accept, the current one first.
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
	return flow.Task{
		Service: serviceNode,
		Name:    e.name,
		Count:   1,
		Restart: flow.Always,
		Vital:   true,
		Doc:     doc,
		Run:     e.run,
	}
}

// run accepts, one generation after the other, until shutdown.
func (e *endpoint) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, e.drop)()
	for {
		g, err := e.nextToServe(ctx)
		if err == nil && ctx.Err() == nil { // if ctx ends now, drop also drops g
			err = g.serve(ctx)
		}
		switch {
		case ctx.Err() != nil:
			e.drop() // includes generations opened since
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

// nextToServe returns the generation to accept for: one that was replaced and has a backlog, or
// else the current one. If a failure has closed the current one, a new one is opened on the same
// address, with the port that was assigned for port 0.
func (e *endpoint) nextToServe(ctx context.Context) (*generation, error) {
	all := e.all()
	for _, g := range all[1:] {
		if g.hasBacklog() {
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
	again := g.settings
	again.bind = g.Addr().String()
	socket, err := e.open(ctx, again, a)
	if err != nil {
		return nil, err
	}
	socket.bind = g.socket.bind
	next := e.newGeneration(g.settings, socket)
	if !e.follow(next, g) {
		return e.nextToServe(ctx) // a reload or shutdown came first
	}
	return next, nil
}

// logAccept logs errors that net/http retries silently, such as too many open files.
func (e *endpoint) logAccept(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		e.f.o.Log.Warn("accept.failed", "listener", e.name, "error", err.Error())
	}
}

// change is a prepared part of a reload. swap applies it and cannot fail; undo discards it. Exactly
// one of them is called.
type change struct{ swap, undo func() }

func (c change) then(next change) change {
	return change{swap: func() { c.swap(); next.swap() }, undo: func() { next.undo(); c.undo() }}
}

// noChange is a change with no effect.
var noChange = change{func() {}, func() {}}

// prepare creates the next generation, on a new socket or on the current one.
func (e *endpoint) prepare(ctx context.Context, s settings, a access) (change, error) {
	now := e.generation()
	if now == nil || now.settings == s {
		return noChange, nil
	}
	if now.socket.bind == s.bind {
		if err := s.allows(now.Addr()); err != nil {
			return change{}, err
		}
		next := e.newGeneration(s, now.socket)
		return change{func() { e.follow(next, nil) }, noChange.undo}, nil
	}
	socket, err := e.open(ctx, s, a)
	if err != nil {
		return change{}, err
	}
	next := e.newGeneration(s, socket)
	return change{func() { e.follow(next, nil) }, func() { _ = next.socket.Close() }}, nil
}

// follow makes next the generation that accepts. If only is not nil, it does so only if only is
// current. It reports whether next is current. Connections already made to the previous generation
// are still admitted there, and each closes after its next answer.
func (e *endpoint) follow(next, only *generation) bool {
	before, follows := e.exchange(next, only)
	switch {
	case follows:
		before.socket.interruptAccept()
	case before.socket != next.socket:
		_ = next.socket.Close()
	}
	return follows
}

// exchange makes next the current generation. The previous one ends under the lock, because run
// must always find it either accepting or with a backlog.
func (e *endpoint) exchange(next, only *generation) (before *generation, follows bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before = e.current
	switch {
	case e.ended || only != nil && only != before:
		return before, false
	case before.socket == next.socket:
		before.end.Store(endHandedOver)
	default:
		before.end.Store(endMoved)
	}
	e.current, e.old = next, append(unfinished(e.old), before)
	return before, true
}

// unfinished returns the generations that have connections or may still admit some.
func unfinished(all []*generation) (out []*generation) {
	for _, g := range all {
		// order matters: an admitted connection is counted before serving becomes false
		if g.serving.Load() || g.conns.Load() > 0 || g.hasBacklog() {
			out = append(out, g)
		}
	}
	return out
}

// prepareAccess opens or closes the socket file for other users before the swap. The map of peers
// excludes them before and after it. It leaves the file of an inherited socket to its socket unit.
func (e *endpoint) prepareAccess(path string, a access) (change, error) {
	e.mu.Lock()
	was, now := e.access, e.current
	e.mu.Unlock()
	if was == a || now == nil || now.socket.inherited && now.socket.bind == path {
		return noChange, nil
	}
	if err := a.openDir(path); err != nil {
		return change{}, err
	}
	if err := os.Chmod(path, a.file); err != nil {
		return change{}, err
	}
	return change{
		swap: func() {
			e.mu.Lock()
			e.access = a
			e.mu.Unlock()
		},
		undo: func() { _ = os.Chmod(path, was.file) },
	}, nil
}

// drop closes every connection.
func (e *endpoint) drop() {
	for _, g := range e.all() {
		_ = g.drop()
	}
}

// shutdown stops accepting, waits until open connections are answered or ctx ends, and closes the
// remaining ones. It returns an error if a handler does not return, but not for a connection
// without a request.
func (e *endpoint) shutdown(ctx context.Context) error {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	all := e.all()
	if len(all) == 0 {
		return nil
	}
	e.answerBacklog(ctx, all[0])
	var err error
	inTime := true
	for _, g := range all {
		inTime = g.http.Shutdown(ctx) == nil && inTime
		err = errors.Join(err, g.socket.Close()) // net/http has closed it if it accepted from it
	}
	if inTime {
		return err
	}
	for _, g := range all {
		err = errors.Join(err, g.drop())
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.f.cutGrace)
	defer cancel()
	if !waitZero(grace, &e.calls) {
		return errors.Join(err, fmt.Errorf("%s: %d calls run on", e.name, e.calls.Load()))
	}
	return err
}

// answerBacklog admits the connections made so far and waits a moment for their requests, because
// net/http discards unread bytes when it shuts down.
func (e *endpoint) answerBacklog(ctx context.Context, g *generation) {
	if g.socket.closed.Load() || !g.stop() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.f.backlogGrace)
	defer cancel()
	select {
	case <-g.admittedAll:
		waitZero(ctx, &e.silent)
	case <-ctx.Done():
	}
}

const (
	cutGrace     = 250 * time.Millisecond // for handlers to return after their context has ended
	backlogGrace = 100 * time.Millisecond // for connected clients to send a request
	pollEvery    = 2 * time.Millisecond
)

// waitZero waits until n is 0 or ctx ends, and reports whether n is 0.
func waitZero(ctx context.Context, n *atomic.Int64) bool {
	//rawchan: stopped at the end of the wait
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
