package ledgertest

import "testing"

func TestModelConforms(t *testing.T) {
	Conformance(t, func(t *testing.T, clock *Clock) Rig {
		m := NewModel(clock.Now)
		var rig Rig
		rig = Rig{Client: m, Sweep: func() error { return m.Sweep(t.Context()) }, Reopen: func() Rig { return rig }}
		return rig
	})
}

// Without faults a Faulty is not there.
func TestFaultlessConforms(t *testing.T) {
	Conformance(t, func(t *testing.T, clock *Clock) Rig {
		return Rig{Client: NewFaulty(NewModel(clock.Now), Faults{})}
	})
}
