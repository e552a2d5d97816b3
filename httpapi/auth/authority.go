package auth

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"gopkg.in/macaroon.v2"

	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/httpapi/limit"
)

// Request is a request that a token must permit. Service to IP are known for every request. The
// fields from Tenant on may be unknown ("" or 0); then the engine checks them later with the
// actor's Grant.
type Request struct {
	Method  string
	Path    string // decoded, as the router matched it
	Service string
	Scope   string // "service.verb"; "": any valid token
	Now     time.Time
	IP      netip.Addr // invalid for a peer of the admin socket, or if a proxy does not name it
	Socket  bool       // over the admin socket
	Again   bool       // of an open stream: it takes nothing of the token's rate, and is no guess

	Tenant  string
	Account string
	Asset   string
	Amount  string // minor units, decimal
	Epoch   string
	Signer  string
	Bytes   int64 // of the body
}

// query is a request with the settings that affect its check.
type query struct {
	Request
	skew    time.Duration
	amnesia bool
}

// Config holds the limits of tokens.
type Config struct {
	DefaultTTL    unit.Duration `toml:"default_ttl" reload:"r"`     // of a token minted without a TTL
	MaxTTL        unit.Duration `toml:"max_ttl" reload:"r"`         // longest TTL of a new token
	Rotate        unit.Duration `toml:"rotate" reload:"r"`          // time until the next key replaces a minting key
	ClockSkew     unit.Duration `toml:"clock_skew" reload:"r"`      // tolerated difference of clocks
	MaxTokenBytes int           `toml:"max_token_bytes" reload:"r"` // length of the text
	MaxCaveats    int           `toml:"max_caveats" reload:"r"`
}

// longestTTL bounds MaxTTL, and the lifetime of tokens that Check accepts. So a key can be retired
// and a revocation forgotten after that time.
const longestTTL = 30 * 24 * time.Hour

// Bounds of max_token_bytes and max_caveats, because a token must fit into the head of a request.
const (
	mostTokenBytes = 16384
	mostCaveats    = 256
)

// DefaultConfig returns a TTL of one hour by default and thirty days at most.
func DefaultConfig() Config {
	return Config{
		DefaultTTL: unit.Duration(time.Hour), MaxTTL: unit.Duration(longestTTL), Rotate: unit.Duration(longestTTL),
		ClockSkew: unit.Duration(30 * time.Second), MaxTokenBytes: 4096, MaxCaveats: 64,
	}
}

// Validate joins all errors.
func (c Config) Validate() error {
	return errors.Join(unit.Between("auth.max_ttl", c.MaxTTL, time.Minute, longestTTL),
		unit.Between("auth.default_ttl", c.DefaultTTL, time.Second, c.MaxTTL.D()),
		unit.Between("auth.rotate", c.Rotate, time.Hour, longestTTL),
		unit.Between("auth.clock_skew", c.ClockSkew, 0, MaxSkew),
		unit.Within("auth.max_token_bytes", c.MaxTokenBytes, 512, mostTokenBytes),
		unit.Within("auth.max_caveats", c.MaxCaveats, 8, mostCaveats))
}

// maxRated bounds the number of tokens with a rate of their own that are counted at once.
const maxRated = 16384

// Authority checks and mints tokens. It is safe for concurrent use and never waits.
type Authority struct {
	cfg      atomic.Pointer[Config]
	state    atomic.Pointer[State]
	amnesia  atomic.Bool
	codec    codec
	guard    *guard
	rated    *limit.Keyed[string] // by tid
	failures *failureCounter
	dummy    []byte // replaces unknown keys
	decoy    string // replaces malformed tokens
	verify   func(*macaroon.Macaroon, []byte) ([]string, error)
}

// New returns an Authority without keys; Swap sets them. metrics may be nil.
func New(cfg Config, metrics *obs.Metrics) *Authority {
	a := &Authority{
		codec:    newCodec(),
		guard:    newGuard(),
		rated:    limit.NewKeyed[string](maxRated, 0, 0),
		failures: newFailureCounter(metrics),
		dummy:    make([]byte, keyLen),
		verify:   verifySignature,
	}
	_, _ = rand.Read(a.dummy) // never fails
	a.decoy = newDecoy(a.codec, a.dummy)
	a.SetConfig(cfg)
	a.Swap(NewState(nil, nil, nil, 0))
	return a
}

// SetConfig changes the limits for later calls.
func (a *Authority) SetConfig(cfg Config) { a.cfg.Store(&cfg) }

// SetAmnesia sets whether the node keeps nothing on disk, which some tokens require.
func (a *Authority) SetAmnesia(on bool) { a.amnesia.Store(on) }

// Swap changes the state for later calls.
func (a *Authority) Swap(s *State) { a.state.Store(s) }

// State returns the current state.
func (a *Authority) State() *State { return a.state.Load() }

// Check returns the holder of the token if it is valid and permits the request. Otherwise the error
// is ErrUnauthenticated (no token, or one that is malformed, forged, revoked, or outside its time),
// a *DeniedError, or a *LimitedError: either the address had too many failures, and then only
// tokens that were verified before are accepted from it, or the token exceeds its own rate.
func (a *Authority) Check(token string, r Request) (engines.Actor, error) {
	if token == "" { // cheap, and not a guess
		return engines.Actor{}, a.refuse(&r, &InvalidError{Stage: stageToken, Reason: "no token"})
	}
	cfg, state := a.cfg.Load(), a.state.Load()
	q := query{Request: r, skew: cfg.ClockSkew.D(), amnesia: a.amnesia.Load()}
	if p := cachedPolicy(token, r.Now, cfg, state); p != nil && p.checkValid(&q, state) == nil {
		return a.admit(p, &q) // even if another client at the same address guesses
	}
	if wait := a.guard.wait(&r); wait > 0 {
		a.failures.count(stageIP, &r)
		return engines.Actor{}, &LimitedError{RetryAfter: wait, Stage: stageIP}
	}
	p, fail := a.authenticate(token, r.Now, cfg, state)
	if fail == nil {
		if fail = p.checkValid(&q, state); fail == nil {
			return a.admit(p, &q)
		}
	}
	if !r.Again {
		a.guard.note(&r)
	}
	fail.Scope, fail.Fingerprint = r.Scope, Fingerprint(token)
	return engines.Actor{}, a.refuse(&r, fail)
}

// cachedPolicy returns the policy of a token that was verified before and that authenticate would
// still accept. It computes one hash.
func cachedPolicy(token string, now time.Time, cfg *Config, state *State) *policy {
	if len(token) > cfg.MaxTokenBytes {
		return nil
	}
	p := state.verified.get(token)
	if p == nil || p.ownCaveats() > cfg.MaxCaveats || !p.root.usable(now, cfg.ClockSkew.D()) {
		return nil
	}
	return p
}

// authenticate returns the policy of a genuine token. For any other token it computes one MAC as
// well, whatever is wrong with it.
func (a *Authority) authenticate(token string, now time.Time, cfg *Config, state *State) (*policy, *InvalidError) {
	if p := cachedPolicy(token, now, cfg, state); p != nil {
		return p, nil
	}
	d, err := decode(a.codec, token, cfg.MaxTokenBytes, cfg.MaxCaveats)
	if err != nil {
		return nil, a.refuseGarbled(err)
	}
	root, known := state.root(d.id.Kid, now, cfg.ClockSkew.D())
	if !known {
		root.key = a.dummy
	}
	texts, err := a.verify(d.mac, root.key)
	if err != nil {
		if !known {
			err = fmt.Errorf("unknown key %q", d.id.Kid)
		}
		return nil, &InvalidError{Stage: stageSignature, Reason: err.Error()}
	}
	p := readPolicy(d.id, texts)
	// token may be a part of the head of the request
	p.token, p.fingerprint, p.root = strings.Clone(token), Fingerprint(token), root
	state.verified.put(p)
	return p, nil
}

// refuseGarbled refuses a malformed token in the time that a forged one takes.
func (a *Authority) refuseGarbled(err error) *InvalidError {
	if d, err := decode(a.codec, a.decoy, len(a.decoy), decoyCaveats); err == nil {
		_, _ = a.verify(d.mac, a.dummy)
	}
	return &InvalidError{Stage: stageToken, Reason: err.Error()}
}

// admit checks the caveats of a valid token.
func (a *Authority) admit(p *policy, q *query) (engines.Actor, error) {
	if failed := p.failed(q); len(failed) > 0 {
		a.failures.count(stageCaveat, &q.Request)
		denied := &DeniedError{
			TID:         p.id.TID,
			Kid:         p.id.Kid,
			Tenant:      p.tenant,
			Scope:       q.Scope,
			Fingerprint: p.fingerprint,
		}
		for _, f := range failed {
			denied.Reasons = append(denied.Reasons, f.String())
			if c, err := parseCaveat(f.Caveat); err == nil && !slices.Contains(denied.Caveats, c.key) {
				denied.Caveats = append(denied.Caveats, c.key)
			}
		}
		return engines.Actor{}, denied
	}
	if p.rate > 0 && !q.Again {
		if ok, wait := a.rated.TakeAt(p.id.TID, q.Now, rateOf(p.rate)); !ok {
			a.failures.count(stageRate, &q.Request)
			return engines.Actor{}, &LimitedError{RetryAfter: wait, Stage: stageRate, TID: p.id.TID}
		}
	}
	return p.actor(), nil
}

func (a *Authority) refuse(r *Request, err *InvalidError) error {
	a.failures.count(err.Stage, r)
	return err
}

func verifySignature(m *macaroon.Macaroon, key []byte) ([]string, error) {
	return m.VerifySignature(key, nil)
}

// Decision is the content of a token and whether it permits a request. It is for operators and is
// never sent to the bearer.
type Decision struct {
	Identifier            // as in the token; trustworthy only if authentic
	Authentic   bool      // signed with a key of this node
	Allowed     bool      // Check would permit the request, apart from rates
	Scopes      []string  // the intersection of its scope caveats
	ExpiresAt   time.Time // the earliest expiry in the token
	Fingerprint string
	Failed      []Failed // why it is not permitted
}

// Failed is a caveat that is not met, or another reason.
type Failed struct {
	Caveat string // "" for another reason
	Reason string
}

func (f Failed) String() string {
	if f.Caveat == "" {
		return f.Reason
	}
	return fmt.Sprintf("caveat %q: %s", f.Caveat, f.Reason)
}

// Verify checks a token like Check and lists every failure. It neither updates nor uses the counts
// of Check. It accepts a scope in either form. If r has no service, it is that of the scope.
func (a *Authority) Verify(token string, r Request) Decision {
	r = r.normal()
	cfg, state := a.cfg.Load(), a.state.Load()
	d, err := decode(a.codec, token, cfg.MaxTokenBytes, cfg.MaxCaveats)
	if err != nil {
		return Decision{Failed: []Failed{{Reason: "not a token: " + err.Error()}}}
	}
	p, invalid := a.authenticate(token, r.Now, cfg, state)
	if invalid != nil {
		p = readPolicy(d.id, d.caveats())
	}
	out := Decision{
		Identifier:  p.id,
		Authentic:   invalid == nil,
		Scopes:      p.scopes,
		ExpiresAt:   p.expires,
		Fingerprint: Fingerprint(token),
	}
	q := query{Request: r, skew: cfg.ClockSkew.D(), amnesia: a.amnesia.Load()}
	if invalid != nil {
		out.Failed = append(out.Failed, Failed{Reason: invalid.Stage + ": " + invalid.Reason})
	}
	if err := state.checkRevoked(&p.id, p.tenant); err != nil {
		out.Failed = append(out.Failed, Failed{Reason: err.Error()})
	}
	if p.early(&q) {
		out.Failed = append(out.Failed, Failed{Reason: "issued in the future"})
	}
	out.Failed = append(out.Failed, p.failed(&q)...)
	out.Allowed = len(out.Failed) == 0
	return out
}

// normal returns the request in the form of a route.
func (r Request) normal() Request {
	if scope, err := NormalScope(r.Scope); err == nil {
		r.Scope = scope
		if r.Service == "" {
			r.Service, _, _ = strings.Cut(scope, ".")
		}
	}
	return r
}
