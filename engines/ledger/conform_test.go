package ledger_test

import (
	"testing"

	"ronbox/engines/ledger/ledgertest"
)

// The ledger over a store keeps the rules of every client, as the model does.
func TestConformance(t *testing.T) {
	ledgertest.Conformance(t, func(t *testing.T, clock *ledgertest.Clock) ledgertest.Rig {
		return newRig(t, clock).conforming()
	})
}

func (r *rig) conforming() ledgertest.Rig {
	return ledgertest.Rig{
		Client: r.l,
		Sweep:  func() error { return r.l.Sweep(r.ctx()) },
		Reopen: func() ledgertest.Rig {
			r.reopen()
			return r.conforming()
		},
	}
}
