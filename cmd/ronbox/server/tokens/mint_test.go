package tokens

import (
	"errors"
	"testing"

	"ronbox/engines"
	"ronbox/httpapi/auth"
	nodeapi "ronbox/httpapi/wire/node"
)

// A token cannot mint a token with more rights than its own.
func TestMayMint(t *testing.T) {
	plain := nodeapi.MintRequest{Scopes: []string{"registry.propose"}}
	admin := nodeapi.MintRequest{Scopes: []string{"registry.propose", "node:admin"}}
	acme := nodeapi.MintRequest{Scopes: []string{"registry.propose"}, Tenant: "acme"}
	for _, tt := range []struct {
		doc  string
		by   engines.Actor
		ask  nodeapi.MintRequest
		want bool
	}{
		{"an administrator mints administrators", engines.Actor{Admin: true}, admin, true},
		{"a minter mints what is not the node's", engines.Actor{}, plain, true},
		{"a minter mints no administrator", engines.Actor{}, admin, false},
		{"one tenant mints for itself", engines.Actor{Tenant: "acme", Caveats: []string{"tenant = acme"}}, acme, true},
		{"one tenant mints for no other", engines.Actor{Tenant: "acme", Caveats: []string{"tenant = acme"}},
			nodeapi.MintRequest{Scopes: plain.Scopes, Tenant: "x"}, false},
		{"an administrator of one tenant neither",
			engines.Actor{Admin: true, Tenant: "acme",
				Caveats: []string{"tenant = acme"}}, nodeapi.MintRequest{Scopes: plain.Scopes, Tenant: "x"}, false},
		{"what is narrowed to an account mints none", engines.Actor{Caveats: []string{"account = a"}}, plain, false},
		{"nor one narrowed to a tenant's account",
			engines.Actor{Tenant: "acme", Caveats: []string{"tenant = acme", "account = a"}}, acme, false},
		{"what is narrowed to a signer mints none", engines.Actor{Caveats: []string{"registry.signer = org:a#k"}},
			plain, false},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			_, err := mayMint(tt.by, tt.ask)
			var denied *auth.DeniedError
			if (err == nil) != tt.want || err != nil && !errors.As(err, &denied) {
				t.Errorf("%v, want allowed %v", err, tt.want)
			}
		})
	}
}
