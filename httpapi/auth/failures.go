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

// ErrUnauthenticated is returned, as an *InvalidError, when there is no valid token: answer 401.
var ErrUnauthenticated = errors.New("auth: not authenticated")

// The stages at which a request fails, as auth_failures_total counts them.
const (
	stageToken     = "token"     // not a token
	stageSignature = "signature" // not of a key of this node
	stageRevoked   = "revoked"
	stageTime      = "time"
	stageCaveat    = "caveat" // valid, and does not allow this
	stageIP        = "ip"     // not even looked at
	stageRate      = "rate"   // too often, by its own caveat
)

// InvalidError holds for the log why a token is not valid. Its text is that of ErrUnauthenticated.
type InvalidError struct {
	Stage            string // "token", "signature", "revoked" or "time"
	Reason           string
	TID, Kid, Tenant string // "" unless the MAC was right
	Scope            string // that was asked for
	Fingerprint      string // "" without a token
}

func (e *InvalidError) Error() string { return ErrUnauthenticated.Error() }

// Is makes the error ErrUnauthenticated.
func (e *InvalidError) Is(target error) bool { return target == ErrUnauthenticated }

// DeniedError is returned when the token is valid but does not allow this: answer 403. All but Scope and Caveats is for the log.
type DeniedError struct {
	TID, Kid, Tenant string
	Scope            string // that was asked for
	Reasons          []string
	Caveats          []string // kinds of those that fail, which the holder may know
	Fingerprint      string
}

func (e *DeniedError) Error() string { return "auth: not allowed" }

// LimitedError is returned when the request comes too soon: answer 429. It reveals nothing of the token.
type LimitedError struct {
	RetryAfter time.Duration
	Stage      string // "ip" after too many failures from one address, "rate" by the token's own caveat
	TID        string // "" unless Stage is "rate"
}

func (e *LimitedError) Error() string { return "auth: too many requests" }

// ErrSpec is returned when a token cannot be minted or narrowed as asked.
var ErrSpec = errors.New("auth: cannot make this token")

func specErr(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrSpec, fmt.Errorf(format, args...))
}

// How often one address may fail: far more than a person or a client that lost its token does, and far too little for guessing.
const (
	failuresPerSecond = 10
	failuresBurst     = 20
	maxFailing        = 65536 // addresses remembered, about 6 MB
)

// guard limits failures by address: past the limit no further token from it is verified. Success is never counted.
type guard struct {
	failures *limit.Keyed[netip.Addr]
}

func newGuard() *guard {
	return &guard{failures: limit.NewKeyed[netip.Addr](maxFailing, failuresPerSecond, failuresBurst)}
}

// wait returns for how long no new token from the address of r is looked at, 0 if one is.
func (g *guard) wait(r *Request) time.Duration {
	if r.Socket {
		return 0
	}
	_, wait := g.failures.Peek(limit.Network(r.IP), r.Now)
	return wait
}

// note counts one failure. Peers of the admin socket are not counted: they are known by their uid.
func (g *guard) note(r *Request) {
	if !r.Socket {
		g.failures.Take(limit.Network(r.IP), r.Now)
	}
}

// maxTallied bounds the series of auth_failures_total: seven stages over the scopes of all services, on two surfaces.
const maxFailureSeries = 1024

// failureCounter counts failures. Scopes come from the table of routes; if there were ever more than fit, the rest is one scope, "other".
type failureCounter struct {
	metrics *obs.Metrics
	mu      sync.Mutex
	series  map[failure]func(int) // guarded by mu
}

type failure struct{ service, stage, scope, surface string }

func newFailureCounter(m *obs.Metrics) *failureCounter {
	return &failureCounter{metrics: m, series: make(map[failure]func(int))}
}

func (t *failureCounter) count(stage string, r *Request) {
	f := failure{service: r.Service, stage: stage, scope: r.Scope, surface: "tcp"}
	if r.Socket {
		f.surface = "uds"
	}
	t.counter(f)(1)
}

func (t *failureCounter) counter(f failure) func(int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if add, ok := t.series[f]; ok {
		return add
	}
	if len(t.series) >= maxFailureSeries {
		f.service, f.scope = "node", "other"
	}
	add := t.metrics.Counter("auth_failures_total", f.service, "stage", f.stage, "scope", f.scope, "surface", f.surface)
	if len(t.series) < maxFailureSeries {
		t.series[f] = add
	}
	return add
}
