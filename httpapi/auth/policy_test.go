package auth

import (
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"gopkg.in/macaroon.v2"
	"pgregory.net/rapid"

	"ronbox/engines"
)

// A genuine token that does not begin as Mint writes them allows nothing, whatever its holder
// appends.
func TestMintedForm(t *testing.T) {
	a := newRig()
	full := []string{"scope = node.admin", "exp < 2026-05-01T13:00:00Z"}
	for _, tt := range []struct {
		caveats []string
		want    outcome
	}{
		{nil, denied}, {full[:1], denied}, {full[1:], denied}, {[]string{full[1], full[0]}, denied}, {full, allowed},
		{[]string{full[0], "ttl = 1h", full[1]}, denied},
	} {
		id, err := newIdentifier(MintSpec{Sub: "ops", Now: noon}, a.State())
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
		if _, err := a.Check(sealed(t, m, tt.caveats...), propose()); outcomeOf(t, err) != tt.want {
			t.Errorf("%q: %v, want %s", tt.caveats, err, tt.want)
		}
	}
}

func TestActor(t *testing.T) {
	a := newRig()
	token, id, err := a.Mint(
		MintSpec{
			Sub:     "ops",
			Tenant:  "acme",
			Scopes:  []string{"node.admin"},
			Now:     noon,
			Caveats: []string{"max_bytes <= 7"},
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.Check(token, propose())
	if err != nil {
		t.Fatal(err)
	}
	grant := got.Grant
	got.Grant = nil
	want := engines.Actor{
		CapID: id.TID, Kid: "k1", Fingerprint: Fingerprint(token), Principal: "ops", Tenant: "acme", Admin: true,
		Scopes: []string{"node.admin"}, Caveats: []string{"max_bytes <= 7"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if most, limited := grant.MaxBytes(); most != 7 || !limited || grant.Tenant("other") == nil {
		t.Errorf("grant %+v", grant)
	}
	if got, err := a.Check(
		appendRaw(t, token, "scope = registry.propose"),
		propose(),
	); err != nil || got.Admin || !got.May("registry.propose") ||
		got.May("registry.commit") {
		t.Errorf("narrowed: %+v, %v", got, err)
	}
	if got, err := a.Check(mint(t, a), propose()); err != nil || got.Grant != nil || got.Admin {
		t.Errorf("nothing to check: %+v, %v", got, err)
	}
}

// The actor carries the narrowing caveats of its token; a ttl, which counts from the time of issue,
// as the time that it ends.
func TestActorCaveats(t *testing.T) {
	a := newRig()
	token, _, err := a.Mint(MintSpec{Sub: "ops", Scopes: []string{"registry.propose"}, Now: noon, Path: propose().Path})
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.Check(appendRaw(t, token, "ttl = 30m", "tenant = acme"), propose())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"path = " + propose().Path,
		"exp < " + noon.Add(30*time.Minute).UTC().Format(time.RFC3339),
		"tenant = acme",
	}
	if !slices.Equal(got.Caveats, want) {
		t.Errorf("%q, want %q", got.Caveats, want)
	}
}

// values holds caveat values to draw from. Some hold for some requests, some contradict each other,
// some are malformed.
var values = map[string][]string{
	"scope =": {
		"registry.propose",
		"node.admin",
		"registry.commit,registry:propose",
		"wallet.transfer,rewarder.run",
		"propose",
		"*",
	},
	"aud =": {"registry", "wallet", "wallet,rewarder", "Registry"},
	"tenant =": {
		"acme",
		"other",
		"a b",
	},
	"account =": {"alice", "al*", "*", "bob", "a*b"},
	"asset =":   {"ron", "eur", "RON"},
	"ceiling <=": {
		"0",
		"50",
		"100",
		"340282366920938463463374607431768211455",
		"-1",
		"05",
	},
	"ceiling_daily <=": {"0", "70", "500"},
	"max_runs <=": {
		"0",
		"1",
		"2",
		"x",
	},
	"path =": {"/registry/*", "/registry/proposals", "/*", "/v1/transfer,/x", "registry"},
	"method =": {
		"POST",
		"GET,POST",
		"post",
	},
	"epoch =":           {"e1", "e2", "e*"},
	"registry.signer =": {"alice", "bob", "a,b"},
	"ip =":              {"192.0.2.0/24", "::/0", "192.0.2.7,2001:db8::/32", "192.0.2.7/24"},
	"exp <": {
		"2026-05-01T12:30:00Z",
		"2027-01-01T00:00:00Z",
		"soon",
	},
	"nbf >": {"2026-05-01T11:00:00Z", "2026-05-01T12:20:00Z"},
	"ttl =": {
		"10m",
		"900s",
		"30d",
		"900",
	},
	"max_bytes <=": {"0", "10", "1000", "1e3"},
	"rate <=":      {"1/s", "1000/s", "1/m"},
	"amnesia =":    {"on", "off"},
}

// someCaveat draws texts that are caveats, nearly caveats, or anything.
func someCaveat() *rapid.Generator[string] {
	known := rapid.Custom(func(t *rapid.T) string {
		key := rapid.SampledFrom(slices.Sorted(maps.Keys(values))).Draw(t, "key")
		return key + " " + rapid.SampledFrom(values[key]).Draw(t, "value")
	})
	return rapid.OneOf(
		known,
		known,
		known,
		rapid.Just("scope < registry.propose"),
		rapid.StringMatching(`[ -~äß→]{1,40}`),
	)
}

// someRequest draws requests of which some know more than others.
func someRequest() *rapid.Generator[Request] {
	return rapid.Custom(func(t *rapid.T) Request {
		from := func(name string, of ...string) string { return rapid.SampledFrom(of).Draw(t, name) }
		return Request{
			Scope: from("scope", "registry.propose", "registry.commit", "wallet.transfer", "rewarder.run", "node.admin",
				""),
			Service: from("service", "registry", "node", "wallet", "rewarder"),
			Method:  from("method", "GET", "POST"),
			Path:    from("path", "/registry/proposals", "/v1/transfer", "/admin/v1/drain", "/"),
			Now: noon.Add(
				rapid.SampledFrom([]time.Duration{-time.Hour, 0, 600 * time.Second, 1200 * time.Second, time.Hour, 24 * time.Hour}).
					Draw(t, "now"),
			),
			IP: rapid.SampledFrom([]netip.Addr{{}, netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::1")}).
				Draw(t, "ip"),
			Tenant:  from("tenant", "", "acme", "other"),
			Account: from("account", "", "alice", "alan", "bob"),
			Asset:   from("asset", "", "ron", "eur"),
			Amount:  from("amount", "", "0", "50", "60", "340282366920938463463374607431768211455"),
			Epoch:   from("epoch", "", "e1", "e2"),
			Signer:  from("signer", "", "alice", "bob"),
			Bytes:   rapid.SampledFrom([]int64{0, 5, 500}).Draw(t, "bytes"),
		}
	})
}

// reach describes the rights of a token: an outcome, and the answers of its grant to a fixed set of
// questions.
type reach struct {
	allowed bool
	actor   engines.Actor
	grants  map[string]bool
}

func reachOf(a *Authority, token string, r Request) reach {
	d := a.Verify(token, r)
	out := reach{allowed: d.Allowed, grants: map[string]bool{}}
	var err error
	if out.actor, err = a.Check(token, r); (err == nil) != d.Allowed {
		panic(fmt.Sprintf("Check returns %v, Verify %+v", err, d.Failed))
	}
	g := out.actor.Grant
	for question, err := range map[string]error{
		"alice": g.Account("alice"), "alan": g.Account("alan"), "bob": g.Account("bob"), "ron": g.Asset("ron"), "eur": g.Asset("eur"),
		"60": g.Amount(units(60)), "daily 60": g.Daily(units(20), units(40)), "run": g.Run(1),
		"e1": g.Epoch("e1"), "e2": g.Epoch("e2"), "acme": g.Tenant("acme"), "other": g.Tenant("other"), "bytes": g.Bytes(100),
	} {
		out.grants[question] = err == nil
	}
	return out
}

// units is n as an amount.
func units(n uint64) engines.Amount {
	a, err := engines.ParseAmount(fmt.Sprint(n))
	if err != nil {
		panic(err)
	}
	return a
}

// widerThan returns what r allows that was does not, "" for nothing.
func (r reach) widerThan(was reach) string {
	if !r.allowed {
		return ""
	}
	if !was.allowed {
		return "the request"
	}
	for question, yes := range r.grants {
		if yes && !was.grants[question] {
			return question
		}
	}
	switch {
	case was.actor.Signer != "" && r.actor.Signer != was.actor.Signer:
		return "another signer"
	case was.actor.Tenant != "" && r.actor.Tenant != was.actor.Tenant:
		return "another tenant"
	case r.actor.Admin && !was.actor.Admin:
		return "every scope"
	}
	return ""
}

// Appending caveats to a minted token never permits another request, nor another operation in an
// engine.
func TestAppendingNeverWidens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newRig()
		a.SetAmnesia(rapid.Bool().Draw(t, "amnesia"))
		spec := MintSpec{
			Sub:    "ops",
			Now:    noon,
			Tenant: rapid.SampledFrom([]string{"", "acme"}).Draw(t, "minted tenant"),
		}
		spec.Scopes = rapid.SliceOfN(rapid.SampledFrom([]string{
			"registry.propose", "registry.commit", "wallet.transfer", "rewarder.run", "node.metrics", "node.admin",
		}), 1, 3).Draw(t, "scopes")
		token, _, err := a.Mint(spec)
		if err != nil {
			t.Fatal(err)
		}
		r := someRequest().Draw(t, "request")
		was := reachOf(a.Authority, token, r)
		for _, text := range rapid.SliceOfN(someCaveat(), 1, 6).Draw(t, "appended") {
			token = appendRaw(t, token, text)
			r.Now = r.Now.Add(time.Second) // for rates; all times drawn lie further from their bounds
			is := reachOf(a.Authority, token, r)
			if wider := is.widerThan(was); wider != "" {
				t.Fatalf("%q widened: now it allows %s", text, wider)
			}
			was = is
		}
	})
}

// Attenuate makes the same token that a holder with a tool of its own makes, and refuses only
// caveats that would leave nothing.
func TestAttenuateIsAppending(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := newRig()
		a.SetAmnesia(true)
		token, _, err := a.Mint(MintSpec{Sub: "ops", Now: noon, Scopes: []string{"node.admin"}})
		if err != nil {
			t.Fatal(err)
		}
		texts := rapid.SliceOfN(someCaveat(), 1, 4).Draw(t, "texts")
		raw := appendRaw(t, token, texts...)
		narrowed, err := Attenuate(token, texts...)
		if err == nil && narrowed != raw {
			t.Fatal("another token")
		}
		if err != nil && reachOf(a.Authority, raw, someRequest().Draw(t, "request")).allowed {
			t.Fatalf("refused to append what allows something: %v", err)
		}
	})
}
