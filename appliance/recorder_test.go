package appliance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/obs"
	"ronbox/store"
)

// The recorder runs from the first long commit until there was none for a minute; what another has started is left to it.
func TestLookout(t *testing.T) {
	out, begun := lookout{flight: obs.NewFlight()}, time.Now()
	for _, tt := range []struct {
		at, age time.Duration
		want    bool
	}{
		{0, 0, false},
		{1, longCommit - 1, false},
		{2, longCommit, true},
		{3, 0, true},
		{4, time.Hour, true},
		{3 + calmAfter, 0, true}, // a minute is counted from the last one
		{4 + calmAfter, longCommit - 1, false},
		{5 + calmAfter, 0, false},
		{6 + calmAfter, longCommit, true},
	} {
		must(t, out.look(begun.Add(tt.at), tt.age))
		if got := out.flight.Recording(); got != tt.want {
			t.Errorf("at %s, a commit of %s: it records is %v, want %v", tt.at, tt.age, got, tt.want)
		}
	}
	must(t, out.flight.Start())
	out.rest()
	out.rest()
	if !out.flight.Recording() {
		t.Error("it has stopped what another has started")
	}
	out.flight.Stop()
}

// Another node of the process may have the recorder: it is asked for again at the next look.
func TestLookoutBesideAnother(t *testing.T) {
	out, other := lookout{flight: obs.NewFlight()}, obs.NewFlight()
	must(t, other.Start())
	if err := out.look(time.Now(), longCommit); err == nil || out.on {
		t.Errorf("both record: %v", err)
	}
	other.Stop()
	must(t, out.look(time.Now(), longCommit))
	out.rest()
	if out.flight.Recording() {
		t.Error("it goes on")
	}
}

// crawl is a command that takes until it is told.
type crawl struct{ out chan struct{} }

func (crawl) Kind() string { return "node.crawl/1" }

func (c crawl) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) {
	<-c.out
	return struct{}{}, nil
}

// A node at rest records nothing; one whose commit takes long does while it runs.
func TestLongCommitIsRecorded(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	if r.flight.Recording() {
		t.Error("a node at rest records")
	}
	c, done := crawl{make(chan struct{})}, make(chan error, 1)
	go func() {
		_, err := store.Commit(context.WithoutCancel(t.Context()), r.store, store.Control, store.Command[struct{}](c))
		done <- err
	}()
	r.await("the recorder", r.flight.Recording)
	close(c.out)
	must(t, <-done)
	r.halt()
	if r.flight.Recording() {
		t.Error("a node that has stopped records")
	}
}

// Whoever asks a node at rest has it record for a while, but no longer than he waits.
func TestFlightOfANodeAtRest(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	ctx, leave := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() { gone <- r.Profile(ctx, "flight", time.Hour, io.Discard) }()
	r.await("the recorder", r.flight.Recording)
	var out bytes.Buffer
	if err := r.Profile(t.Context(), "flight", time.Millisecond, &out); err != nil || out.Len() == 0 {
		t.Errorf("beside another who waits: %d bytes, %v", out.Len(), err)
	}
	if !r.flight.Recording() {
		t.Error("the one who was done has stopped it for the other")
	}
	leave()
	if err := <-gone; !errors.Is(err, context.Canceled) || r.flight.Recording() {
		t.Errorf("one who has left: %v, it records is %v", err, r.flight.Recording())
	}
	other := obs.NewFlight()
	must(t, other.Start())
	defer other.Stop()
	if err := r.socket().Profile(t.Context(), "flight", time.Second, io.Discard); problem(t, err).Status != http.StatusConflict {
		t.Errorf("another node of the process records: %v", err)
	}
	r.halt()
}

// A slow commit leaves a dump of what happened around it, and no more dumps than are kept.
func TestSlowCommitIsKept(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	r.commitWasSlow("commit", 3*time.Second)
	r.await("one that nothing was recorded of", func() bool { return r.slow.Len() == 0 })
	must(t, r.flight.Start())
	r.commitWasSlow("commit", 3*time.Second)
	dir := cfg.Path(flightDir)
	r.await("the dump", func() bool { return len(dumps(dir)) == 1 })
	r.commitWasSlow("commit", 3*time.Second)
	r.await("the next one to be looked at", func() bool { return r.slow.Len() == 0 })
	r.commitWasSlow("commit", 3*time.Second)
	r.await("the last one to be looked at", func() bool { return r.slow.Len() == 0 })
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
	r.flight.Stop()
	r.halt()
	if strings.Contains(r.log.String(), "flight_not_kept") {
		t.Errorf("a node that records nothing tried to keep it\n%s", r.log)
	}
}

func dumps(dir string) []string {
	found, _ := filepath.Glob(filepath.Join(dir, "flight-*.trace"))
	return found
}
