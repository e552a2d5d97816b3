package auth

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"gopkg.in/macaroon.v2"

	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/httpapi/limit"
)

// maxRated bounds how many tokens with a rate of their own are counted at one time: those that are in use.
const maxRated = 16384

// Authority checks and mints tokens. It is safe for concurrent use and never waits.
type Authority struct {
	cfg     atomic.Pointer[Config]
	state   atomic.Pointer[State]
	amnesia atomic.Bool
	codec   codec
	guard   *guard
	rated   *limit.Keyed[string] // by tid
	tally   *tally
	dummy   []byte // stands in for keys that are not there
	decoy   string // stands in for tokens that are none
	verify  func(*macaroon.Macaroon, []byte) ([]string, error)
}

// New makes an Authority that knows no key yet: Swap gives it its keys. A nil metrics counts nothing.
func New(cfg Config, metrics *obs.Metrics) *Authority {
	a := &Authority{
		codec: newCodec(), guard: newGuard(), rated: limit.NewKeyed[string](maxRated, 0, 0), tally: newTally(metrics),
		dummy: make([]byte, keyLen), verify: verifySignature,
	}
	_, _ = rand.Read(a.dummy) // never fails
	a.decoy = newDecoy(a.codec, a.dummy)
	a.SetConfig(cfg)
	a.Swap(NewState(nil, nil, nil, 0))
	return a
}

// SetConfig takes other limits from the next call on.
func (a *Authority) SetConfig(cfg Config) { a.cfg.Store(&cfg) }

// SetAmnesia says whether the node keeps nothing on disk, which some tokens ask for.
func (a *Authority) SetAmnesia(on bool) { a.amnesia.Store(on) }

// Swap takes another state from the next call on.
func (a *Authority) Swap(s *State) { a.state.Store(s) }

// State is the state in force.
func (a *Authority) State() *State { return a.state.Load() }

// Check says who holds the token, if it stands and allows the request. Else the error is ErrUnauthenticated (no token, or one that is
// garbled, forged, revoked, or not in its time), a *DeniedError, or a *LimitedError: too many failures from one address, of whose tokens
// only those that are known to stand are looked at then, or too many requests by the token's own rate.
func (a *Authority) Check(token string, r Request) (engines.Actor, error) {
	if token == "" { // which costs nothing, and is no guess
		return engines.Actor{}, a.refuse(&r, &InvalidError{Stage: stageToken, Reason: "no token"})
	}
	cfg, state := a.cfg.Load(), a.state.Load()
	q := query{Request: r, skew: cfg.ClockSkew.D(), amnesia: a.amnesia.Load()}
	if p := remembered(token, r.Now, cfg, state); p != nil && p.voided(&q, state) == nil {
		return a.admit(p, &q) // also where a neighbour behind the same address guesses
	}
	if wait := a.guard.closed(&r); wait > 0 {
		a.tally.count(stageIP, &r)
		return engines.Actor{}, &LimitedError{RetryAfter: wait, Stage: stageIP}
	}
	p, fail := a.prove(token, r.Now, cfg, state)
	if fail == nil {
		if fail = p.voided(&q, state); fail == nil {
			return a.admit(p, &q)
		}
	}
	a.guard.failed(&r)
	fail.Scope, fail.Fingerprint = r.Scope, Fingerprint(token)
	return engines.Actor{}, a.refuse(&r, fail)
}

// remembered finds what a token says that was proven before, if it is one that prove would take now. It costs one hash.
func remembered(token string, now time.Time, cfg *Config, state *State) *policy {
	if len(token) > cfg.MaxTokenBytes {
		return nil
	}
	p := state.proven.get(token)
	if p == nil || p.written() > cfg.MaxCaveats || !p.root.stands(now, cfg.ClockSkew.D()) {
		return nil
	}
	return p
}

// prove finds what a genuine token says. Whatever is wrong with it, one MAC is computed.
func (a *Authority) prove(token string, now time.Time, cfg *Config, state *State) (*policy, *InvalidError) {
	if p := remembered(token, now, cfg, state); p != nil {
		return p, nil
	}
	d, err := decode(a.codec, token, cfg.MaxTokenBytes, cfg.MaxCaveats)
	if err != nil {
		return nil, a.garbled(err)
	}
	made, known := state.root(d.id.Kid, now, cfg.ClockSkew.D())
	if !known {
		made.key = a.dummy
	}
	texts, err := a.verify(d.mac, made.key)
	if err != nil {
		if !known {
			err = fmt.Errorf("unknown key %q", d.id.Kid)
		}
		return nil, &InvalidError{Stage: stageSignature, Reason: err.Error()}
	}
	p := readPolicy(d.id, texts)
	p.token, p.fingerprint, p.root = strings.Clone(token), Fingerprint(token), made // token may be part of a request's whole head
	state.proven.put(p)
	return p, nil
}

// garbled refuses what is no token, in the time that a forged one takes.
func (a *Authority) garbled(err error) *InvalidError {
	if d, err := decode(a.codec, a.decoy, len(a.decoy), decoyCaveats); err == nil {
		_, _ = a.verify(d.mac, a.dummy)
	}
	return &InvalidError{Stage: stageToken, Reason: err.Error()}
}

// admit judges the caveats of a token that stands.
func (a *Authority) admit(p *policy, q *query) (engines.Actor, error) {
	if !p.allows(q) {
		a.tally.count(stageCaveat, &q.Request)
		return engines.Actor{}, &DeniedError{
			TID: p.id.TID, Kid: p.id.Kid, Tenant: p.tenant, Scope: q.Scope, Reasons: p.reasons(q), Fingerprint: p.fingerprint,
		}
	}
	if p.rate > 0 {
		if ok, wait := a.rated.TakeAt(p.id.TID, q.Now, rateOf(p.rate)); !ok {
			a.tally.count(stageRate, &q.Request)
			return engines.Actor{}, &LimitedError{RetryAfter: wait, Stage: stageRate, TID: p.id.TID}
		}
	}
	return p.actor(), nil
}

func (a *Authority) refuse(r *Request, err *InvalidError) error {
	a.tally.count(err.Stage, r)
	return err
}

func verifySignature(m *macaroon.Macaroon, key []byte) ([]string, error) {
	return m.VerifySignature(key, nil)
}
