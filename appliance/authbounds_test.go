package appliance

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	"ronbox/store/storetest"
)

// A revocation outlasts every token that it is about, also those minted while longer lives were allowed.
func TestRevocationOutlastsTokens(t *testing.T) {
	for _, what := range []string{revokeTenant, revokeTID, revokeEpoch} {
		tx := storetest.NewTx(t, authBucket)
		mustDo(t, tx, addKid{testKid(0)})
		mustDo(t, tx, mintRow("A", testKid(0), 30))
		mustDo(t, tx, rotateKid{Key: testKid(1)})
		value := map[string]string{revokeTenant: "t", revokeTID: "Z"}[what]
		short := testEpoch.Add(time.Hour).UnixNano()
		got := mustDo(t, tx, revoke{What: what, Value: value, Until: short, Key: testKid(2)})
		if want := testEpoch.Add(30 * time.Hour).UnixNano(); got.until != want {
			t.Errorf("%s: until %v, a token lives until %v", what, time.Unix(0, got.until), time.Unix(0, want))
		}
	}
}

// Who revokes the same again and again fills no memory.
func TestKeyringHoldsEachRevocationOnce(t *testing.T) {
	k := newKeyring(auth.New(auth.DefaultConfig(), nil))
	k.secret = make([]byte, secretLen)
	k.rebuild()
	for i := range 5 {
		r := auth.Revocation{What: revokeTenant, Value: "t", At: testEpoch.Add(time.Duration(i) * time.Hour)}
		k.apply(authChange{revoked: []auth.Revocation{r}})
	}
	if len(k.revoked) != 1 {
		t.Errorf("%d revocations are held", len(k.revoked))
	}
	k.apply(authChange{purged: []revID{newRevID(revokeTenant, "t")}})
	if len(k.revoked) != 0 {
		t.Errorf("purged, and still held: %v", k.revoked)
	}
}

// However often keys are rotated and retired, few of the retired ones are kept.
func TestRetiredKeysAreBounded(t *testing.T) {
	tx := storetest.NewTx(t, authBucket)
	mustDo(t, tx, addKid{testKid(0)})
	for n := range 3 * maxKids {
		mustDo(t, tx, rotateKid{Key: testKid(n + 1)})
		all := mustDo(t, tx, retireKid{ID: testKid(n).ID}).keys
		if len(all) > 2*maxKids || active(all) < 0 || len(all) != len(readKids(tx.Reader())) {
			t.Fatalf("%d keys are kept", len(all))
		}
	}
	if all := readKids(tx.Reader()); all[len(all)-2].id != testKid(3*maxKids-1).ID {
		t.Error("the newest retired key is gone")
	}
}

// minter is a client with a token that may mint and is no administrator.
func (r *rig) minter(m wire.MintRequest) (*client.Client, string) {
	r.t.Helper()
	m.Sub, m.Scopes = "minter", []string{"node.token"}
	token, err := r.socket().Mint(r.t.Context(), m)
	must(r.t, err)
	return r.holder(token.Token), token.Token
}

func (r *rig) holder(token string) *client.Client {
	return r.client(client.Options{URL: "http://" + r.Addr(), Token: token})
}

// What a token was narrowed to holds for what it mints too, or it mints none.
func TestNarrowedTokenMintsNothingWider(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Server.AdminOnTCP = true
	r := start(t, cfg)
	_, wide := r.minter(wire.MintRequest{TTL: "10h"})
	soon := time.Now().Add(20 * time.Minute).UTC().Truncate(time.Second)
	for _, tt := range []struct {
		caveat  string
		carried string // "" for a refusal
	}{
		{"ip = 127.0.0.0/8", "ip = 127.0.0.0/8"},
		{"exp < " + soon.Format(time.RFC3339), "exp < " + soon.Format(time.RFC3339)},
		{"nbf > 2020-01-01T00:00:00Z", "nbf > 2020-01-01T00:00:00Z"},
		{"aud = node", "aud = node"},
		{"tenant = acme", "tenant = acme"},
		{"path = /admin/v1/tokens", ""},
		{"method = POST", ""},
		{"rate <= 100/s", ""},
		{"max_bytes <= 10000", ""},
	} {
		t.Run(tt.caveat, func(t *testing.T) {
			narrow, err := auth.Attenuate(wide, tt.caveat)
			must(t, err)
			got, err := r.holder(narrow).Mint(t.Context(), wire.MintRequest{Sub: "x", Scopes: []string{"registry.propose"}, TTL: "5h"})
			if tt.carried == "" {
				if problem(t, err).Status != http.StatusForbidden {
					t.Errorf("%v", err)
				}
				return
			}
			must(t, err)
			seen, err := auth.Inspect(got.Token)
			must(t, err)
			if said := strings.Join(append(seen.Caveats, "tenant = "+seen.Tenant), "\n"); !strings.Contains(said, tt.carried) {
				t.Errorf("what it minted says only\n%s", said)
			}
		})
	}
	ttl, err := auth.Attenuate(wide, "ttl = 30m")
	must(t, err)
	if got, err := r.holder(ttl).Mint(t.Context(), wire.MintRequest{Sub: "x", Scopes: []string{"registry.propose"}, TTL: "5h"}); err != nil ||
		time.Until(got.ExpiresAt) > 31*time.Minute {
		t.Errorf("of a token for half an hour: until %v, %v", got.ExpiresAt, err)
	}
	list, err := r.socket().Tokens(t.Context(), "", 100)
	must(t, err)
	shown := false
	for _, i := range list.Tokens {
		shown = shown || strings.Contains(strings.Join(i.Caveats, "\n"), "exp < "+soon.Format(time.RFC3339))
	}
	if !shown {
		t.Errorf("no token is listed with the expiry that it was narrowed to: %+v", list.Tokens)
	}
	r.halt()
}

// Who may mint ends tokens one by one; what ends those of everyone takes an administrator, and one tenant ends no other's.
func TestRevokingIsNoWayAcross(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Server.AdminOnTCP = true
	r := start(t, cfg)
	c := r.socket()
	keys, err := c.Keys(t.Context())
	must(t, err)
	mint := func(tenant string) wire.Token {
		token, err := c.Mint(t.Context(), wire.MintRequest{Sub: "x", Tenant: tenant, Scopes: []string{"registry.propose"}})
		must(t, err)
		return token
	}
	foreign := mint("other")
	anyone, _ := r.minter(wire.MintRequest{})
	acme, _ := r.minter(wire.MintRequest{Tenant: "acme"})
	for _, tt := range []struct {
		doc  string
		by   *client.Client
		q    wire.RevokeRequest
		want bool
	}{
		{"all by a minter", anyone, wire.RevokeRequest{All: true}, false},
		{"a key by a minter", anyone, wire.RevokeRequest{Kid: keys.Active}, false},
		{"a token by a minter", anyone, wire.RevokeRequest{TID: mint("third").TID}, true},
		{"a tenant by a minter", anyone, wire.RevokeRequest{Tenant: "fourth"}, true},
		{"all by a tenant", acme, wire.RevokeRequest{All: true}, false},
		{"another tenant", acme, wire.RevokeRequest{Tenant: "other"}, false},
		{"another tenant's token", acme, wire.RevokeRequest{TID: foreign.TID}, false},
		{"a token that nobody knows", acme, wire.RevokeRequest{TID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, false},
		{"its own token", acme, wire.RevokeRequest{TID: mint("acme").TID}, true},
		{"itself", acme, wire.RevokeRequest{Tenant: "acme"}, true},
	} {
		_, err := tt.by.Revoke(t.Context(), tt.q)
		if tt.want && err != nil || !tt.want && problem(t, err).Status != http.StatusForbidden {
			t.Errorf("%s: %v", tt.doc, err)
		}
	}
	if v, err := c.VerifyToken(t.Context(), wire.VerifyRequest{Token: foreign.Token, Scope: "registry.propose"}); err != nil || !v.Allowed {
		t.Errorf("a token that nobody could revoke: %+v, %v", v, err)
	}
	r.halt()
}

// A minter of one tenant sees the tokens of that tenant.
func TestTokensOfOneTenant(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Server.AdminOnTCP = true
	r := start(t, cfg)
	acme, _ := r.minter(wire.MintRequest{Tenant: "acme"})
	_, err := r.socket().Mint(t.Context(), wire.MintRequest{Sub: "x", Tenant: "other", Scopes: []string{"registry.propose"}})
	must(t, err)
	_, err = r.socket().Mint(t.Context(), wire.MintRequest{Sub: "x", Scopes: []string{"registry.propose"}, Caveats: []string{"tenant = acme"}})
	must(t, err)
	list, err := acme.Tokens(t.Context(), "", 100)
	if err != nil || len(list.Tokens) != 2 || list.Tokens[0].Tenant != "acme" || list.Tokens[1].Tenant != "acme" {
		t.Errorf("%+v, %v", list, err)
	}
	r.halt()
}

// A token that a revocation has overtaken on its way into the file is made again: nobody is handed a void one.
func TestNoTokenIsBornVoid(t *testing.T) {
	tx := storetest.NewTx(t, authBucket)
	mustDo(t, tx, addKid{testKid(0)})
	mustDo(t, tx, revoke{What: revokeTenant, Value: "t"})
	if _, err := storetest.Do(tx, mintRow("A", testKid(0), 1)); !errors.Is(err, errKeyMoved) {
		t.Errorf("a token of a tenant that was revoked meanwhile: %v", err)
	}
	late := mintRow("A", testKid(0), 1)
	late.Row.IssuedAt = testEpoch.Add(time.Minute).Unix()
	mustDo(t, tx, late)
}
