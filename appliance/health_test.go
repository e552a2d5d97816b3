package appliance

import (
	"slices"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/wire"
)

// A task that keeps failing shows as a key of its service, hard if writes need it, and goes when it is well again.
func TestEscalationShowsInReadiness(t *testing.T) {
	for _, tt := range []struct {
		service, task string
		hard          bool
	}{
		{"registry", "pipeline", true}, {"registry", "publisher", false}, {"node", "http", true}, {"node", "health_gate", false},
	} {
		n := wired(t, newConfig(t), Options{}, &logs{})
		for _, p := range n.probes() {
			n.board.Set(p.Service, p.Key, nil)
		}
		key := tt.service + ".task:" + tt.task
		n.escalated(tt.service, tt.task, true)
		if r := n.board.Report(tt.service, ""); !slices.Contains(r.Missing, key) || tt.hard && r.WriteReady {
			t.Errorf("%s: %+v", key, r)
		}
		n.escalated(tt.service, tt.task, false)
		if r := n.board.Report(tt.service, ""); slices.Contains(r.Missing, key) {
			t.Errorf("%s stays: %+v", key, r)
		}
		n.closeEngines()
	}
}

// A soft fault degrades a node that serves, and its end heals it; writes go on.
func TestDegradedAndHealed(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.until("running", func(p flow.Phase) bool { return p == flow.Running })
	r.escalated("registry", "publisher", true)
	r.until("degraded", func(p flow.Phase) bool { return p == flow.Degraded })
	r.mustPut(r.socket(), signer(t, cfg), 2, "x")
	r.escalated("registry", "publisher", false)
	r.until("running", func(p flow.Phase) bool { return p == flow.Running })
	r.halt()
}

// Whoever asked to be told is told once, with the address that is served.
func TestOnRunning(t *testing.T) {
	cfg, _ := devConfig(t)
	n, told := wired(t, cfg, Options{}, &logs{}), make(chan wire.Status, 2)
	n.OnRunning(func(s wire.Status) { told <- s; n.Drain(engines.Actor{}, "", "seen") })
	if code := n.Run(t.Context()); code != ExitClean {
		t.Errorf("exit %d", code)
	}
	if s := <-told; s.URL != "http://"+n.Addr() || s.NodeID == "" || len(told) > 0 {
		t.Errorf("told %+v, and %d times more", s, len(told))
	}
}
