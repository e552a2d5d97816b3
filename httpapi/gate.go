package httpapi

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"
)

// Gate says which requests are let in.
type Gate int32

const (
	GateStarting Gate = iota // bypass routes only
	GateOpen                 // all
	GateDraining             // writes and new streams are refused, reads go on; every answer closes its connection
	GateClosed               // bypass routes only; streams end
)

func (g Gate) String() string {
	return [...]string{"starting", "open", "draining", "closed"}[g]
}

var (
	errStarting = errors.New("node is starting; nothing was done: send it again after Retry-After")
	errDraining = errors.New("node is draining")
)

// gate is read on every request and moved by the lifecycle only.
type gate struct {
	state  atomic.Int32
	since  atomic.Int64  // Unix ns of the first GateDraining or GateClosed, 0 before
	closed chan struct{} // closed at GateClosed: streams watch it
}

func newGate() *gate { return &gate{closed: make(chan struct{})} }

func (g *gate) load() Gate { return Gate(g.state.Load()) }

// set moves the gate. GateClosed is final.
func (g *gate) set(to Gate, now time.Time) {
	for {
		from := g.load()
		if from == GateClosed {
			return
		}
		if g.state.CompareAndSwap(int32(from), int32(to)) {
			break
		}
	}
	if to >= GateDraining {
		g.since.CompareAndSwap(0, now.UnixNano())
	}
	if to == GateClosed {
		close(g.closed)
	}
}

// admit refuses what the gate does not let in.
func (g *gate) admit(c *call) error {
	switch g.load() {
	case GateOpen:
		return nil
	case GateStarting:
		return errStarting
	case GateDraining:
		c.Header().Set("Connection", "close")
		if c.route.passesDrain() {
			return nil
		}
	case GateClosed:
	}
	return errDraining
}

// passesDrain tells whether the route queues and commits nothing: a read, what only shows the node, and the drain
// itself, which may be asked for twice.
func (r *Route) passesDrain() bool {
	switch r.Class {
	case ClassRead:
		return true
	case ClassAdmin:
		return r.Method == http.MethodGet || r.Pattern == patternDrain
	case ClassWrite, ClassBypass, ClassStream, ClassStatic:
	}
	return false
}

// draining tells for how long the node has been draining.
func (g *gate) draining(now time.Time) time.Duration {
	if ns := g.since.Load(); ns != 0 {
		return now.Sub(time.Unix(0, ns))
	}
	return 0
}
