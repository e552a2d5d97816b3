package upkeep

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// The recorder runs from the first long commit until a minute has passed without one. The lookout
// does not stop a recording that another caller started.
func TestLookout(t *testing.T) {
	out, begun := recorderSwitch{flight: obs.NewFlight()}, time.Now()
	for _, tt := range []struct {
		at, age time.Duration
		want    bool
	}{
		{0, 0, false},
		{1, longCommit - 1, false},
		{2, longCommit, true},
		{3, 0, true},
		{4, time.Hour, true},
		{3 + calmAfter, 0, true}, // the minute starts at the last long commit
		{4 + calmAfter, longCommit - 1, false},
		{5 + calmAfter, 0, false},
		{6 + calmAfter, longCommit, true},
	} {
		must(t, out.update(begun.Add(tt.at), tt.age))
		if got := out.flight.Recording(); got != tt.want {
			t.Errorf("at %s, a commit of %s: it records is %v, want %v", tt.at, tt.age, got, tt.want)
		}
	}
	must(t, out.flight.Start())
	out.stop()
	out.stop()
	if !out.flight.Recording() {
		t.Error("it has stopped what another has started")
	}
	out.flight.Stop()
}

// If another node in the process holds the recorder, the lookout tries again at its next turn.
func TestLookoutBesideAnother(t *testing.T) {
	out, other := recorderSwitch{flight: obs.NewFlight()}, obs.NewFlight()
	must(t, other.Start())
	if err := out.update(time.Now(), longCommit); err == nil || out.on {
		t.Errorf("both record: %v", err)
	}
	other.Stop()
	must(t, out.update(time.Now(), longCommit))
	out.stop()
	if out.flight.Recording() {
		t.Error("it goes on")
	}
}

// A slow commit writes a dump of the flight recorder, and the number of dumps is bounded.
func TestSlowCommitIsKept(t *testing.T) {
	log, flight, dir := new(bytes.Buffer), obs.NewFlight(), filepath.Join(t.TempDir(), "flight")
	r := NewRecorder(RecorderDeps{
		Catalog: flow.NewCatalog(nil, hclog.NewNullLogger()), Service: "node", Flight: flight, Dir: dir, Wall: time.Now,
		Log:       hclog.New(&hclog.LoggerOptions{Output: log}),
		CommitAge: func() time.Duration { return 0 },
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.Slow("commit", 3*time.Second)
	await(t, "one that nothing was recorded of", func() bool { return r.slow.Len() == 0 })
	must(t, flight.Start())
	r.Slow("commit", 3*time.Second)
	await(t, "the dump", func() bool { return len(dumps(dir)) == 1 })
	r.Slow("commit", 3*time.Second)
	await(t, "the next one to be looked at", func() bool { return r.slow.Len() == 0 })
	r.Slow("commit", 3*time.Second)
	await(t, "the last one to be looked at", func() bool { return r.slow.Len() == 0 })
	if got := dumps(dir); len(got) != 1 {
		t.Errorf("a disk that is slow was given %d dumps to write within a moment", len(got))
	}
	for range flightFiles {
		_, err := r.keepFlight(dir, slowCommit{})
		must(t, err)
	}
	if got := dumps(dir); len(got) != flightFiles {
		t.Errorf("%d dumps are kept, want %d: %v", len(got), flightFiles, got)
	}
	if _, err := r.keepFlight("/proc/nowhere", slowCommit{}); err == nil {
		t.Error("a dump into a folder that cannot be")
	}
	flight.Stop()
	stop()
	<-ended
	if strings.Contains(log.String(), "flight_not_kept") {
		t.Errorf("a node that records nothing tried to keep it\n%s", log)
	}
}

func dumps(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "flight-*.trace"))
	return found
}

// await waits until is holds.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited for %s", what)
		}
	}
}
