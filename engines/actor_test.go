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
