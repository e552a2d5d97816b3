package auth

import (
	"errors"
	"strings"
	"testing"
	"time"

	"ronbox/engines"
)

func TestCaveats(t *testing.T) {
	for _, tt := range []struct {
		caveat string
		want   outcome
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
		token, err := Attenuate(mint(t, a), tt.caveat) // which may make it one that has expired
		if err != nil {
			t.Fatal(err)
		}
		_, err = a.Check(token, propose())
		if got := outcomeOf(t, err); got != tt.want {
			t.Errorf("%s: %s, want %s (%v)", tt.caveat, got, tt.want, err)
		}
	}
}

// A caveat that a holder may append and the node does not know denies; Mint does not write it in
// the first place.
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
		if got := outcomeOf(t, err); got != denied {
			t.Errorf("%q: %s, want 403", text, got)
		}
		if _, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}, Caveats: []string{text}}); !errors.Is(
			err,
			ErrSpec,
		) {
			t.Errorf("%q was minted: %v", text, err)
		}
		if _, err := Attenuate(token, text); !errors.Is(err, ErrSpec) {
			t.Errorf("%q was appended: %v", text, err)
		}
	}
}

// A token must not have a caveat that cannot be shown on one line: an inspection must show all of
// it.
func TestUnprintableCaveats(t *testing.T) {
	a := newRig()
	token := mint(t, a)
	for _, text := range []string{"path = /a\nb", "path = /\x1b[2J", "\xff = \xff", "tenant = a\u202eb", "path = /\x00", "path = /\u00a0"} {
		raw := appendRaw(t, token, text)
		if _, err := a.Check(raw, propose()); outcomeOf(t, err) != rejected {
			t.Errorf("%q: %v, want 401", text, err)
		}
		if got, err := Inspect(raw); err == nil {
			t.Errorf("inspected as %q", got.Caveats)
		}
		if _, _, err := a.Mint(MintSpec{Sub: "x", Scopes: []string{"a.b"}, Caveats: []string{text}}); !errors.Is(
			err,
			ErrSpec,
		) {
			t.Errorf("%q was minted: %v", text, err)
		}
		if _, err := Attenuate(token, text); !errors.Is(err, ErrSpec) {
			t.Errorf("%q was appended: %v", text, err)
		}
	}
}

// A request path that could mean another one further in meets no path caveat, not even the widest.
func TestUncleanPathsMeetNoCaveat(t *testing.T) {
	a := newRig()
	token := mint(t, a, "path = /*")
	for _, p := range []string{"", "registry", "/registry/../admin", "/registry/./head", "//registry", "/registry/", "/registry//head", "/.."} {
		r := propose()
		r.Path = p
		if _, err := a.Check(token, r); outcomeOf(t, err) != denied {
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
		want  outcome
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
		if _, err := a.Check(tt.token, r); outcomeOf(t, err) != tt.want {
			t.Errorf("%s: %v, want %s", tt.doc, err, tt.want)
		}
	}
}

func TestSigner(t *testing.T) {
	a := newRig()
	actor, err := a.Check(mint(t, a, "registry.signer = alice", "registry.signer = alice"), propose())
	if err != nil || actor.Signer != "alice" {
		t.Errorf("%+v, %v", actor, err)
	}
	if _, err := a.Check(
		appendRaw(t, mint(t, a, "registry.signer = alice"), "registry.signer = bob"),
		propose(),
	); outcomeOf(t, err) != denied {
		t.Errorf("two signers: %v", err)
	}
}

func TestAmnesia(t *testing.T) {
	a := newRig()
	token := mint(t, a, "amnesia = on")
	if _, err := a.Check(token, propose()); outcomeOf(t, err) != denied {
		t.Errorf("on disk: %v", err)
	}
	a.SetAmnesia(true)
	if _, err := a.Check(token, propose()); err != nil {
		t.Errorf("in memory: %v", err)
	}
}

// asked is a request of a service that knows everything.
func asked(service, scope string) Request {
	r := propose()
	r.Service, r.Scope = service, scope
	r.Tenant, r.Account, r.Asset, r.Amount, r.Epoch, r.Signer, r.Bytes = "acme", "shop:7", "ron", "50", "e1", "alice", 100
	return r
}

// Known fields of the request are checked at once, others are left to the Grant, with the same
// result.
func TestEngineCaveats(t *testing.T) {
	wallet, rewarder, registry := asked("wallet", "wallet.transfer"), asked("rewarder", "rewarder.run"), asked(
		"registry",
		"registry.propose",
	)
	for _, tt := range []struct {
		request Request
		caveats []string
		want    outcome
	}{
		{wallet, []string{"tenant = acme"}, allowed}, {wallet, []string{"tenant = other"}, denied},
		{wallet, []string{"account = shop:7"}, allowed}, {wallet, []string{"account = shop:*"}, allowed}, {wallet, []string{"account = *"}, allowed},
		{wallet, []string{"account = shop:70"}, denied}, {wallet, []string{"account = bank:*"}, denied},
		{wallet, []string{"account = shop:*", "account = *"}, allowed},
		{wallet, []string{"asset = ron"}, allowed}, {wallet, []string{"asset = eur"}, denied},
		{wallet, []string{"asset = ron", "ceiling <= 50"}, allowed}, {wallet, []string{"asset = ron", "ceiling <= 49"}, denied},
		{wallet, []string{"asset = ron", "ceiling <= 49", "ceiling <= 90"}, denied},
		{wallet, []string{"asset = ron", "ceiling_daily <= 50"}, allowed}, {wallet, []string{"asset = ron", "ceiling_daily <= 49"}, denied},
		{wallet, []string{"max_bytes <= 100"}, allowed}, {wallet, []string{"max_bytes <= 99"}, denied},
		{rewarder, []string{"epoch = e1"}, allowed}, {rewarder, []string{"epoch = e2"}, denied},
		{rewarder, []string{"max_runs <= 1"}, allowed}, {rewarder, []string{"max_runs <= 0"}, denied},
		// the wallet's alone
		{rewarder, []string{"account = shop:7"}, denied}, {rewarder, []string{"asset = ron"}, denied},
		{wallet, []string{"epoch = e1"}, denied}, {wallet, []string{"max_runs <= 1"}, denied}, {wallet, []string{"registry.signer = alice"}, denied},
		{registry, []string{"registry.signer = alice"}, allowed}, {registry, []string{"registry.signer = bob"}, denied},
		{registry, []string{"max_bytes <= 100", "tenant = acme"}, allowed},
	} {
		a := newRig()
		token, _, err := a.Mint(MintSpec{
			Sub:     "ops",
			Scopes:  []string{"wallet.transfer", "rewarder.run", "registry.propose"},
			Caveats: tt.caveats,
			Now:     noon,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Check(token, tt.request); outcomeOf(t, err) != tt.want {
			t.Errorf("%q to %s: %v, want %s", tt.caveats, tt.request.Service, err, tt.want)
		}
		early := tt.request
		early.Tenant, early.Account, early.Asset, early.Amount, early.Epoch, early.Signer, early.Bytes = "", "", "", "", "", "", 0
		actor, err := a.Check(token, early)
		got := outcomeOf(t, err)
		if err == nil && !later(actor, tt.request) {
			got = denied
		}
		if got != tt.want {
			t.Errorf("%q to %s, checked in two steps: %s, want %s", tt.caveats, tt.request.Service, got, tt.want)
		}
	}
}

// later is what an engine asks once it has read the body.
func later(actor engines.Actor, r Request) bool {
	n, _ := engines.ParseAmount(r.Amount)
	for _, err := range []error{
		actor.Grant.Tenant(r.Tenant), actor.Grant.Account(r.Account), actor.Grant.Asset(r.Asset), actor.Grant.Amount(n),
		actor.Grant.Daily(engines.Amount{}, n), actor.Grant.Epoch(r.Epoch), actor.Grant.Run(0), actor.Grant.Bytes(r.Bytes),
	} {
		if err != nil {
			return false
		}
	}
	return actor.Signer == "" || actor.Signer == r.Signer
}

// A caveat that permits nothing, or depends on later ones, cannot be minted. A token with such a
// caveat permits nothing.
func TestFaults(t *testing.T) {
	for _, caveats := range [][]string{
		{"asset = ron", "asset = eur"}, {"account = a", "account = b*"}, {"epoch = e1", "epoch = e2"}, {"tenant = other"},
		{"ceiling <= 5"}, {"ceiling_daily <= 5"}, {"ceiling <= 5", "asset = ron"},
		{"asset = RON"}, {"asset = ron,eur"}, {"asset = aaaaaaaaaaaaaaaaa"}, {"asset = ron", "ceiling <= -1"}, {"asset = ron", "ceiling <= 05"},
		{"asset = ron", "ceiling < 5"}, {"asset = ron", "ceiling <= 340282366920938463463374607431768211456"},
		{"max_runs <= -1"}, {"max_runs <= 9223372036854775808"}, {"max_runs = 1"}, {"max_bytes <= 1KiB"}, {"account = a,b"}, {"account = a b"},
		{"account = a*b"}, {"account = **"}, {"epoch = *"}, {"rate <= 0/s"}, {"rate <= 5"}, {"rate <= 5/m"}, {"rate <= 1000001/s"},
		{"rate <= 05/s"}, {"amnesia = off"}, {"amnesia = "}, {"tenant = " + strings.Repeat("a", 65)},
	} {
		a := newRig()
		spec := MintSpec{Sub: "ops", Tenant: "acme", Scopes: []string{"wallet.transfer"}, Now: noon}
		token, _, err := a.Mint(spec)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Check(appendRaw(t, token, caveats...), asked("wallet", "wallet.transfer")); outcomeOf(
			t,
			err,
		) != denied {
			t.Errorf("%q: %v, want 403", caveats, err)
		}
		spec.Caveats = caveats
		if _, _, err := a.Mint(spec); err == nil {
			t.Errorf("%q: minted", caveats)
		}
		if _, err := Attenuate(token, caveats...); err == nil {
			t.Errorf("%q: appended", caveats)
		}
	}
}
