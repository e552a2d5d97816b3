package httpapi

import (
	"fmt"
	"runtime/debug"
)

// A stage is one ring around the handler of a route. It is fitted once, when the route is bound, so that a route pays
// only for the stages that concern it.
type stage struct {
	name string
	on   func(*Route) bool
	wrap func(s *Server, b *bound, next handler) handler
}

// stages are the rings, outermost first. The order is the contract: what counts lies outside what can fail, what
// refuses early costs little, who may not come in takes no token of those who may, and no body is read before it is
// known who sends it. Judging a token comes cheap to the node: who shows bad ones is held off by address.
func stages() []stage {
	return []stage{
		{"corr_id", every, correlate},
		{"headers", every, harden},
		{"cors", shared, share},
		{"access", every, account},
		{"recover", every, recovered},
		{"shape", every, checkShape},
		{"bypass", bypassing, limitBypass},
		{"deprecated", deprecated, announce},
		{"gate", guarded, passGate},
		{"deadline", guarded, limitTime},
		{"inflight", takesPlace, limitInflight},
		{"auth", protected, authorize},
		{"rate", guarded, limitRate},
		{"caller", protected, limitCaller},
		{"content", guarded, checkContent},
		{"body", takesBody, readBody},
		{"query", matched, checkQuery},
	}
}

func every(*Route) bool        { return true }
func matched(r *Route) bool    { return r.Pattern != unmatched }
func bypassing(r *Route) bool  { return r.Class == ClassBypass }
func deprecated(r *Route) bool { return r.Deprecated != nil }
func guarded(r *Route) bool    { return r.Class != ClassBypass && r.Class != ClassStatic }
func takesPlace(r *Route) bool { return guarded(r) && r.Class != ClassStream }
func protected(r *Route) bool  { return guarded(r) && (r.Scope != "" || len(r.AnyOf) > 0) }
func takesBody(r *Route) bool  { return guarded(r) && r.Body != NoBody }

// fit wraps the handler of b in its stages.
func (s *Server) fit(b *bound) handler {
	h, all := b.route.handle, stages()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].on(b.route) {
			h = all[i].wrap(s, b, h)
		}
	}
	return h
}

// correlate keeps the caller's correlation id when it is a ULID or a UUID, else makes one, and echoes it.
func correlate(_ *Server, _ *bound, next handler) handler {
	return func(c *call) error {
		if c.corrID = c.r.Header.Get(corrHeader); !isULID(c.corrID) && !isUUID(c.corrID) {
			c.corrID = newCorrID(c.started)
		}
		c.set(corrHeader, c.corrID)
		return next(c)
	}
}

// panicError is a panic of a handler, told as an internal error and logged with its stack once.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// recovered turns a panic into an error, so that it is told, counted and logged like any other.
func recovered(_ *Server, _ *bound, next handler) handler {
	return func(c *call) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = &panicError{value: v, stack: debug.Stack()}
			}
		}()
		return next(c)
	}
}

// limitBypass bounds the requests that nothing else bounds.
func limitBypass(s *Server, _ *bound, next handler) handler { return s.bypass.around(next) }

// limitInflight holds one of the service's places while the call runs.
func limitInflight(s *Server, b *bound, next handler) handler {
	return s.services[b.route.Service].inflight.around(next)
}

// passGate asks the drain gate.
func passGate(s *Server, _ *bound, next handler) handler {
	return func(c *call) error {
		if err := s.gate.admit(c); err != nil {
			return err
		}
		return next(c)
	}
}
