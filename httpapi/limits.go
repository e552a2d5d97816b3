package httpapi

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/limit"
)

// Gate determines which requests are admitted.
type Gate int32

const (
	GateStarting Gate = iota // bypass routes only
	GateOpen                 // all requests
	GatePredrain             // all requests; this node tells balancers that it is not ready
	GateDraining             // no writes and new streams; every answer closes its connection
	GateClosed               // bypass routes only; streams end
)

func (g Gate) String() string {
	return [...]string{"starting", "open", "predrain", "draining", "closed"}[g]
}

var (
	errStarting = errors.New("the node is starting, and nothing was done")
	errDraining = errors.New("node is draining")
	errInflight = errors.New("too many requests in flight")
)

// gate is read for every request. Only the lifecycle changes it.
type gate struct {
	state  atomic.Int32
	since  atomic.Int64    // time of the first GateDraining or GateClosed in Unix ns; 0: none yet
	ctx    context.Context // ends at GateClosed
	end    context.CancelFunc
	closed <-chan struct{} // of ctx; ends streams
}

func newGate() *gate {
	g := &gate{}
	g.ctx, g.end = context.WithCancel(context.Background())
	g.closed = g.ctx.Done()
	return g
}

func (g *gate) load() Gate { return Gate(g.state.Load()) }

// set changes the gate. GateClosed is final.
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
		g.end()
	}
}

// draining returns the time since the drain began.
func (g *gate) draining(now time.Time) time.Duration {
	if ns := g.since.Load(); ns != 0 {
		return now.Sub(time.Unix(0, ns))
	}
	return 0
}

// endings counts the requests that ended while the node drained.
type endings struct{ finished, cancelled, aborted atomic.Int64 }

// ended counts a request that the gate had admitted. A stream that ends because the gate is closed
// counts as cancelled, and a request whose outcome is unknown as aborted.
func (s *service) ended(c *Request) {
	switch {
	case c.reason == ReasonDraining: // nothing was begun
	case c.reason == ReasonCommitUnsure:
		s.endings.aborted.Add(1)
	case c.reason == ReasonCanceled, c.route.Class == ClassStream && c.server.ended():
		s.endings.cancelled.Add(1)
	default:
		s.endings.finished.Add(1)
	}
}

// KindRequest is the kind of the requests of a service in Endings.
const KindRequest = "request"

// Endings returns how the requests of every service ended since the gate began to drain. With cut,
// requests that still run count as aborted. Services without such requests are left out.
func (s *Server) Endings(cut bool) (out []flow.Ending) {
	for name, sv := range s.services {
		of := &sv.endings
		e := flow.Ending{
			Service:   name,
			Kind:      KindRequest,
			Finished:  int(of.finished.Load()),
			Cancelled: int(of.cancelled.Load()),
			Aborted:   int(of.aborted.Load()),
		}
		if cut {
			e.Aborted += int(sv.inflight.n.Load()) + int(sv.streams.count())
		}
		if e.Finished+e.Cancelled+e.Aborted > 0 {
			out = append(out, e)
		}
	}
	return out
}

// errDamaged refuses the requests of a service if its state in the file is unreadable. It does not
// name the row; the log and the readiness key do.
var errDamaged = errors.New("the data of this service is damaged")

// ShutOut refuses all later requests of a service, because its state is unreadable. Other services
// continue.
func (s *Server) ShutOut(service string) { s.services[service].damaged.Store(true) }

// passGate refuses requests that the gate does not admit, and all requests of a service that is
// shut out.
func passGate(s *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		if b.service.damaged.Load() {
			return errDamaged
		}
		switch s.gate.load() {
		case GateOpen, GatePredrain:
			return next(c)
		case GateStarting:
			return errStarting
		case GateDraining:
			c.Header().Set("Connection", "close")
			if c.route.passesDrain() {
				return next(c)
			}
		case GateClosed:
		}
		return errDraining
	}
}

// limiter bounds the number of running requests. It never waits: it refuses requests beyond the
// bound.
type limiter struct {
	max atomic.Int64
	n   atomic.Int64
}

func newLimiter(limit int) *limiter {
	l := &limiter{}
	l.max.Store(int64(limit))
	return l
}

// acquire takes a slot, if there is one. It does not take one temporarily, because that could make
// another request fail.
func (l *limiter) acquire() bool {
	for {
		n := l.n.Load()
		if n >= l.max.Load() {
			return false
		}
		if l.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *limiter) release() { l.n.Add(-1) }

func (l *limiter) around(next Handler) Handler {
	return func(c *Request) error {
		if !l.acquire() {
			return errInflight
		}
		defer l.release()
		return next(c)
	}
}

// limitBypass bounds requests of routes without other limits.
func limitBypass(s *Server, _ *boundRoute, next Handler) Handler { return s.bypass.around(next) }

// limitInflight takes a slot of the service for the duration of the request, and one of its network
// if the service has a limit per network. Peers of the socket have no network.
func limitInflight(_ *Server, b *boundRoute, next Handler) Handler {
	within, networks := b.service.inflight.around(next), b.service.networks
	return func(c *Request) error {
		most := c.service.limits.Load().NetworkInflight
		if most == 0 || c.peer.Socket {
			return within(c)
		}
		if !networks.acquire(c.peer, StreamLimits{Max: math.MaxInt, PerNetwork: most}) {
			return errInflight
		}
		defer networks.release(c.peer)
		return within(c)
	}
}

// rateError is returned if a bucket is empty. It holds the time until the next token.
type rateError struct{ wait time.Duration }

func (e *rateError) Error() string { return "too many requests a second" }

// tokenWait returns the time until the next token of the bucket that refused.
func tokenWait(err error) time.Duration {
	if empty, ok := errors.AsType[*rateError](err); ok {
		return empty.wait
	}
	if failed, ok := errors.AsType[*auth.LimitedError](err); ok {
		return failed.RetryAfter
	}
	return 0
}

// limitRate takes a token of the caller's network, unless it is a peer of the socket, and then one
// of the service's bucket. The share of a network is exhausted before it can empty the common
// bucket. Clients that a proxy does not name clearly share one network. An absent limit costs
// nothing.
func limitRate(_ *Server, b *boundRoute, next Handler) Handler {
	if b.route.Writes() {
		return limitWrites(b.service, next)
	}
	sv := b.service
	return func(c *Request) error {
		if sv.limits.Load().ReadRPS == 0 {
			return next(c)
		}
		if !c.peer.Socket {
			if err := take(sv.readShare, limit.Network(c.peer.Addr), c.started); err != nil {
				c.rests = true
				return err
			}
		}
		if ok, wait := sv.reads.Take(c.started); !ok {
			return &rateError{wait}
		}
		return next(c)
	}
}

func limitWrites(sv *service, next Handler) Handler {
	return func(c *Request) error {
		if !c.peer.Socket {
			from := limit.Network(c.peer.Addr)
			if err := take(sv.writeShare, from, c.started); err != nil {
				c.rests = true
				return err
			}
			if err := take(sv.byIP, from, c.started); err != nil {
				return err
			}
		}
		if ok, wait := sv.writes.Take(c.started); !ok {
			return &rateError{wait}
		}
		return next(c)
	}
}

func take[K comparable](t *limit.Keyed[K], key K, now time.Time) error {
	if ok, wait := t.Take(key, now); !ok {
		return &rateError{wait}
	}
	return nil
}

// rest sends the answer and delays the next request on the connection, by a random time so that
// delayed clients do not come back together. The request holds no limit meanwhile.
func (s *Server) rest(c *Request) {
	if c.Flush() != nil {
		return
	}
	d := c.service.limits.Load().rest()
	pause := time.NewTimer(d/2 + rand.N(d))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-c.r.Context().Done():
	case <-s.gate.closed:
	}
}

// limitCaller takes a token of the caller named by the request's token. It is a stage after
// authorize.
func limitCaller(_ *Server, b *boundRoute, next Handler) Handler {
	sv := b.service
	return func(c *Request) error {
		if t := c.actor.Tenant; t != "" {
			if err := take(sv.byTenant, t, c.started); err != nil {
				return err
			}
		}
		if p := c.actor.Principal; p != "" {
			ok, wait, left, limited := sv.byName.TakeLeft(p, c.started)
			if sv.RateHeader && limited {
				c.setRate(left)
			}
			if !ok {
				return &rateError{wait}
			}
		}
		return next(c)
	}
}

// rateHeader is the single header with the state of the caller's own rate. With one header an
// answer has at most eight, which fit the initial size of their map. Growing the map costs a tenth
// of a read.
const rateHeader = "Ratelimit"

func (r *Request) setRate(left limit.Left) {
	v := strconv.AppendInt(append(make([]byte, 0, 48), "limit="...), int64(left.Burst), 10)
	v = strconv.AppendInt(append(v, ", remaining="...), int64(left.Tokens), 10)
	v = strconv.AppendInt(append(v, ", reset="...), int64((left.Full+time.Second-1)/time.Second), 10)
	r.Set(rateHeader, string(v))
}
