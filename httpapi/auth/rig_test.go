package auth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gopkg.in/macaroon.v2"

	"ronbox/appliance/obs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noon is when the tests take place.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// secret is the node's.
var secret = []byte("node secret")

// rig is an Authority with a modifiable state.
type rig struct {
	*Authority
	keys    []Key
	revoked []Revocation
	epoch   uint64
}

// reload makes the rig's state the current one.
func (r *rig) reload() { r.Swap(NewState(secret, r.keys, r.revoked, r.epoch)) }

// newRig has one active key and one that only verifies.
func newRig() *rig {
	r := &rig{Authority: New(DefaultConfig(), nil), epoch: 7, keys: []Key{
		{Kid: "k1", Salt: []byte("k1"), State: KeyActive, CreatedAt: noon.Add(-time.Hour)},
		{
			Kid:         "k2",
			Salt:        []byte("k2"),
			State:       KeyVerify,
			CreatedAt:   noon.Add(-48 * time.Hour),
			VerifyUntil: noon.Add(24 * time.Hour),
		},
	}}
	r.reload()
	return r
}

// mint makes a token for registry.propose, narrowed further by caveats.
func mint(t testing.TB, a *rig, caveats ...string) string {
	t.Helper()
	token, _, err := a.Mint(MintSpec{Sub: "ops", Scopes: []string{"registry.propose"}, Caveats: caveats, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// propose is the request that mint's token is for.
func propose() Request {
	return Request{
		Method: "POST", Path: "/registry/proposals", Service: "registry", Scope: "registry.propose", Now: noon,
		IP: netip.MustParseAddr("192.0.2.7"),
	}
}

// unnamed is propose from the admin socket, where failures are not counted.
func unnamed() Request {
	r := propose()
	r.IP, r.Socket = netip.Addr{}, true
	return r
}

// outcome is how a Check ended.
type outcome string

const (
	allowed  outcome = "allowed"
	denied   outcome = "403"
	rejected outcome = "401"
)

func outcomeOf(t testing.TB, err error) outcome {
	t.Helper()
	var d *DeniedError
	switch {
	case err == nil:
		return allowed
	case errors.As(err, &d):
		if len(d.Reasons) == 0 || d.TID == "" {
			t.Errorf("a denial without reasons or token id: %+v", d)
		}
		return denied
	case errors.Is(err, ErrUnauthenticated):
		return rejected
	}
	t.Errorf("unexpected error %v", err)
	return ""
}

// tester is the common interface of *testing.T and *rapid.T.
type tester interface {
	Helper()
	Fatal(...any)
}

// appendRaw appends a caveat as a holder with a tool of its own would.
func appendRaw(t tester, token string, caveats ...string) string {
	t.Helper()
	d, err := decode(newCodec(), token, 1<<16, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	return sealed(t, d.mac, caveats...)
}

func sealed(t tester, m *macaroon.Macaroon, caveats ...string) string {
	t.Helper()
	for _, c := range caveats {
		if err := m.AddFirstPartyCaveat([]byte(c)); err != nil {
			t.Fatal(err)
		}
	}
	text, err := encode(m)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func sealedWith(key []byte, id Identifier) string {
	raw, _ := newCodec().encode(id)
	m, _ := macaroon.New(key, raw, "", macaroon.V2)
	text, _ := encode(m)
	return text
}

func scrape(m *obs.Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}
