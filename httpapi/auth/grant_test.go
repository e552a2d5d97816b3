package auth

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/engines"
)

// asked is a request of a service that knows everything.
func asked(service, scope string) Request {
	r := propose()
	r.Service, r.Scope = service, scope
	r.Tenant, r.Account, r.Asset, r.Amount, r.Epoch, r.Signer, r.Bytes = "acme", "shop:7", "ron", "50", "e1", "alice", 100
	return r
}

// What the request knows is judged at once, and what it does not is left to the Grant, which says the same.
func TestEngineCaveats(t *testing.T) {
	wallet, rewarder, registry := asked("wallet", "wallet.transfer"), asked("rewarder", "rewarder.run"), asked("registry", "registry.propose")
	for _, tt := range []struct {
		request Request
		caveats []string
		want    verdict
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
		{rewarder, []string{"account = shop:7"}, denied}, {rewarder, []string{"asset = ron"}, denied}, // the wallet's alone
		{wallet, []string{"epoch = e1"}, denied}, {wallet, []string{"max_runs <= 1"}, denied}, {wallet, []string{"registry.signer = alice"}, denied},
		{registry, []string{"registry.signer = alice"}, allowed}, {registry, []string{"registry.signer = bob"}, denied},
		{registry, []string{"max_bytes <= 100", "tenant = acme"}, allowed},
	} {
		a := newRig()
		token, _, err := a.Mint(MintSpec{
			Sub: "ops", Scopes: []string{"wallet.transfer", "rewarder.run", "registry.propose"}, Caveats: tt.caveats, Now: noon,
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Check(token, tt.request); verdictOf(t, err) != tt.want {
			t.Errorf("%q to %s: %v, want %s", tt.caveats, tt.request.Service, err, tt.want)
		}
		early := tt.request
		early.Tenant, early.Account, early.Asset, early.Amount, early.Epoch, early.Signer, early.Bytes = "", "", "", "", "", "", 0
		actor, err := a.Check(token, early)
		got := verdictOf(t, err)
		if err == nil && !later(actor, tt.request) {
			got = denied
		}
		if got != tt.want {
			t.Errorf("%q to %s, judged in two steps: %s, want %s", tt.caveats, tt.request.Service, got, tt.want)
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

// What leaves nothing, or would mean something else by what comes later, is not written; a holder who writes it has a token for nothing.
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
		if _, err := a.Check(appendRaw(t, token, caveats...), asked("wallet", "wallet.transfer")); verdictOf(t, err) != denied {
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

func TestActor(t *testing.T) {
	a := newRig()
	token, id, err := a.Mint(MintSpec{Sub: "ops", Tenant: "acme", Scopes: []string{"node.admin"}, Now: noon, Caveats: []string{"max_bytes <= 7"}})
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
	if got, err := a.Check(appendRaw(t, token, "scope = registry.propose"), propose()); err != nil || got.Admin || !got.May("registry.propose") || got.May("registry.commit") {
		t.Errorf("narrowed: %+v, %v", got, err)
	}
	if got, err := a.Check(mint(t, a), propose()); err != nil || got.Grant != nil || got.Admin {
		t.Errorf("nothing to check: %+v, %v", got, err)
	}
}

func TestAmnesia(t *testing.T) {
	a := newRig()
	token := mint(t, a, "amnesia = on")
	if _, err := a.Check(token, propose()); verdictOf(t, err) != denied {
		t.Errorf("on disk: %v", err)
	}
	a.SetAmnesia(true)
	if _, err := a.Check(token, propose()); err != nil {
		t.Errorf("in memory: %v", err)
	}
}

// What a token was narrowed to goes with its actor; a life that counts from its own birth, as the time that it ends.
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
	want := []string{"path = " + propose().Path, "exp < " + noon.Add(30*time.Minute).UTC().Format(time.RFC3339), "tenant = acme"}
	if !slices.Equal(got.Caveats, want) {
		t.Errorf("%q, want %q", got.Caveats, want)
	}
}
