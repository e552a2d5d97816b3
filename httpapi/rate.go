package httpapi

import (
	"math/rand/v2"
	"strconv"
	"time"

	"ronbox/httpapi/limit"
)

// limitRate takes a token of the caller's network, which a peer of the socket has not, then one of the service's bucket.
// A network that asks for too much is refused by its own share, before it can empty the bucket of all. Clients whom a
// proxy does not tell clearly share one.
func limitRate(s *Server, b *bound, next handler) handler {
	sv := s.services[b.route.Service]
	bucket, share := sv.reads, sv.readShare
	if b.route.writes() {
		bucket, share = sv.writes, sv.writeShare
	}
	return func(c *call) error {
		if !c.peer.Socket {
			from := limit.Network(c.peer.Addr)
			if err := take(share, from, c.started); err != nil {
				c.rests = true
				return err
			}
			if err := take(sv.byIP, from, c.started); err != nil {
				return err
			}
		}
		if ok, wait := bucket.Take(c.started); !ok {
			return &rateError{wait}
		}
		return next(c)
	}
}

// shareOf is how much of a service's rate one network may take: half of it, rounded up, so that a third that asks for little
// gets nearly all of it beside two that ask for all they can get. One that is alone has, at the defaults, 2,500 reads and 250
// writes of the registry a second: far more than people and what they run ask for.
func shareOf(n int) int { return (n + 1) / 2 }

// burstOf is how many reads of a share one network may make at once: those of a twentieth of a second, or of a page with all it
// links to. What a flood asks at once keeps a core from all others for as long.
func burstOf(share int) int { return min(share, max(64, share/20)) }

// floodRest is how long a connection rests once its network has taken its share: the 256 that one may have ask 640 times a
// second then, which costs a twentieth of a core. Give or take a half, lest they all come back at once.
const floodRest = 400 * time.Millisecond

// rest sends the answer and keeps the connection from being asked on for a moment. The call is over for every limit.
func (s *Server) rest(c *call) {
	if c.control().Flush() != nil {
		return
	}
	pause := time.NewTimer(floodRest/2 + rand.N(floodRest))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-c.r.Context().Done():
	case <-s.gate.closed:
	}
}

// limitCaller takes a token of who the token says is calling. It stands behind auth, which alone knows.
func limitCaller(s *Server, b *bound, next handler) handler {
	sv, tells := s.services[b.route.Service], b.route.Service == serviceWallet
	return func(c *call) error {
		if t := c.actor.Tenant; t != "" {
			if err := take(sv.byTenant, t, c.started); err != nil {
				return err
			}
		}
		if p := c.actor.Principal; p != "" {
			ok, wait, left, limited := sv.byName.TakeLeft(p, c.started)
			if tells && limited {
				c.tellRate(left)
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

func (c *call) tellRate(left limit.Left) {
	v := strconv.AppendInt(append(make([]byte, 0, 48), "limit="...), int64(left.Burst), 10)
	v = strconv.AppendInt(append(v, ", remaining="...), int64(left.Tokens), 10)
	v = strconv.AppendInt(append(v, ", reset="...), int64((left.Full+time.Second-1)/time.Second), 10)
	c.set(rateHeader, string(v))
}

func take[K comparable](t *limit.Keyed[K], key K, now time.Time) error {
	if ok, wait := t.Take(key, now); !ok {
		return &rateError{wait}
	}
	return nil
}
