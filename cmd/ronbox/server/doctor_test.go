package server

import (
	"errors"
	"strings"
	"testing"

	"ronbox/cmd/ronbox/server/checkup"
	nodeapi "ronbox/httpapi/wire/node"
)

// finding returns one finding of the running node.
func (r *rig) finding(check string) (out nodeapi.NodeFinding) {
	r.t.Helper()
	all, err := r.socket().Doctor(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	times := 0
	for _, f := range all.Findings {
		if f.Check == check {
			out = f
			times++
		}
	}
	if times != 1 {
		r.t.Fatalf("%d findings of %s in %+v", times, check, all.Findings)
	}
	return out
}

// A running node examines itself and its machine, and writes nothing for that.
func TestDoctorOfARunningNode(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.sound()
	for _, check := range []string{"readiness", "tasks", "commits", "growth", "backup", "archive", "disk_space",
		"private_files"} {
		if f := r.finding(check); f.State == "fail" || f.Message == "" {
			t.Errorf("%s: %+v", check, f)
		}
	}
	if f := r.finding("readiness"); f.State != "ok" {
		t.Errorf("a sound node: %+v", f)
	}
	all, err := r.Doctor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all.Findings {
		if f.Check == "disk_sync" || f.Check == checkup.Port {
			t.Errorf("%s was checked: %+v", f.Check, f)
		}
	}

	r.board.Set(ownService, "metrics_live", errors.New("broken"))
	if f := r.finding("readiness"); f.State != "fail" || !strings.Contains(f.Message, "metrics_live: broken") {
		t.Errorf("not ready: %+v", f)
	}
	r.board.Set(ownService, "metrics_live", nil)
	r.halt()

}
