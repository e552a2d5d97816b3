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

// A Faulty without faults behaves as its inner client.
func TestFaultlessConforms(t *testing.T) {
	Conformance(t, func(t *testing.T, clock *Clock) Rig {
		return Rig{Client: NewFaulty(NewModel(clock.Now), Faults{})}
	})
}
