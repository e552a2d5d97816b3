package engines

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAnonymous(t *testing.T) {
	root := uint32(0)
	for _, tt := range []struct {
		actor Actor
		want  bool
	}{
		{Actor{}, true},
		{Actor{Signer: "alice"}, true},
		{Actor{CapID: "01J0"}, false},
		{Actor{Principal: "ops"}, false},
		{Actor{UID: &root}, false},
	} {
		if got := tt.actor.Anonymous(); got != tt.want {
			t.Errorf("%+v: anonymous = %v, want %v", tt.actor, got, tt.want)
		}
	}
}

func TestMay(t *testing.T) {
	for _, tt := range []struct {
		actor Actor
		want  bool
	}{
		{Actor{}, false},
		{Actor{Scopes: []string{"wallet.read"}}, false},
		{Actor{Scopes: []string{"wallet.read", "wallet.transfer"}}, true},
		{Actor{Admin: true}, true},
	} {
		if got := tt.actor.May("wallet.transfer"); got != tt.want {
			t.Errorf("%+v: may = %v, want %v", tt.actor, got, tt.want)
		}
	}
}
