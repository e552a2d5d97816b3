package server

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/host"
	"ronbox/appliance/unit"
	nodeapi "ronbox/httpapi/wire/node"
)

// used returns points in which the file has the given used bytes.
func used(all ...float64) []point {
	out := make([]point, len(all))
	for i, v := range all {
		out[i] = noPoint()
		out[i][columnUsed] = v
	}
	return out
}

// line returns n points from one size to another.
func line(n int, from, to float64) []point {
	all := make([]float64, n)
	for i := range all {
		all[i] = from + (to-from)*float64(i)/float64(n-1)
	}
	return used(all...)
}

// The time until the file is full is extrapolated from ten minutes of growth or more.
func TestCheckGrowth(t *testing.T) {
	const mib = 1 << 20
	for _, tt := range []struct {
		name   string
		points []point
		room   float64
		level  host.Level
		seen   string
	}{
		{"no points", nil, mib, host.OK, "not known"},
		{"too early", line(120, 0, mib), mib, host.OK, "not known"},
		{"room is unknown", line(720, 0, mib), -1, host.OK, "not known"},
		{"no growth", line(721, mib, mib), mib, host.OK, "has not grown in 1h0m0s"},
		{"it shrinks", line(721, 2*mib, mib), mib, host.OK, "has not grown"},
		{"41 days", line(721, 0, mib), 41 * 24 * mib, host.OK, "file full in 41 d"},
		{"10 days", line(721, 0, mib), 10 * 24 * mib, host.Warn, "file full in 10 d"},
		{"5 hours", line(721, 0, mib), 5 * mib, host.Warn, "file full in 5 h"},
		{"full", line(721, 0, mib), 0, host.Warn, "file full in 0 h"},
		{"half an hour", line(361, 0, mib), 5 * mib, host.Warn, "in 2 h"},
		{"very long", line(721, 0, 1), 1 << 50, host.OK, "in more than 10 years"},
		{"with gaps", append(used(math.NaN()), append(line(721, 0, mib), noPoint())...), 5 * mib, host.Warn, "in 5 h"},
	} {
		f := checkGrowth(tt.points, tt.room)
		if f.Level != tt.level || !strings.Contains(f.Seen, tt.seen) || (f.Level == host.OK) != (f.Advice == "") {
			t.Errorf("%s: %+v", tt.name, f)
		}
	}
}

func TestCheckCommits(t *testing.T) {
	at := func(ms float64) point {
		p := noPoint()
		p[columnP99] = ms
		return p
	}
	if seriesNames()[columnP99].Name != "commit_p99_ms" {
		t.Fatal("another column")
	}
	for seen, points := range map[string][]point{
		"there were none": used(1),
		"up to 3.0 ms":    {at(2), noPoint(), at(3), at(1)},
		"up to 1500.0 ms": {at(1500), at(1)},
	} {
		f := checkCommits(points)
		if !strings.Contains(f.Seen, seen) || (f.Level == host.Warn) != strings.Contains(seen, "1500") {
			t.Errorf("%s: %+v", seen, f)
		}
	}
}

func TestCheckBackup(t *testing.T) {
	for _, tt := range []struct {
		every, since time.Duration
		taken        bool
		level        host.Level
		seen         string
	}{
		{time.Hour, 3 * time.Second, false, host.OK, "no snapshot for 3s; one is due every 1h0m0s"},
		{time.Hour, 3 * time.Hour, false, host.Warn, "no snapshot for 3h0m0s"},
		{time.Hour, -time.Second, true, host.OK, "the last snapshot is 0s old"},
		{time.Hour, 2 * time.Hour, true, host.OK, "2h0m0s old, one is due every 1h0m0s"},
		{time.Hour, 3 * time.Hour, true, host.Warn, "3h0m0s old"},
	} {
		if f := checkBackup(tt.every, tt.since, tt.taken); f.Level != tt.level || !strings.Contains(f.Seen, tt.seen) {
			t.Errorf("%v, %v, %v: %+v", tt.every, tt.since, tt.taken, f)
		}
	}
}

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
		n.closeEngines(t.Context())
	}
}

// A start is not taken for a snapshot, neither before the janitor has looked for one nor after it
// has found none.
func TestBackupOfANewNode(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Store.SnapshotEvery = unit.Duration(time.Hour)
	n := wired(t, cfg, Options{}, &logs{})
	n.started = time.Unix(1000, 0)
	at := n.started.Add(time.Minute)
	n.now = func() time.Time { return at }
	const none = "no snapshot for 1m0s; one is due every 1h0m0s"
	if f := n.checkBackup(); f.Seen != none {
		t.Errorf("before the janitor: %+v", f)
	}
	n.backedUp(n.started)
	if f := n.checkBackup(); f.Seen != none {
		t.Errorf("without a snapshot: %+v", f)
	}
	n.backedUp(at)
	if f := n.checkBackup(); !strings.HasPrefix(f.Seen, "the last snapshot is 0s old") {
		t.Errorf("with a snapshot: %+v", f)
	}
	n.closeEngines(t.Context())
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

	for i, p := range line(seriesPoints, 0, float64(r.store.BytesLeft())) { // nothing else adds points now
		r.series.add(time.Unix(int64(i)*5, 0), p)
	}
	growth := r.checkNode()[3]
	if growth.Check != "growth" || growth.Level != host.Warn || !strings.HasPrefix(growth.Seen, "file full in ") {
		t.Errorf("growth: %+v", growth)
	}
}
