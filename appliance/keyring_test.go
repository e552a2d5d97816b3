package appliance

import (
	"slices"
	"testing"
)

// While no key is in force every token is void: the wallet says so, instead of letting callers take it for their fault.
func TestWithoutAKeyTheWalletIsNotReady(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	keys := slices.Clone(r.keys.keys)
	retired := slices.Clone(keys)
	for i := range retired {
		retired[i].State = kidRetired
	}
	ready := func() bool { return !slices.Contains(r.board.Report("wallet", "").Missing, "wallet.auth_ready") }
	for _, tt := range []struct {
		keys []keyed
		want bool
	}{{retired, false}, {keys, true}} {
		r.keys.apply(authChange{keys: tt.keys}) // no command is under way
		r.await("auth_ready to follow", func() bool { return ready() == tt.want })
		if err := r.wallet.WriteReady(); (err == nil) != tt.want {
			t.Errorf("%d keys, the last one %s: %v", len(tt.keys), tt.keys[len(tt.keys)-1].State, err)
		}
	}
	r.halt()
}
