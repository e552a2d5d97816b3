package auth

import (
	"net/netip"
	"time"

	"ronbox/httpapi/limit"
)

// How often one address may fail: far more than a person or a client that lost its token, and nothing to one that guesses.
const (
	failuresPerSecond = 10
	failuresBurst     = 20
	maxFailing        = 65536 // addresses remembered, about 6 MB
)

// guard keeps those who fail too often from having tokens verified. Who does not fail is never counted.
type guard struct {
	failures *limit.Keyed[netip.Addr]
}

func newGuard() *guard {
	return &guard{failures: limit.NewKeyed[netip.Addr](maxFailing, failuresPerSecond, failuresBurst)}
}

// closed is for how long nothing from who sent r is looked at, 0 if it is.
func (g *guard) closed(r *Request) time.Duration {
	if r.Socket {
		return 0
	}
	_, wait := g.failures.Peek(limit.Network(r.IP), r.Now)
	return wait
}

// failed counts one failure. Peers of the admin socket are not counted: they are known by their uid.
func (g *guard) failed(r *Request) {
	if !r.Socket {
		g.failures.Take(limit.Network(r.IP), r.Now)
	}
}
