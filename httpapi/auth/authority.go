package auth

import (
	"crypto/rand"
	"fmt"
	"net/netip"
	"time"

	"ronbox/appliance/obs"
	"ronbox/engines"
)

// Request is what a token is asked to allow.
type Request struct {
	Method  string
	Path    string // decoded, as the router matched it
	Service string
	Scope   string // "service.verb", "" if any valid token will do
	Now     time.Time
	IP      netip.Addr // not valid for a peer of the admin socket
}

// Authority checks and mints tokens. It is safe for concurrent use and never waits.
type Authority struct {
	cfg     Config
	keys    Keys
	metrics *obs.Metrics
	codec   codec
	dummy   []byte // verifies what names an unknown key, so that it takes as long
}

// New makes an Authority over keys. A nil metrics counts nothing.
func New(cfg Config, keys Keys, metrics *obs.Metrics) *Authority {
	dummy := make([]byte, keyLen)
	_, _ = rand.Read(dummy) // never fails
	return &Authority{cfg: cfg, keys: keys, metrics: metrics, codec: newCodec(), dummy: dummy}
}

// Check says who holds the token, if it stands and allows the request. Else the error is ErrUnauthenticated (no token, or one that is
// garbled, forged, revoked, or not in its time) or a *DeniedError.
func (a *Authority) Check(token string, r Request) (engines.Actor, error) {
	d, err := decode(a.codec, token, a.cfg.MaxTokenBytes, a.cfg.MaxCaveats)
	if err != nil {
		return engines.Actor{}, a.refuse(r, &InvalidError{Stage: "token", Reason: err.Error()})
	}
	conditions, err := a.verify(d)
	if err != nil {
		return engines.Actor{}, a.refuse(r, &InvalidError{Stage: "signature", Reason: err.Error()})
	}
	if err := a.standing(d.id); err != nil {
		return engines.Actor{}, a.refuse(r, &InvalidError{Stage: "revoked", Reason: err.Error(), TID: d.id.TID})
	}
	q := query{Request: r, issued: time.Unix(d.id.IssuedAt, 0), skew: a.cfg.ClockSkew.D()}
	if early, reasons := q.judge(conditions); early != "" {
		return engines.Actor{}, a.refuse(r, &InvalidError{Stage: "time", Reason: early, TID: d.id.TID})
	} else if len(reasons) > 0 {
		a.count("caveat", r)
		return engines.Actor{}, &DeniedError{TID: d.id.TID, Kid: d.id.Kid, Tenant: d.id.Tenant, Scope: r.Scope, Reasons: reasons}
	}
	return engines.Actor{CapID: d.id.TID, Principal: d.id.Sub, Signer: q.signer}, nil
}

// verify compares the MAC, with a key that cannot match if the token names none, and gives the conditions it covers.
func (a *Authority) verify(d decoded) ([]string, error) {
	key, known := a.keys.Root(d.id.Kid)
	if !known {
		key = a.dummy
	}
	conditions, err := d.mac.VerifySignature(key, nil)
	if err != nil {
		return nil, err
	}
	if !known {
		return nil, fmt.Errorf("unknown key %s", d.id.Kid)
	}
	return conditions, nil
}

// standing looks for what voids a genuine token.
func (a *Authority) standing(id Identifier) error {
	if now := a.keys.Epoch(); id.Epoch != now {
		return fmt.Errorf("of epoch %d, in force is %d", id.Epoch, now)
	}
	if a.keys.Revoked(id.TID) {
		return fmt.Errorf("token %s is revoked", id.TID)
	}
	return nil
}

// judge goes through all caveats. void is set if the token is not in its time; reasons tell what else it does not allow.
func (q *query) judge(conditions []string) (void string, reasons []string) {
	if q.Now.Before(q.issued.Add(-q.skew)) {
		void = "issued in the future"
	}
	if !mintedForm(conditions) {
		reasons = append(reasons, "does not begin with a scope and an expiry")
	}
	for _, condition := range conditions {
		c, err := parseCaveat(condition)
		ok := false
		if err == nil {
			ok, err = q.holds(c)
		}
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("caveat %q: %v", condition, err))
		case !ok && c.timed():
			void = fmt.Sprintf("caveat %q does not hold", condition)
		case !ok:
			reasons = append(reasons, fmt.Sprintf("caveat %q does not hold", condition))
		}
	}
	return void, reasons
}

// mintedForm says whether the conditions begin as Mint writes them.
func mintedForm(conditions []string) bool {
	if len(conditions) < 2 {
		return false
	}
	scope, err1 := parseCaveat(conditions[0])
	exp, err2 := parseCaveat(conditions[1])
	return err1 == nil && err2 == nil && scope.key == "scope" && exp.key == "exp"
}

func (a *Authority) refuse(r Request, err *InvalidError) error {
	a.count(err.Stage, r)
	return err
}

func (a *Authority) count(stage string, r Request) {
	surface := "tcp"
	if !r.IP.IsValid() {
		surface = "uds"
	}
	a.metrics.Counter("auth_failures_total", r.Service, "stage", stage, "scope", r.Scope, "surface", surface)(1)
}
