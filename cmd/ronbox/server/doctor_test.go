package server

import (
	"errors"
	"os"
	"strings"
	"testing"

	"ronbox/appliance/host"
	nodeapi "ronbox/httpapi/wire/node"
)

// A node without a schedule is warned of, unless it is a dev node or keeps nothing.
func TestNoScheduleIsAWarning(t *testing.T) {
	for doc, tt := range map[string]struct {
		dev, amnesia bool
		want         host.Level
	}{"a node": {want: host.Warn}, "a dev node": {dev: true, want: host.OK}, "in memory": {amnesia: true, want: host.OK}} {
		cfg := newConfig(t)
		must(t, os.Mkdir(cfg.Node.DataDir, 0o700))
		cfg.Amnesia.Enabled = tt.amnesia
		if tt.dev {
			cfg, _ = devConfig(t)
			cfg.Store.SnapshotEvery = 0
		}
		n := wired(t, cfg, Options{}, &logs{})
		if f := n.checkBackup(); f.Level != tt.want || (f.Advice != "") != (tt.want == host.Warn) {
			t.Errorf("%s: %+v", doc, f)
		}
		n.services.Close(t.Context())
	}
}

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
	for _, check := range []string{"readiness", "tasks", "commits", "growth", "backup", "disk_space", "private_files"} {
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
		if f.Check == "disk_sync" || f.Check == CheckPort {
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
