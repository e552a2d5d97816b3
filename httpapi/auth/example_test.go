package auth_test

import (
	"errors"
	"fmt"
	"time"

	"ronbox/httpapi/auth"
)

// A token is minted with scopes. Any holder can narrow it, without the node. The node checks it for
// each request.
func Example() {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	a := auth.New(auth.DefaultConfig(), nil)
	secret := make([]byte, 32)
	key := auth.Key{Kid: "k1", Salt: make([]byte, 32), State: auth.KeyActive, CreatedAt: now}
	a.Swap(auth.NewState(secret, []auth.Key{key}, nil, 0))

	token, _, err := a.Mint(auth.MintSpec{Sub: "ci", Scopes: []string{"wallet.read", "wallet.transfer"}, Now: now})
	if err != nil {
		fmt.Println(err)
		return
	}
	narrow, err := auth.Attenuate(token, "scope = wallet.read")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, scope := range []string{"wallet.read", "wallet.transfer"} {
		actor, err := a.Check(narrow, auth.Request{Service: "wallet", Scope: scope, Now: now})
		var denied *auth.DeniedError
		fmt.Println(scope, actor.Principal, errors.As(err, &denied))
	}
	// Output:
	// wallet.read ci false
	// wallet.transfer  true
}
