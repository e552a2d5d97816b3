package auth

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gopkg.in/macaroon.v2"

	"ronbox/appliance/obs"
)

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Config){
		"max_ttl": func(c *Config) { c.MaxTTL++ }, "default_ttl": func(c *Config) { c.DefaultTTL = 0 },
		"rotate": func(c *Config) { c.Rotate = 0 }, "clock_skew": func(c *Config) { c.ClockSkew = -1 }, "max_token_bytes": func(c *Config) { c.MaxTokenBytes = 100 },
		"max_caveats": func(c *Config) { c.MaxCaveats = 0 },
	} {
		c := DefaultConfig()
		spoil(&c)
		if c.Validate() == nil {
			t.Errorf("a wrong %s passes", name)
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
		if !errors.As(err, &invalid) || !errors.Is(err, ErrUnauthenticated) || invalid.Stage != tt.stage ||
			invalid.Reason == "" ||
			invalid.Scope != "registry.propose" && token != "" {
			t.Fatalf("%s: %#v, want stage %s", tt.doc, err, tt.stage)
		}
		if err.Error() != ErrUnauthenticated.Error() {
			t.Errorf("%s: the caller gets %q", tt.doc, err)
		}
		if invalid.Fingerprint != "" && invalid.Fingerprint != Fingerprint(token) ||
			(invalid.TID != "") != (tt.stage == "revoked") {
			t.Errorf("%s: logged as %+v", tt.doc, invalid)
		}
		want := `auth_failures_total{scope="registry.propose",service="registry",stage="` + tt.stage + `",surface="tcp"} 1`
		if got := scrape(m); !strings.Contains(got, want) {
			t.Errorf("%s: not counted as %s", tt.doc, want)
		}
	}
}

func TestSocketPeer(t *testing.T) {
	a := newRig()
	r := propose()
	r.IP = netip.Addr{}
	if _, err := a.Check(mint(t, a), r); err != nil {
		t.Error(err)
	}
	if _, err := a.Check(mint(t, a, "ip = 0.0.0.0/0"), r); outcomeOf(t, err) != denied {
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

// failures writes what failed as "caveat: reason".
func failures(d Decision) []string {
	out := make([]string, 0, len(d.Failed))
	for _, f := range d.Failed {
		out = append(out, f.Caveat+": "+f.Reason)
	}
	return out
}

func TestVerifyListsAllThatFails(t *testing.T) {
	a := newRig()
	token, id, err := a.Mint(MintSpec{
		Sub:    "ci",
		Tenant: "acme",
		Scopes: []string{"wallet.transfer", "wallet.read"},
		Now:    noon,
		Caveats: []string{
			"path = /v1/*",
			"method = POST",
			"ip = 192.0.2.0/24",
			"account = shop:*",
			"asset = ron",
			"ceiling <= 100",
			"ttl = 10m",
			"aud = wallet",
			"rate <= 1/s",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	good := asked("wallet", "wallet.transfer")
	good.Path = "/v1/transfer"
	d := a.Verify(token, good)
	if !d.Allowed || !d.Authentic || len(d.Failed) != 0 || d.Identifier != id ||
		!d.ExpiresAt.Equal(noon.Add(10*time.Minute)) ||
		d.Fingerprint != Fingerprint(token) ||
		!slices.Equal(d.Scopes, []string{"wallet.transfer", "wallet.read"}) {
		t.Errorf("%+v", d)
	}
	bad := good
	bad.Method, bad.Path, bad.Scope, bad.Account, bad.Asset, bad.Amount = "GET", "/registry/head", "wallet:issue", "bank:1", "eur", "101"
	bad.Tenant, bad.Now = "other", noon.Add(time.Hour)
	bad.IP = bad.IP.Next().Next().Next()
	for range 300 {
		bad.IP = bad.IP.Next()
	}
	bad.Service = ""
	want := []string{
		"tenant = acme: not granted: tenant is another one",
		"scope = wallet.transfer,wallet.read: the request needs wallet.issue",
		"path = /v1/*: the request's path is \"/registry/head\"", "method = POST: the request's method is \"GET\"",
		fmt.Sprintf("ip = 192.0.2.0/24: the request comes from %s", bad.IP),
		"account = shop:*: not granted: account is another one", "asset = ron: not granted: asset is another one",
		"ceiling <= 100: not granted: ceiling is lower than the amount", "ttl = 10m: expired at 2026-05-01T12:10:00Z",
	}
	if got := a.Verify(token, bad); got.Allowed || !got.Authentic || !slices.Equal(failures(got), want) {
		t.Errorf("failed:\n%s\nwant:\n%s", strings.Join(failures(got), "\n"), strings.Join(want, "\n"))
	}
}

func TestVerifyInvalidTokens(t *testing.T) {
	a := newRig()
	token, id, err := a.Mint(MintSpec{Sub: "ci", Scopes: []string{"registry.propose"}, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	foreign := id
	foreign.Kid = "k9"
	late := id
	late.IssuedAt += 3600
	for _, tt := range []struct {
		doc       string
		token     string
		revoke    bool
		authentic bool
		want      []string
	}{
		{"no token", "x", false, false, []string{": not a token: not base64url without padding"}},
		{"of another node", appendRaw(t, sealedWith(secret, foreign), "scope = wallet.read", "exp < 2026-05-01T13:00:00Z"), false, false,
			[]string{`: signature: unknown key "k9"`, "scope = wallet.read: the request needs registry.propose"}},
		{"too long lived", appendRaw(t, sealedWith(rootKey(secret, []byte("k1")), id), "scope = node.admin", "exp < 2027-05-01T13:00:00Z"), false, true,
			[]string{": the token lives longer than 30d"}},
		{"from the future", appendRaw(t, sealedWith(rootKey(secret, []byte("k1")), late), "scope = node.admin", "exp < 2026-05-01T15:00:00Z"), false, true,
			[]string{": issued in the future"}},
		{"revoked, and unknown", appendRaw(t, token, "colour = red", "amnesia = on"), true, true, []string{
			": tid " + id.TID + " was revoked at 2026-05-01T12:00:00Z", "colour = red: unknown caveat", "amnesia = on: the node keeps its data on disk",
		}},
	} {
		if tt.revoke {
			a.Swap(a.State().With(Revocation{What: "tid", Value: id.TID, At: noon}))
		}
		d := a.Verify(tt.token, unnamed())
		if d.Allowed || d.Authentic != tt.authentic || !slices.Equal(failures(d), tt.want) {
			t.Errorf("%s: %+v, want %q", tt.doc, d, tt.want)
		}
		if _, err := a.Check(tt.token, unnamed()); err == nil {
			t.Errorf("%s: passes", tt.doc)
		}
	}
}

// Verify may be called at will: it counts neither as a failure nor against a rate.
func TestVerifyCountsNothing(t *testing.T) {
	a := newRig()
	token := mint(t, a, "rate <= 1/s")
	for range 100 {
		a.Verify("guess", propose())
		a.Verify(token, propose())
	}
	if _, err := a.Check(token, propose()); err != nil {
		t.Error(err)
	}
}

// A revocation applies to every Check that begins after Swap, even if others run concurrently.
func TestSwapBesideChecks(t *testing.T) {
	a := newRig()
	token, id, err := a.Mint(MintSpec{Sub: "ops", Scopes: []string{"registry.propose"}, Now: noon})
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			r := propose()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				r.Now = noon.Add(time.Duration(n%100) * time.Millisecond)
				_, _ = a.Check(token, r)
				_, _ = a.Check(fmt.Sprint(i, n), r)
				_ = a.Verify(token, r)
				_, _, _ = a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}, Now: noon})
			}
		})
	}
	for n := range 50 {
		cfg := DefaultConfig()
		cfg.MaxCaveats = 8 + n
		a.SetConfig(cfg)
		a.Swap(a.State().With(Revocation{What: "tid", Value: fmt.Sprint(n), At: noon}))
		if _, err := a.Check(token, unnamed()); err != nil {
			t.Fatal(err)
		}
	}
	a.Swap(a.State().With(Revocation{What: "tid", Value: id.TID, At: noon}))
	if _, err := a.Check(token, unnamed()); outcomeOf(t, err) != rejected {
		t.Error(err)
	}
	close(stop)
	all.Wait()
}

// A token in steady use costs no allocation, whatever its caveats.
func TestCheckAllocatesNothing(t *testing.T) {
	a := newRig()
	a.SetAmnesia(true)
	r := asked("wallet", "wallet.transfer")
	token, _, err := a.Mint(
		MintSpec{Sub: "ops", Tenant: "acme", Scopes: []string{"wallet.transfer"}, Now: noon, Caveats: []string{
			"aud = wallet",
			"account = shop:*",
			"asset = ron",
			"ceiling <= 50",
			"ceiling_daily <= 500",
			"path = /registry/*",
			"method = POST",
			"ip = 192.0.2.0/24",
			"nbf > 2026-05-01T11:00:00Z",
			"ttl = 30m",
			"max_bytes <= 1000",
			"rate <= 1000000/s",
			"amnesia = on",
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() {
		if _, err := a.Check(token, r); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%g allocations a call", n)
	}
}
