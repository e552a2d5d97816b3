package auth

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

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
		Sub: "ci", Tenant: "acme", Scopes: []string{"wallet.transfer", "wallet.read"}, Now: noon,
		Caveats: []string{"path = /v1/*", "method = POST", "ip = 192.0.2.0/24", "account = shop:*", "asset = ron", "ceiling <= 100", "ttl = 10m", "aud = wallet", "rate <= 1/s"},
	})
	if err != nil {
		t.Fatal(err)
	}
	good := asked("wallet", "wallet.transfer")
	good.Path = "/v1/transfer"
	d := a.Verify(token, good)
	if !d.Allowed || !d.Authentic || len(d.Failed) != 0 || d.Identifier != id || !d.ExpiresAt.Equal(noon.Add(10*time.Minute)) || d.Fingerprint != Fingerprint(token) ||
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

func TestVerifyOfWhatDoesNotStand(t *testing.T) {
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

// People may ask as often as they like: it counts neither as a failure nor against a rate.
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
