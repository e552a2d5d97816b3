package auth

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"ronbox/appliance/obs"
	"ronbox/httpapi/limit"
)

// ErrUnauthenticated is returned, as an *InvalidError, without a valid token: status 401.
var ErrUnauthenticated = errors.New("auth: not authenticated")

// The stages at which a request can fail: a label of auth_failures_total.
const (
	stageToken     = "token"     // malformed
	stageSignature = "signature" // not signed by a key of this node
	stageRevoked   = "revoked"
	stageTime      = "time"
	stageCaveat    = "caveat" // valid but does not permit the request
	stageIP        = "ip"     // too many failures from the address; not checked
	stageRate      = "rate"   // over the token's own rate
)

// InvalidError holds the reason why a token is not valid, for the log. Its text is that of
// ErrUnauthenticated.
type InvalidError struct {
	Stage            string // "token", "signature", "revoked" or "time"
	Reason           string
	TID, Kid, Tenant string // "" unless the MAC was verified
	Scope            string // the required scope
	Fingerprint      string // "" without a token
}

func (e *InvalidError) Error() string { return ErrUnauthenticated.Error() }

// Is reports whether target is ErrUnauthenticated.
func (e *InvalidError) Is(target error) bool { return target == ErrUnauthenticated }

// DeniedError is returned if a valid token does not permit the request: status 403. All fields
// except Scope and Caveats are for the log.
type DeniedError struct {
	TID, Kid, Tenant string
	Scope            string // the required scope
	Reasons          []string
	Caveats          []string // keys of the caveats that are not met; the holder may see them
	Fingerprint      string
}

func (e *DeniedError) Error() string { return "auth: not allowed" }

// LimitedError is returned if a request exceeds a rate: status 429. It reveals nothing about the
// token.
type LimitedError struct {
	RetryAfter time.Duration
	Stage      string // "ip" for failures of the address, "rate" for the token's own rate
	TID        string // "" unless Stage is "rate"
}

func (e *LimitedError) Error() string { return "auth: too many requests" }

// ErrSpec is returned for a token that cannot be minted or restricted as requested.
var ErrSpec = errors.New("auth: cannot make this token")

func specErr(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrSpec, fmt.Errorf(format, args...))
}

// The permitted rate of failures of one address: much more than honest clients cause, and much less
// than guessing needs.
const (
	failuresPerSecond = 10
	failuresBurst     = 20
	maxFailing        = 65536 // remembered addresses, about 6 MB
)

// guard limits failures by address. Beyond the limit no further token from the address is verified.
// Successes are not counted.
type guard struct {
	failures *limit.Keyed[netip.Addr]
}

func newGuard() *guard {
	return &guard{failures: limit.NewKeyed[netip.Addr](maxFailing, failuresPerSecond, failuresBurst)}
}

// wait returns the time until new tokens from the address of r are verified again, or 0.
func (g *guard) wait(r *Request) time.Duration {
	if r.Socket {
		return 0
	}
	_, wait := g.failures.Peek(limit.Network(r.IP), r.Now)
	return wait
}

// note counts one failure. Peers of the admin socket are not counted, because their uid identifies
// them.
func (g *guard) note(r *Request) {
	if !r.Socket {
		g.failures.Take(limit.Network(r.IP), r.Now)
	}
}

// maxFailureSeries bounds the series of auth_failures_total: seven stages with the scopes of all
// services on two surfaces.
const maxFailureSeries = 1024

// failureCounter counts failures. Scopes come from the table of routes. If there are more than the
// bound, the others are counted as scope "other".
type failureCounter struct {
	metrics *obs.Metrics
	mu      sync.Mutex           // a leaf
	series  map[failure]struct{} // guarded by mu
}

type failure struct{ service, stage, scope, surface string }

func newFailureCounter(m *obs.Metrics) *failureCounter {
	return &failureCounter{metrics: m, series: make(map[failure]struct{})}
}

func (t *failureCounter) count(stage string, r *Request) {
	f := failure{service: r.Service, stage: stage, scope: r.Scope, surface: "tcp"}
	if r.Socket {
		f.surface = "uds"
	}
	if !t.admit(f) {
		f.service, f.scope = "node", "other"
	}
	t.metrics.Counter("auth_failures_total", f.service, "stage", f.stage, "scope", f.scope, "surface", f.surface)(1)
}

// admit reports whether f has a series of its own.
func (t *failureCounter) admit(f failure) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.series) < maxFailureSeries {
		t.series[f] = struct{}{}
	}
	_, known := t.series[f]
	return known
}
