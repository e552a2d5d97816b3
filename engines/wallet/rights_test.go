package wallet

import (
	"errors"
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// An op of a batch needs the same scope as the op alone.
func TestScopesOfOps(t *testing.T) {
	for _, tt := range []struct {
		scope string
		op    record.Op
		may   bool
	}{
		{"wallet.transfer", record.OpTransfer, true}, {"wallet.transfer", record.OpBurn, false},
		{"wallet.release", record.OpRelease, true}, {"wallet.admin", record.OpRelease, true},
		{"wallet.admin", record.OpCapture, false}, {"wallet.read", record.OpRelease, false},
	} {
		err := mayOp(engines.Actor{Scopes: []string{tt.scope}}, tt.op)
		if (err == nil) != tt.may || err != nil && !errors.Is(err, ErrForbidden) {
			t.Errorf("%s by %s: %v", tt.op, tt.scope, err)
		}
	}
}
