package ledger_test

import (
	"math/rand/v2"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
)

// The ledger over a store passes the conformance tests of the client, as the model does.
func TestConformance(t *testing.T) {
	ledgertest.Conformance(t, func(t *testing.T, clock *ledgertest.Clock) ledgertest.Rig {
		return newRig(t, clock).conforming()
	})
}

// A random sequence of calls, with repeated keys, expiring holds and reboots, has the same outcomes
// as in the model.
func FuzzDuel(f *testing.F) {
	for seed := range uint64(4) {
		choices := make([]byte, 800)
		random := rand.New(rand.NewPCG(seed, 2))
		for i := range choices {
			choices[i] = byte(random.Uint32())
		}
		f.Add(choices)
	}
	f.Fuzz(func(t *testing.T, choices []byte) {
		ledgertest.Duel(t, func(t *testing.T, clock *ledgertest.Clock) ledgertest.Rig {
			return newRig(t, clock,
				func(c *ledger.Config) { c.FlushSlice, c.SlotMax, c.DirtyMaxAccounts = 3, 20, 8 }).conforming()
		}, choices)
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
