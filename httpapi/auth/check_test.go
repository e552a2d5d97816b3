package auth

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gopkg.in/macaroon.v2"

	"ronbox/appliance/obs"
)

// verdict is how a Check ended.
type verdict string

const (
	allowed  verdict = "allowed"
	denied   verdict = "403"
	rejected verdict = "401"
)

func verdictOf(t testing.TB, err error) verdict {
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

func TestCaveats(t *testing.T) {
	for _, tt := range []struct {
		caveat string
		want   verdict
	}{
		{"scope = registry.propose", allowed}, {"scope = registry:propose", allowed}, {"scope = registry.commit,registry.propose", allowed},
		{"scope = node.admin", allowed}, {"scope = registry.commit", denied}, {"scope = registry.proposed", denied},
		{"aud = registry", allowed}, {"aud = wallet,registry", allowed}, {"aud = wallet", denied}, {"aud = regis", denied},
		{"method = POST", allowed}, {"method = GET,POST", allowed}, {"method = GET", denied},
		{"path = /registry/proposals", allowed}, {"path = /registry/*", allowed}, {"path = /*", allowed},
		{"path = /reg/*", denied}, {"path = /registry", denied}, {"path = /registry/proposals/*", denied}, {"path = /registry/prop", denied},
		{"path = /admin,/registry/*", allowed},
		{"ip = 192.0.2.0/24", allowed}, {"ip = 192.0.2.7", allowed}, {"ip = 2001:db8::/32,192.0.2.7", allowed}, {"ip = 192.0.2.8", denied},
		{"nbf > 2026-05-01T12:00:00Z", allowed}, {"exp < 2026-05-01T12:00:01Z", allowed}, {"ttl = 900s", allowed}, {"ttl = 30d", allowed},
		{"nbf > 2026-05-01T12:00:31Z", rejected}, {"exp < 2026-05-01T11:59:30Z", rejected}, {"exp < 2026-05-01T14:00:00+02:00", allowed},
		{"registry.signer = alice", allowed},
	} {
		a := newRig()
		_, err := a.Check(mint(t, a, tt.caveat), propose())
		if got := verdictOf(t, err); got != tt.want {
			t.Errorf("%s: %s, want %s (%v)", tt.caveat, got, tt.want, err)
		}
	}
}

// What a holder may append but no one understands denies; Mint does not write it in the first place.
func TestUnknownCaveatsDeny(t *testing.T) {
	a := newRig()
	token := mint(t, a)
	for _, text := range []string{
		"scope < registry.propose", "exp > 2026-05-01T12:00:01Z", "exp = 2030-01-01T00:00:00Z", "Scope = registry.propose",
		"", "scope", "scope =", "scope = ", "scope  = registry.propose", "scope =  registry.propose", "scope = registry.propose ",
		"scope = registry.propose,", "scope = registry.propose, registry.commit", "scope = *", "scope = registry.*",
		"method = post", "method = ", "method = *", "path = registry/proposals", "path = /registry/*/x", "path = /registry/../registry/*",
		"path = /registry*", "path = //*", "ip = 192.0.2.7/24", "ip = here", "ip = fe80::1%eth0", "ip = ::ffff:192.0.2.7", "ip = ::ffff:192.0.2.0/120",
		"exp < tomorrow", "exp < 2030-01-01", "exp < 2030-01-01T00:00:00,5Z", "exp < 2030-01-01T2:00:00Z", "exp < 9999-12-31T23:59:59-01:00",
		"nbf > 0000-01-01T00:00:00+01:00", "ttl = 900", "ttl = -1s",
		"registry.signer = a,b", "scope = " + strings.Repeat("a", 1100) + ".b",
	} {
		_, err := a.Check(appendRaw(t, token, text), propose())
		if got := verdictOf(t, err); got != denied {
			t.Errorf("%q: %s, want 403", text, got)
		}
		if _, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}, Caveats: []string{text}}); !errors.Is(err, ErrSpec) {
			t.Errorf("%q was minted: %v", text, err)
		}
		if _, err := Attenuate(token, text); !errors.Is(err, ErrSpec) {
			t.Errorf("%q was appended: %v", text, err)
		}
	}
}

// A caveat that cannot be shown on one line is none that a token may have: who inspects it must see what it says.
func TestUnprintableCaveats(t *testing.T) {
	a := newRig()
	token := mint(t, a)
	for _, text := range []string{"path = /a\nb", "path = /\x1b[2J", "\xff = \xff", "tenant = a\u202eb", "path = /\x00", "path = /\u00a0"} {
		raw := appendRaw(t, token, text)
		if _, err := a.Check(raw, propose()); verdictOf(t, err) != rejected {
			t.Errorf("%q: %v, want 401", text, err)
		}
		if got, err := Inspect(raw); err == nil {
			t.Errorf("inspected as %q", got.Caveats)
		}
		if _, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}, Caveats: []string{text}}); !errors.Is(err, ErrSpec) {
			t.Errorf("%q was minted: %v", text, err)
		}
		if _, err := Attenuate(token, text); !errors.Is(err, ErrSpec) {
			t.Errorf("%q was appended: %v", text, err)
		}
	}
}

// appendRaw appends a caveat as a holder with a tool of his own would.
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

// A request path that could mean another one further in meets no path caveat, not even the widest.
func TestUncleanPathsMeetNoCaveat(t *testing.T) {
	a := newRig()
	token := mint(t, a, "path = /*")
	for _, p := range []string{"", "registry", "/registry/../admin", "/registry/./head", "//registry", "/registry/", "/registry//head", "/.."} {
		r := propose()
		r.Path = p
		if _, err := a.Check(token, r); verdictOf(t, err) != denied {
			t.Errorf("path %q: %v", p, err)
		}
	}
}

func TestExpiryBoundary(t *testing.T) {
	const skew = 30 * time.Second
	a := newRig()
	late, early := mint(t, a), mint(t, a, "nbf > 2026-05-01T12:10:00Z", "ttl = 30m")
	for _, tt := range []struct {
		doc   string
		token string
		at    time.Time
		want  verdict
	}{
		{"issued ahead of the clock, within skew", late, noon.Add(-skew), allowed},
		{"issued in the future", late, noon.Add(-skew - 1), rejected},
		{"last moment", late, noon.Add(time.Hour + skew - 1), allowed},
		{"expired", late, noon.Add(time.Hour + skew), rejected},
		{"not yet", early, noon.Add(10*time.Minute - skew - 1), rejected},
		{"first moment", early, noon.Add(10*time.Minute - skew), allowed},
		{"last moment of the ttl", early, noon.Add(30*time.Minute + skew - 1), allowed},
		{"after the ttl, before exp", early, noon.Add(30*time.Minute + skew), rejected},
	} {
		r := unnamed()
		r.Now = tt.at
		if _, err := a.Check(tt.token, r); verdictOf(t, err) != tt.want {
			t.Errorf("%s: %v, want %s", tt.doc, err, tt.want)
		}
	}
}

func TestScopes(t *testing.T) {
	for _, tt := range []struct {
		doc    string
		scopes []string
		want   string
		more   []string
		is     verdict
	}{
		{"its own", []string{"registry.commit"}, "registry.commit", nil, allowed},
		{"colon form", []string{"registry:commit"}, "registry.commit", nil, allowed},
		{"another", []string{"registry.commit"}, "registry.propose", nil, denied},
		{"admin implies", []string{"node.admin"}, "registry.propose", nil, allowed},
		{"repeats intersect", []string{"registry.commit", "registry.propose"}, "registry.commit", []string{"scope = registry.propose"}, denied},
		{"admin narrowed", []string{"node.admin"}, "node.metrics", []string{"scope = registry.propose"}, denied},
		{"narrowing does not climb", []string{"registry.propose"}, "node.drain", []string{"scope = node.admin"}, denied},
		{"no scope wanted", []string{"registry.propose"}, "", nil, allowed},
	} {
		a := newRig()
		token, id, err := a.Mint(MintSpec{Sub: "ops", Tenant: "acme", Scopes: tt.scopes, Caveats: tt.more, Now: noon})
		if err != nil {
			t.Fatal(err)
		}
		actor, err := a.Check(token, Request{Method: "GET", Path: "/x", Service: "registry", Scope: tt.want, Now: noon})
		if got := verdictOf(t, err); got != tt.is {
			t.Errorf("%s: %s, want %s", tt.doc, got, tt.is)
		}
		if err == nil && (actor.CapID != id.TID || actor.Principal != "ops" || actor.UID != nil) {
			t.Errorf("%s: actor %+v of token %+v", tt.doc, actor, id)
		}
	}
}

func TestSigner(t *testing.T) {
	a := newRig()
	actor, err := a.Check(mint(t, a, "registry.signer = alice", "registry.signer = alice"), propose())
	if err != nil || actor.Signer != "alice" {
		t.Errorf("%+v, %v", actor, err)
	}
	if _, err := a.Check(appendRaw(t, mint(t, a, "registry.signer = alice"), "registry.signer = bob"), propose()); verdictOf(t, err) != denied {
		t.Errorf("two signers: %v", err)
	}
}

// A genuine token that does not begin as Mint writes them allows nothing, whatever its holder appends.
func TestMintedForm(t *testing.T) {
	a := newRig()
	full := []string{"scope = node.admin", "exp < 2026-05-01T13:00:00Z"}
	for _, tt := range []struct {
		caveats []string
		want    verdict
	}{
		{nil, denied}, {full[:1], denied}, {full[1:], denied}, {[]string{full[1], full[0]}, denied}, {full, allowed},
		{[]string{full[0], "ttl = 1h", full[1]}, denied},
	} {
		id, err := identify(MintSpec{Sub: "ops", Now: noon}, a.State())
		if err != nil {
			t.Fatal(err)
		}
		raw, err := a.codec.encode(id)
		if err != nil {
			t.Fatal(err)
		}
		root := rootKey(secret, []byte("k1"))
		m, err := macaroon.New(root, raw, "", macaroon.V2)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Check(sealed(t, m, tt.caveats...), propose()); verdictOf(t, err) != tt.want {
			t.Errorf("%q: %v, want %s", tt.caveats, err, tt.want)
		}
	}
}

func TestVoidTokens(t *testing.T) {
	dropped := func(a *rig, token string) string {
		d, _ := decode(a.codec, token, 4096, 64)
		m, _ := macaroon.New(rootKey(secret, []byte("k1")), d.mac.Id(), "", macaroon.V2)
		for _, c := range d.mac.Caveats()[1:] {
			_ = m.AddFirstPartyCaveat(c.Id)
		}
		b, _ := m.MarshalBinary()
		copy(b[len(b)-32:], d.mac.Signature())
		var forged macaroon.Macaroon
		_ = forged.UnmarshalBinary(b)
		text, _ := encode(&forged)
		return text
	}
	revoke := func(a *rig, what, value string, at time.Time) {
		a.revoked = append(a.revoked, Revocation{What: what, Value: value, At: at})
	}
	for _, tt := range []struct {
		doc   string
		stage string
		spoil func(a *rig, token string, id Identifier) string
	}{
		{"none", "token", func(*rig, string, Identifier) string { return "" }},
		{"older epoch", "revoked", func(a *rig, token string, _ Identifier) string { a.epoch++; return token }},
		{"newer epoch", "revoked", func(a *rig, token string, _ Identifier) string { a.epoch--; return token }},
		{"revoked", "revoked", func(a *rig, token string, id Identifier) string { revoke(a, "tid", id.TID, noon); return token }},
		{"key revoked", "revoked", func(a *rig, token string, _ Identifier) string {
			revoke(a, "kid", "k1", noon.Add(-time.Hour))
			return token
		}},
		{"tenant revoked", "revoked", func(a *rig, token string, _ Identifier) string { revoke(a, "tenant", "acme", noon); return token }},
		{"epoch revoked", "revoked", func(a *rig, token string, _ Identifier) string { revoke(a, "epoch", "7", noon); return token }},
		{"another node's", "signature", func(_ *rig, _ string, id Identifier) string {
			return sealedWith(rootKey([]byte("another secret"), []byte("k1")), id)
		}},
		{"unknown key", "signature", func(_ *rig, _ string, id Identifier) string {
			id.Kid = "k9"
			return sealedWith(rootKey(secret, []byte("k1")), id)
		}},
		{"retired key", "signature", func(a *rig, token string, _ Identifier) string { a.keys[0].State = KeyRetired; return token }},
		{"key past its time", "signature", func(a *rig, token string, _ Identifier) string {
			a.keys[0].State, a.keys[0].VerifyUntil = KeyVerify, noon.Add(-30*time.Second)
			return token
		}},
		{"dropped caveat", "signature", func(a *rig, token string, _ Identifier) string { return dropped(a, token) }},
	} {
		m := obs.NewMetrics()
		a := newRig()
		a.Authority = New(DefaultConfig(), m)
		a.reload()
		token, id, err := a.Mint(MintSpec{Sub: "ops", Tenant: "acme", Scopes: []string{"registry.propose"}, Now: noon})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Check(token, propose()); err != nil {
			t.Fatal(err)
		}
		token = tt.spoil(a, token, id)
		a.reload()
		_, err = a.Check(token, propose())
		var invalid *InvalidError
		if !errors.As(err, &invalid) || !errors.Is(err, ErrUnauthenticated) || invalid.Stage != tt.stage || invalid.Reason == "" ||
			invalid.Scope != "registry.propose" && token != "" {
			t.Fatalf("%s: %#v, want stage %s", tt.doc, err, tt.stage)
		}
		if err.Error() != ErrUnauthenticated.Error() {
			t.Errorf("%s: the caller is told %q", tt.doc, err)
		}
		if invalid.Fingerprint != "" && invalid.Fingerprint != Fingerprint(token) || (invalid.TID != "") != (tt.stage == "revoked") {
			t.Errorf("%s: logged as %+v", tt.doc, invalid)
		}
		want := `auth_failures_total{scope="registry.propose",service="registry",stage="` + tt.stage + `",surface="tcp"} 1`
		if got := scrape(m); !strings.Contains(got, want) {
			t.Errorf("%s: not counted as %s", tt.doc, want)
		}
	}
}

func scrape(m *obs.Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func sealedWith(key []byte, id Identifier) string {
	raw, _ := newCodec().encode(id)
	m, _ := macaroon.New(key, raw, "", macaroon.V2)
	text, _ := encode(m)
	return text
}

func TestSocketPeer(t *testing.T) {
	a := newRig()
	r := propose()
	r.IP = netip.Addr{}
	if _, err := a.Check(mint(t, a), r); err != nil {
		t.Error(err)
	}
	if _, err := a.Check(mint(t, a, "ip = 0.0.0.0/0"), r); verdictOf(t, err) != denied {
		t.Errorf("no address meets an address caveat: %v", err)
	}
	r.IP = netip.MustParseAddr("::ffff:192.0.2.7")
	if _, err := a.Check(mint(t, a, "ip = 192.0.2.0/24"), r); err != nil {
		t.Errorf("mapped address: %v", err)
	}
	r.IP = netip.MustParseAddr("fe80::1%eth0")
	if _, err := a.Check(mint(t, a, "ip = fe80::/10"), r); err != nil {
		t.Errorf("address with a zone: %v", err)
	}
}

// tester is what a *testing.T and a *rapid.T share.
type tester interface {
	Helper()
	Fatal(...any)
}
