package server

import (
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/client"
	"ronbox/httpapi/scopes"
	nodeapi "ronbox/httpapi/wire/node"
)

// minter is a client with a token that may mint and is no administrator.
func (r *rig) minter(m nodeapi.MintRequest) (*apiClient, string) {
	r.t.Helper()
	m.Sub, m.Scopes = "minter", []string{"node.token"}
	token, err := r.socket().Mint(r.t.Context(), m)
	must(r.t, err)
	return r.holder(token.Token), token.Token
}

func (r *rig) holder(token string) *apiClient {
	return r.client(client.Options{URL: "http://" + r.Addr(), Token: token})
}

// A narrowed token mints only tokens with the same restrictions, or is refused.
func TestNarrowedTokenMintsNothingWider(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Server.AdminOnTCP = true
	r := start(t, cfg)
	_, wide := r.minter(nodeapi.MintRequest{TTL: "10h"})
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
			got, err := r.holder(narrow).
				Mint(t.Context(), nodeapi.MintRequest{Sub: "x", Scopes: []string{"registry.propose"}, TTL: "5h"})
			if tt.carried == "" {
				if problem(t, err).Status != http.StatusForbidden {
					t.Errorf("%v", err)
				}
				return
			}
			must(t, err)
			seen, err := auth.Inspect(got.Token)
			must(t, err)
			if said := strings.Join(append(seen.Caveats, "tenant = "+seen.Tenant), "\n"); !strings.Contains(
				said,
				tt.carried,
			) {
				t.Errorf("what it minted says only\n%s", said)
			}
		})
	}
	ttl, err := auth.Attenuate(wide, "ttl = 30m")
	must(t, err)
	if got, err := r.holder(ttl).
		Mint(t.Context(), nodeapi.MintRequest{Sub: "x", Scopes: []string{"registry.propose"}, TTL: "5h"}); err != nil ||
		time.Until(got.ExpiresAt.Time) > 31*time.Minute {
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

// Who may mint ends tokens one by one; what ends those of everyone takes an administrator, and one
// tenant ends no other's.
func TestRevokingIsNoWayAcross(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Server.AdminOnTCP = true
	r := start(t, cfg)
	c := r.socket()
	keys, err := c.Keys(t.Context())
	must(t, err)
	mint := func(tenant string) nodeapi.Token {
		token, err := c.Mint(
			t.Context(),
			nodeapi.MintRequest{Sub: "x", Tenant: tenant, Scopes: []string{"registry.propose"}},
		)
		must(t, err)
		return token
	}
	foreign := mint("other")
	anyone, _ := r.minter(nodeapi.MintRequest{})
	acme, _ := r.minter(nodeapi.MintRequest{Tenant: "acme"})
	for _, tt := range []struct {
		doc  string
		by   *apiClient
		q    nodeapi.RevokeRequest
		want bool
	}{
		{"all by a minter", anyone, nodeapi.RevokeRequest{All: true}, false},
		{"a key by a minter", anyone, nodeapi.RevokeRequest{Kid: keys.Active}, false},
		{"a token by a minter", anyone, nodeapi.RevokeRequest{TID: mint("third").TID}, true},
		{"a tenant by a minter", anyone, nodeapi.RevokeRequest{Tenant: "fourth"}, true},
		{"all by a tenant", acme, nodeapi.RevokeRequest{All: true}, false},
		{"another tenant", acme, nodeapi.RevokeRequest{Tenant: "other"}, false},
		{"another tenant's token", acme, nodeapi.RevokeRequest{TID: foreign.TID}, false},
		{"a token that nobody knows", acme, nodeapi.RevokeRequest{TID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}, false},
		{"its own token", acme, nodeapi.RevokeRequest{TID: mint("acme").TID}, true},
		{"itself", acme, nodeapi.RevokeRequest{Tenant: "acme"}, true},
	} {
		_, err := tt.by.Revoke(t.Context(), tt.q)
		if tt.want && err != nil || !tt.want && problem(t, err).Status != http.StatusForbidden {
			t.Errorf("%s: %v", tt.doc, err)
		}
	}
	if v, err := c.VerifyToken(
		t.Context(),
		nodeapi.VerifyRequest{Token: foreign.Token, Scope: "registry.propose"},
	); err != nil ||
		!v.Allowed {
		t.Errorf("a token that nobody could revoke: %+v, %v", v, err)
	}
	r.halt()
}

// A minter of one tenant sees the tokens of that tenant.
func TestTokensOfOneTenant(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	cfg.Server.AdminOnTCP = true
	r := start(t, cfg)
	acme, _ := r.minter(nodeapi.MintRequest{Tenant: "acme"})
	_, err := r.socket().
		Mint(t.Context(), nodeapi.MintRequest{Sub: "x", Tenant: "other", Scopes: []string{"registry.propose"}})
	must(t, err)
	_, err = r.socket().
		Mint(t.Context(), nodeapi.MintRequest{Sub: "x", Scopes: []string{"registry.propose"},
			Caveats: []string{"tenant = acme"}})
	must(t, err)
	list, err := acme.Tokens(t.Context(), "", 100)
	if err != nil || len(list.Tokens) != 2 || list.Tokens[0].Tenant != "acme" || list.Tokens[1].Tenant != "acme" {
		t.Errorf("%+v, %v", list, err)
	}
	r.halt()
}

// A token that is revoked is void before the revocation is answered, whichever way it is revoked.
func TestRevokedBeforeTheReply(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c := r.socket()
	for _, tt := range []struct {
		doc  string
		what func(nodeapi.Token, nodeapi.KeyList) nodeapi.RevokeRequest
	}{
		{"by its id", func(k nodeapi.Token, _ nodeapi.KeyList) nodeapi.RevokeRequest {
			return nodeapi.RevokeRequest{TID: k.TID}
		}},
		{"by its tenant", func(nodeapi.Token, nodeapi.KeyList) nodeapi.RevokeRequest {
			return nodeapi.RevokeRequest{Tenant: "acme"}
		}},
		{"by its key", func(_ nodeapi.Token, k nodeapi.KeyList) nodeapi.RevokeRequest {
			return nodeapi.RevokeRequest{Kid: k.Active}
		}},
		{"with all",
			func(nodeapi.Token, nodeapi.KeyList) nodeapi.RevokeRequest { return nodeapi.RevokeRequest{All: true} }},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			token, err := c.Mint(
				t.Context(),
				nodeapi.MintRequest{Sub: "me", Tenant: "acme", Scopes: []string{"registry.propose"}},
			)
			must(t, err)
			keys, err := c.Keys(t.Context())
			must(t, err)
			holder := r.client(client.Options{URL: "http://" + r.Addr(), Token: token.Token})
			if _, err := holder.Propose(t.Context(), draft(2, "x"), ""); err != nil {
				t.Fatalf("before: %v", err)
			}
			done, err := c.Revoke(t.Context(), tt.what(token, keys))
			if err != nil || done.Already || !done.Until.After(time.Now()) {
				t.Fatalf("%+v, %v", done, err)
			}
			_, err = holder.Propose(t.Context(), draft(2, "y"), "")
			if p := problem(t, err); p.Status != http.StatusUnauthorized {
				t.Errorf("after: %+v", p)
			}
			list, err := c.Tokens(t.Context(), "", 100)
			must(t, err)
			i := slices.IndexFunc(list.Tokens, func(i nodeapi.TokenInfo) bool { return i.TID == token.TID })
			if i < 0 || !list.Tokens[i].Revoked || list.Tokens[i].Sub != "me" {
				t.Errorf("listed as %+v", list.Tokens)
			}
			verdict, err := c.VerifyToken(
				t.Context(),
				nodeapi.VerifyRequest{Token: token.Token, Scope: "registry.propose", Service: "registry"},
			)
			if err != nil || verdict.Allowed || len(verdict.Failed) == 0 && verdict.Reason == "" {
				t.Errorf("verdict %+v, %v", verdict, err)
			}
		})
	}
	if _, err := c.Mint(
		t.Context(),
		nodeapi.MintRequest{Sub: "me", Tenant: "acme", Scopes: []string{"registry.propose"}},
	); err != nil {
		t.Errorf("a new token after all that: %v", err)
	}
	for _, q := range []nodeapi.RevokeRequest{{TID: "nonsense"}, {Kid: "nonsense"}, {Tenant: strings.Repeat("x", 300)},
		{}, {TID: "x", All: true}} {
		if _, err := c.Revoke(t.Context(), q); problem(t, err).Status != http.StatusBadRequest {
			t.Errorf("%+v: %v", q, err)
		}
	}
	r.halt()
	for _, want := range []string{"auth.token_minted", "auth.revoked"} {
		if rows := auditRows(t, cfg); !slices.Contains(rows, want) {
			t.Errorf("no audit row %s in %v", want, rows)
		}
	}
	again := start(t, cfg) // revocations survive a restart
	if list, err := again.socket().
		Tokens(t.Context(), "", 100); err != nil || len(list.Tokens) < 5 ||
		!list.Tokens[0].Revoked {
		t.Errorf("after a restart: %+v, %v", list, err)
	}
	again.halt()
}

// While keys overlap, tokens of both are good; a retired one's are not.
func TestKeysOverRotation(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c := r.socket()
	before, err := c.Keys(t.Context())
	must(t, err)
	fresh, err := c.RotateKey(t.Context())
	if err != nil || fresh.State != "active" || fresh.Kid == before.Active ||
		fresh.RotateAt.Sub(fresh.CreatedAt) != 30*24*time.Hour {
		t.Fatalf("%+v, %v", fresh, err)
	}
	if _, err := r.tcp().Propose(t.Context(), draft(2, "x"), ""); err != nil {
		t.Errorf("a token of the key before: %v", err)
	}
	keys, err := c.Keys(t.Context())
	if err != nil || len(keys.Keys) != 2 || keys.Active != fresh.Kid || keys.Keys[1].State != "verify" ||
		keys.Keys[1].VerifyUntil.IsZero() {
		t.Errorf("%+v, %v", keys, err)
	}
	if _, err := c.RetireKey(t.Context(), fresh.Kid); problem(t, err).Status != http.StatusConflict {
		t.Errorf("the active key: %v", err)
	}
	if _, err := c.RetireKey(t.Context(), "01ARZ3NDEKTSV4RRFFQ69G5FAV"); problem(t, err).Status != http.StatusNotFound {
		t.Errorf("a key that is none: %v", err)
	}
	if old, err := c.RetireKey(t.Context(), before.Active); err != nil || old.State != "retired" {
		t.Errorf("%+v, %v", old, err)
	}
	if _, err := r.tcp().Propose(t.Context(), draft(2, "y"), ""); problem(t, err).Status != http.StatusUnauthorized {
		t.Errorf("a token of the retired key: %v", err)
	}
	r.halt()
}

// A minter without administrator rights cannot mint tokens for the node itself.
func TestMintingIsNoWayUp(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Server.AdminOnTCP = true
	r := start(t, cfg)
	minter, err := r.socket().Mint(t.Context(), nodeapi.MintRequest{Sub: "minter", Scopes: []string{"node.token"}})
	must(t, err)
	c := r.client(client.Options{URL: "http://" + r.Addr(), Token: minter.Token})
	if _, err := c.Mint(
		t.Context(),
		nodeapi.MintRequest{Sub: "x", Scopes: []string{"registry.propose", "node.admin"}},
	); problem(t, err).Status != http.StatusForbidden {
		t.Errorf("node.admin by node.token: %v", err)
	}
	if _, err := c.Mint(
		t.Context(),
		nodeapi.MintRequest{Sub: "x", Scopes: []string{"registry.propose"}, Caveats: []string{"max_bytes <= 10"}},
	); err != nil {
		t.Errorf("what it may mint: %v", err)
	}
	r.halt()
}

// A token made beside a stopped node is good once it runs; beside a running one it is refused.
func TestMintOffline(t *testing.T) {
	cfg, _ := devConfig(t)
	token, err := MintOffline(t.Context(), cfg, Build{},
		nodeapi.MintRequest{Sub: "ops", Scopes: []string{"registry.propose"}})
	must(t, err)
	if seen, err := auth.Inspect(token.Token); err != nil || seen.Sub != "ops" {
		t.Errorf("%+v, %v", seen, err)
	}
	r := start(t, cfg)
	c := r.client(client.Options{URL: "http://" + r.Addr(), Token: token.Token})
	if _, err := c.Propose(t.Context(), draft(2, "x"), ""); err != nil {
		t.Errorf("the token: %v", err)
	}
	locked := *cfg
	locked.Store.LockTimeout = 0
	if _, err := MintOffline(t.Context(), &locked, Build{},
		nodeapi.MintRequest{Sub: "ops", Scopes: []string{"a.b"}}); wiring.OutcomeOf(
		err,
	).Code != process.ExitLocked {
		t.Errorf("beside a running node: %v", err)
	}
	r.halt()
}

// While no key is active every token is void: the wallet says so, instead of letting callers take
// it for their fault.
func TestWithoutAKeyTheWalletIsNotReady(t *testing.T) {
	cfg, _ := devConfig(t)
	n := wired(t, cfg, Options{}, io.Discard)
	defer n.services.Close(t.Context())
	if err := n.env().Ready(); err == nil {
		t.Error("the wallet is ready before the keys are read")
	}
	r := start(t, cfg)
	if missing := r.board.Report("wallet", "").Missing; slices.Contains(missing, "wallet.auth_ready") {
		t.Errorf("missing of a node that serves: %v", missing)
	}
	r.halt()
}

// Every scope of a route, and every scope that a comment, a help text, README or the manual names,
// can be minted.
func TestEveryNamedScopeIsMinted(t *testing.T) {
	t.Parallel()
	var named []string
	for _, s := range scopes.Services() {
		for _, r := range s.Routes {
			named = append(append(named, r.AnyOf...), r.Scope, r.More)
		}
	}
	const root = "../../.."
	phrase := regexp.MustCompile(`\bscopes?[\s/]+([a-z]+\.[a-z_]+(?:(?:,| and| or)[\s/]+[a-z]+\.[a-z_]+)*)`)
	name := regexp.MustCompile(`[a-z]+\.[a-z_]+`)
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		code := strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go")
		if err != nil || !code && filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range phrase.FindAllSubmatch(text, -1) {
			named = append(named, name.FindAllString(string(found[1]), -1)...)
		}
		return err
	}))
	slices.Sort(named)
	named = slices.DeleteFunc(slices.Compact(named), func(s string) bool { return s == "" })
	if !slices.Contains(named, "edge.fetch") || !slices.Contains(named, "node.metrics") {
		t.Fatalf("scopes found: %q", named)
	}
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	for _, s := range named {
		if _, err := r.socket().Mint(t.Context(), nodeapi.MintRequest{Sub: "x", Scopes: []string{s}}); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}
