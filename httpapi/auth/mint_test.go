package auth

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMintWritesItsSpec(t *testing.T) {
	a := newRig()
	token, id, err := a.Mint(MintSpec{
		Sub:     "ci",
		Tenant:  "acme",
		Scopes:  []string{"registry:propose", "registry.commit"},
		TTL:     90 * time.Second,
		Path:    "/registry/*",
		Methods: []string{"GET", "POST"},
		Caveats: []string{"aud = registry"},
		Now:     noon,
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Inspect(token)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"scope = registry.propose,registry.commit",
		"exp < 2026-05-01T12:01:30Z",
		"path = /registry/*",
		"method = GET,POST",
		"aud = registry",
	}
	if !slices.Equal(got.Caveats, want) {
		t.Errorf("caveats %q, want %q", got.Caveats, want)
	}
	if got.Identifier != id || id.Kid != "k1" || id.Epoch != 7 || id.IssuedAt != noon.Unix() || id.Sub != "ci" ||
		id.Tenant != "acme" {
		t.Errorf("identifier %+v, inspected %+v", id, got.Identifier)
	}
	if !got.ExpiresAt.Equal(noon.Add(90*time.Second)) || got.Fingerprint != Fingerprint(token) ||
		len(got.Fingerprint) != 16 {
		t.Errorf("expires %s, fingerprint %s", got.ExpiresAt, got.Fingerprint)
	}
	if len(token) > 400 {
		t.Errorf("a typical token takes %d bytes", len(token))
	}
}

// A token that has expired already is refused, and the message names both times.
func TestMintInThePast(t *testing.T) {
	a := newRig()
	for _, exp := range []string{"2020-01-01T00:00:00Z", "2026-05-01T12:00:00Z"} {
		_, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}, Caveats: []string{"exp < " + exp}, Now: noon})
		if !errors.Is(err, ErrSpec) || !strings.Contains(err.Error(), "expired at "+exp) ||
			!strings.Contains(err.Error(), "2026-05-01T12:00:00Z") {
			t.Errorf("exp < %s: %v", exp, err)
		}
	}
	if _, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}, Caveats: []string{"exp < 2026-05-01T12:00:01Z"},
		Now: noon}); err != nil {
		t.Error(err)
	}
}

// A bare verb of the wallet is the wallet's, at mint and nowhere else.
func TestMintBareScopes(t *testing.T) {
	a := newRig()
	token, _, err := a.Mint(
		MintSpec{Sub: "x", Scopes: []string{"read", "issue", "transfer", "burn", "registry:propose"}, Now: noon},
	)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"wallet.read", "wallet.issue", "wallet.transfer", "wallet.burn", "registry.propose"}
	if got, err := Inspect(token); err != nil || !slices.Equal(got.Scopes, want) {
		t.Errorf("%q, %v", got.Scopes, err)
	}
	if _, err := Attenuate(token, "scope = read"); !errors.Is(err, ErrSpec) {
		t.Errorf("bare in a caveat: %v", err)
	}
}

func TestMintNamesItsLimits(t *testing.T) {
	_, _, err := newRig().Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}, TTL: 90 * 24 * time.Hour})
	if err == nil || !strings.HasSuffix(err.Error(), "ttl 90d: must be 1s..30d") {
		t.Error(err)
	}
}

// A node may permit longer tokens than others. Its tokens can be inspected anywhere.
func TestMintLongTokens(t *testing.T) {
	a := newRig()
	cfg := DefaultConfig()
	cfg.MaxTokenBytes, cfg.MaxCaveats = mostTokenBytes, mostCaveats
	a.SetConfig(cfg)
	token := mint(t, a, slices.Repeat([]string{"path = /registry/proposals"}, 200)...)
	if got, err := Inspect(token); err != nil || len(got.Caveats) != 202 || len(token) < 5000 {
		t.Errorf("%d caveats in %d bytes, %v", len(got.Caveats), len(token), err)
	}
	if _, err := a.Check(token, propose()); err != nil {
		t.Error(err)
	}
}

func TestMintDefaultTTL(t *testing.T) {
	a := newRig()
	before := time.Now()
	token, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := Inspect(token)
	if err != nil {
		t.Fatal(err)
	}
	if ttl := got.ExpiresAt.Sub(before); ttl < time.Hour-time.Second || ttl > time.Hour+time.Minute {
		t.Errorf("expires %s after it was minted, want 1h", ttl)
	}
}

func TestMintRefuses(t *testing.T) {
	for _, tt := range []struct {
		doc   string
		spoil func(*MintSpec)
	}{
		{"no holder", func(s *MintSpec) { s.Sub = "" }},
		{"long holder", func(s *MintSpec) { s.Sub = strings.Repeat("x", 129) }},
		{"holder over two lines", func(s *MintSpec) { s.Sub = "a\nb" }},
		{"holder not UTF-8", func(s *MintSpec) { s.Sub = "\xff" }},
		{"long tenant", func(s *MintSpec) { s.Tenant = strings.Repeat("x", 65) }},
		{"no scope", func(s *MintSpec) { s.Scopes = nil }},
		{"bare scope", func(s *MintSpec) { s.Scopes = []string{"propose"} }},
		{"scope of three words", func(s *MintSpec) { s.Scopes = []string{"a.b.c"} }},
		{"scope with a comma", func(s *MintSpec) { s.Scopes = []string{"a.b,node.admin"} }},
		{"over the maximum", func(s *MintSpec) { s.TTL = 30*24*time.Hour + 1 }},
		{"negative ttl", func(s *MintSpec) { s.TTL = -1 }},
		{"path", func(s *MintSpec) { s.Path = "registry" }},
		{"method", func(s *MintSpec) { s.Methods = []string{"GET,"} }},
		{"too many caveats", func(s *MintSpec) { s.Caveats = slices.Repeat([]string{"aud = a"}, 63) }},
		{"too long", func(s *MintSpec) { s.Caveats = slices.Repeat([]string{"path = /" + strings.Repeat("x", 900)}, 4) }},
	} {
		a := newRig()
		spec := MintSpec{Sub: "ops", Scopes: []string{"registry.propose"}, Now: noon}
		if _, _, err := a.Mint(spec); err != nil {
			t.Fatal(err)
		}
		tt.spoil(&spec)
		if token, _, err := a.Mint(spec); !errors.Is(err, ErrSpec) || token != "" {
			t.Errorf("%s: %v", tt.doc, err)
		}
	}
}

func TestAttenuate(t *testing.T) {
	a := newRig()
	wide := mint(t, a)
	narrow, err := Attenuate(wide, "path = /registry/proposals", "ttl = 5m")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Check(narrow, propose()); err != nil {
		t.Error(err)
	}
	r := propose()
	r.Path = "/registry/commit/1"
	if _, err := a.Check(narrow, r); outcomeOf(t, err) != denied {
		t.Errorf("narrowed token: %v", err)
	}
	if got, err := Inspect(narrow); err != nil || !got.ExpiresAt.Equal(noon.Add(5*time.Minute)) {
		t.Errorf("expires %s, %v", got.ExpiresAt, err)
	}
	if _, err := Attenuate("nonsense", "aud = registry"); !errors.Is(err, ErrSpec) {
		t.Errorf("%v", err)
	}
	if _, err := Attenuate(wide, slices.Repeat([]string{"aud = registry"}, 63)...); !errors.Is(err, ErrSpec) {
		t.Errorf("too many caveats: %v", err)
	}
}
