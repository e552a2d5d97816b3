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

// endpoint is one address and the generations of servers behind it, of which the last accepts.
type endpoint struct {
	f       *Front
	name    string // of its task
	network string // "tcp" or "unix"
	conns   *connTable
	calls   atomic.Int64           // handlers running
	silent  atomic.Int64           // connections without a request yet
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
	rejectReserve = "reserve" // was silent in a reserved slot that another needed
)

func (f *Front) newEndpoint(name, network string, max limits) *endpoint {
	m := f.o.Metrics
	e := &endpoint{
		f: f, name: name, network: network, conns: newConnTable(f.o.Catalog, max), rejects: map[string]func(int){},
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
		s.inlineUrgent()
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
	s.inlineUrgent()
	return s, nil
}

func sockets(all []*generation) (out []*socket) {
	for _, g := range all {
		out = append(out, g.socket)
	}
	return out
}

// generation returns the one that accepts.
func (e *endpoint) generation() *generation {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.current
}

// all returns the generations that have something to finish, the one that accepts first.
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
	return flow.Task{Service: serviceNode, Name: e.name, Count: 1, Restart: flow.Always, Vital: true, Doc: doc, Run: e.run}
}

// run accepts, one generation after the other, until shutdown.
func (e *endpoint) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, e.drop)()
	for {
		g, err := e.nextToServe(ctx)
		if err == nil && ctx.Err() == nil { // if it ends from now on, g is one of those that are dropped
			err = g.serve(ctx)
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

// nextToServe returns the generation to accept for: one that was moved from and has connections waiting, else the current
// one. Once a failure has closed that one, a new one comes back on its address, which is the port that 0 was given.
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
	socket, err := e.open(ctx, g.Addr().String(), a)
	if err != nil {
		return nil, err
	}
	socket.bind = g.socket.bind
	again := e.newGeneration(g.settings, socket)
	if !e.follow(again, g) {
		return e.nextToServe(ctx) // a reload, or the end, came first
	}
	return again, nil
}

// logAccept logs errors that net/http retries silently, such as too many open files.
func (e *endpoint) logAccept(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		e.f.o.Log.Warn("accept.failed", "listener", e.name, "error", err.Error())
	}
}

// change is what one part of a reload has prepared: swap makes it current and cannot fail, undo releases it. Exactly one
// of them is called.
type change struct{ swap, undo func() }

func (c change) then(next change) change {
	return change{
		swap: func() { c.swap(); next.swap() },
		undo: func() { next.undo(); c.undo() },
	}
}

// noChange is a part of a reload with nothing to do.
var noChange = change{func() {}, func() {}}

// prepare makes the generation that follows, on a new socket or on the one in use.
func (e *endpoint) prepare(ctx context.Context, s settings, a access) (change, error) {
	now := e.generation()
	if now == nil || now.settings == s {
		return noChange, nil
	}
	if now.socket.bind == s.bind {
		next := e.newGeneration(s, now.socket)
		return change{func() { e.follow(next, nil) }, noChange.undo}, nil
	}
	socket, err := e.open(ctx, s.bind, a)
	if err != nil {
		return change{}, err
	}
	next := e.newGeneration(s, socket)
	return change{func() { e.follow(next, nil) }, func() { _ = next.socket.Close() }}, nil
}

// follow lets next accept from now on, after the current one, which has to be only unless that is nil; it reports whether
// next does. Connections already made to the one before are still admitted there, and each of its connections ends with
// its next answer.
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

// exchange makes next the current generation. The one before ends under the lock: run, which looks for one with a backlog,
// must not find it neither accepting nor with a backlog.
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

// unfinished returns the generations that have connections or may yet admit some.
func unfinished(all []*generation) (out []*generation) {
	for _, g := range all {
		if g.serving.Load() || g.conns.Load() > 0 || g.hasBacklog() { // in this order: an admitted connection is counted before serving ends
			out = append(out, g)
		}
	}
	return out
}

// prepareAccess opens or closes the socket file to others, before the swap: until then the map of peers keeps them out,
// and after it. The file of an inherited socket is its socket unit's.
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

// drop cuts every connection.
func (e *endpoint) drop() {
	for _, g := range e.all() {
		_ = g.drop()
	}
}

// shutdown stops accepting, lets open connections be answered until ctx ends, then cuts them. Only a handler that runs on
// even so is an error; a connection that never asked is not.
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
		err = errors.Join(err, g.socket.Close()) // net/http has closed it if it has accepted from it
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

// answerBacklog admits the connections made by now and waits a moment for the request of each: once net/http shuts down it
// drops bytes that were sent and not read.
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
	cutGrace     = 250 * time.Millisecond // for handlers whose context has ended to return
	backlogGrace = 100 * time.Millisecond // for connected clients to ask
	pollEvery    = 2 * time.Millisecond
)

// waitZero waits for n to come down to 0, and reports whether it did before ctx ended.
func waitZero(ctx context.Context, n *atomic.Int64) bool {
	//rawchan: it ends with the wait
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
