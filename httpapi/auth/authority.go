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

// Request is a request that a token is to allow. The fields below the line are checked where they are given; where one is not known yet,
// "" or 0, the engine checks it later by the actor's Grant.
type Request struct {
	Method  string
	Path    string // decoded, as the router matched it
	Service string
	Scope   string // "service.verb", "" if any valid token will do
	Now     time.Time
	IP      netip.Addr // not valid for a peer of the admin socket, and where a proxy does not name it
	Socket  bool       // over the admin socket

	Tenant  string
	Account string
	Asset   string
	Amount  string // minor units in decimal
	Epoch   string
	Signer  string
	Bytes   int64 // of the body
}

// query is a request with the settings that bear on it.
type query struct {
	Request
	skew    time.Duration
	amnesia bool
}

// Config holds the limits of tokens.
type Config struct {
	DefaultTTL    unit.Duration `toml:"default_ttl" reload:"r"`     // of a token minted without one
	MaxTTL        unit.Duration `toml:"max_ttl" reload:"r"`         // no token is minted for longer
	Rotate        unit.Duration `toml:"rotate" reload:"r"`          // how long a key mints before the next one does
	ClockSkew     unit.Duration `toml:"clock_skew" reload:"r"`      // by how much times may be missed
	MaxTokenBytes int           `toml:"max_token_bytes" reload:"r"` // of the text
	MaxCaveats    int           `toml:"max_caveats" reload:"r"`
}

// longestTTL bounds MaxTTL and the tokens that Check accepts, so that a key can be retired and a revocation forgotten that long after.
const longestTTL = 30 * 24 * time.Hour

// The most that max_token_bytes and max_caveats may be: a token must fit into a request's head.
const (
	mostTokenBytes = 16384
	mostCaveats    = 256
)

// DefaultConfig is one hour by default, thirty days at most.
func DefaultConfig() Config {
	return Config{
		DefaultTTL: unit.Duration(time.Hour), MaxTTL: unit.Duration(longestTTL), Rotate: unit.Duration(longestTTL),
		ClockSkew: unit.Duration(30 * time.Second), MaxTokenBytes: 4096, MaxCaveats: 64,
	}
}

// Validate joins all faults.
func (c Config) Validate() error {
	return errors.Join(
		unit.Between("auth.max_ttl", c.MaxTTL, time.Minute, longestTTL),
		unit.Between("auth.default_ttl", c.DefaultTTL, time.Second, c.MaxTTL.D()),
		unit.Between("auth.rotate", c.Rotate, time.Hour, longestTTL),
		unit.Between("auth.clock_skew", c.ClockSkew, 0, MaxSkew),
		unit.Within("auth.max_token_bytes", c.MaxTokenBytes, 512, mostTokenBytes),
		unit.Within("auth.max_caveats", c.MaxCaveats, 8, mostCaveats),
	)
}

// maxRated bounds how many tokens with a rate of their own are counted at one time: those that are in use.
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
	dummy    []byte // stands in for unknown keys
	decoy    string // stands in for garbled tokens
	verify   func(*macaroon.Macaroon, []byte) ([]string, error)
}

// New makes an Authority without a key: Swap gives it its keys. A nil metrics counts nothing.
func New(cfg Config, metrics *obs.Metrics) *Authority {
	a := &Authority{
		codec: newCodec(), guard: newGuard(), rated: limit.NewKeyed[string](maxRated, 0, 0), failures: newFailureCounter(metrics),
		dummy: make([]byte, keyLen), verify: verifySignature,
	}
	_, _ = rand.Read(a.dummy) // never fails
	a.decoy = newDecoy(a.codec, a.dummy)
	a.SetConfig(cfg)
	a.Swap(NewState(nil, nil, nil, 0))
	return a
}

// SetConfig changes the limits, from the next call on.
func (a *Authority) SetConfig(cfg Config) { a.cfg.Store(&cfg) }

// SetAmnesia sets whether the node keeps nothing on disk, which some tokens ask for.
func (a *Authority) SetAmnesia(on bool) { a.amnesia.Store(on) }

// Swap changes the state, from the next call on.
func (a *Authority) Swap(s *State) { a.state.Store(s) }

// State returns the current state.
func (a *Authority) State() *State { return a.state.Load() }

// Check returns the holder of the token, if it is valid and allows the request. Else the error is ErrUnauthenticated (no token, or one that
// is garbled, forged, revoked, or not in its time), a *DeniedError, or a *LimitedError: too many failures from one address, of whose tokens
// only those verified before are looked at then, or too many requests by the token's own rate.
func (a *Authority) Check(token string, r Request) (engines.Actor, error) {
	if token == "" { // it costs nothing, and is no guess
		return engines.Actor{}, a.refuse(&r, &InvalidError{Stage: stageToken, Reason: "no token"})
	}
	cfg, state := a.cfg.Load(), a.state.Load()
	q := query{Request: r, skew: cfg.ClockSkew.D(), amnesia: a.amnesia.Load()}
	if p := cachedPolicy(token, r.Now, cfg, state); p != nil && p.checkValid(&q, state) == nil {
		return a.admit(p, &q) // also where a neighbour behind the same address guesses
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
	a.guard.note(&r)
	fail.Scope, fail.Fingerprint = r.Scope, Fingerprint(token)
	return engines.Actor{}, a.refuse(&r, fail)
}

// cachedPolicy returns the policy of a token that was verified before, if authenticate would still accept it. It costs one hash.
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

// authenticate returns the policy of a genuine token. For any other, whatever its fault, one MAC is computed.
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
	p.token, p.fingerprint, p.root = strings.Clone(token), Fingerprint(token), root // token may be part of a request's whole head
	state.verified.put(p)
	return p, nil
}

// refuseGarbled refuses a text that is no token, in the time that a forged one takes.
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
		denied := &DeniedError{TID: p.id.TID, Kid: p.id.Kid, Tenant: p.tenant, Scope: q.Scope, Fingerprint: p.fingerprint}
		for _, f := range failed {
			denied.Reasons = append(denied.Reasons, f.String())
			if c, err := parseCaveat(f.Caveat); err == nil && !slices.Contains(denied.Caveats, c.key) {
				denied.Caveats = append(denied.Caveats, c.key)
			}
		}
		return engines.Actor{}, denied
	}
	if p.rate > 0 {
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

// Decision is the content of a token and whether it would allow a request, for operators: its bearer never sees it.
type Decision struct {
	Identifier            // as the token claims, which counts only if it is authentic
	Authentic   bool      // of a key of this node
	Allowed     bool      // Check would let the request pass, unless it comes too soon
	Scopes      []string  // the intersection of its scope caveats
	ExpiresAt   time.Time // the earliest that it names
	Fingerprint string
	Failed      []Failed // why it is not allowed
}

// Failed is one caveat that does not hold, or another fault, and why.
type Failed struct {
	Caveat string // "" for another fault
	Reason string
}

func (f Failed) String() string {
	if f.Caveat == "" {
		return f.Reason
	}
	return fmt.Sprintf("caveat %q: %s", f.Caveat, f.Reason)
}

// Verify checks a token like Check, and lists every failure. It counts nothing, and ignores the counts of Check.
// A scope is taken in either spelling, and implies the service where none is given.
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
		Identifier: p.id, Authentic: invalid == nil, Scopes: p.scopes, ExpiresAt: p.expires, Fingerprint: Fingerprint(token),
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

// normal returns the request as a route would put it.
func (r Request) normal() Request {
	if scope, err := NormalScope(r.Scope); err == nil {
		r.Scope = scope
		if r.Service == "" {
			r.Service, _, _ = strings.Cut(scope, ".")
		}
	}
	return r
}
