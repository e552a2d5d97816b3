package httpapi

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/limit"
)

// Gate decides which requests are admitted.
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
	errInflight = errors.New("too many requests in flight; nothing was begun: send it again after Retry-After")
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

// draining is how long the node has been draining.
func (g *gate) draining(now time.Time) time.Duration {
	if ns := g.since.Load(); ns != 0 {
		return now.Sub(time.Unix(0, ns))
	}
	return 0
}

// errDamaged refuses the requests of a service whose state cannot be read from the file. It does not name the row: anonymous callers
// read it. The log and the readiness key do.
var errDamaged = errors.New("the data of this service is damaged; `ronbox db verify` names the row, `ronbox db restore` brings a snapshot back")

// ShutOut has every later request of a service refused, because its state cannot be read. Other services go on.
func (s *Server) ShutOut(service string) { s.services[service].damaged.Store(true) }

// passGate refuses what the gate does not admit, and every request of a service that is shut out.
func passGate(s *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		if b.service.damaged.Load() {
			return errDamaged
		}
		switch s.gate.load() {
		case GateOpen:
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

// limiter bounds how many requests are inside at once. It never waits: one that finds it full is refused.
type limiter struct {
	max atomic.Int64
	n   atomic.Int64
}

func newLimiter(limit int) *limiter {
	l := &limiter{}
	l.max.Store(int64(limit))
	return l
}

// acquire takes a slot. A request that is refused takes none, not even for a moment: it could be the one that another has
// just released.
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

// limitBypass bounds the requests that nothing else bounds.
func limitBypass(s *Server, _ *boundRoute, next Handler) Handler { return s.bypass.around(next) }

// limitInflight holds one of the service's slots while the request runs, and one of its network's if the service has a limit per network. Peers of
// the socket have no network.
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

// rateError says that a bucket is empty, and when its next token comes.
type rateError struct{ wait time.Duration }

func (e *rateError) Error() string { return "too many requests a second" }

// tokenWait is how long the bucket that refused takes to its next token.
func tokenWait(err error) time.Duration {
	if empty, ok := errors.AsType[*rateError](err); ok {
		return empty.wait
	}
	if failed, ok := errors.AsType[*auth.LimitedError](err); ok {
		return failed.RetryAfter
	}
	return 0
}

// limitRate takes a token of the caller's network, which a peer of the socket has not, then one of the service's bucket.
// A network that asks for too much is refused by its own share, before it can empty the bucket of all. Clients whom a
// proxy does not name clearly share one. What has no limit costs nothing.
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

// rest sends the answer and keeps the connection from being asked on for a moment, give or take a half, lest all come back at
// once. The request is over for every limit.
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

// limitCaller takes a token of the caller whom the token of the request names. It stands behind auth, which alone knows.
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
			if sv.TellsRate && limited {
				c.setRate(left)
			}
			if !ok {
				return &rateError{wait}
			}
		}
		return next(c)
	}
}

// rateHeader tells a caller how much of its own rate is left, all in one: an answer has at most eight headers then, which their map
// holds before it grows. Growing costs a tenth of a read.
const rateHeader = "Ratelimit"

func (r *Request) setRate(left limit.Left) {
	v := strconv.AppendInt(append(make([]byte, 0, 48), "limit="...), int64(left.Burst), 10)
	v = strconv.AppendInt(append(v, ", remaining="...), int64(left.Tokens), 10)
	v = strconv.AppendInt(append(v, ", reset="...), int64((left.Full+time.Second-1)/time.Second), 10)
	r.Set(rateHeader, string(v))
}
