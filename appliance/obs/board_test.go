package obs

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	errSlow = errors.New("disk is slow")
	start   = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
)

// testBoard has one key of every sort, all holding but those named.
func testBoard(failing ...string) *Board {
	b := NewBoard(nil)
	b.Add(Probe{Service: "node", Key: "storage_ready", Hard: true},
		Probe{Service: "node", Key: "listener_bound", Hard: true, Plane: ReadPlane},
		Probe{Service: "registry", Key: "commit_ready"}, Probe{Service: "registry", Key: "bus_attached", Hard: true},
		Probe{Service: "edge", Key: "packs_verified", Plane: ReadPlane})
	for _, r := range b.rows {
		b.Set(r.Service, r.Key, nil)
		if slices.Contains(failing, r.Service+"."+r.Key) {
			b.Set(r.Service, r.Key, errSlow)
		}
	}
	return b
}

// Readers of the board do not wait for writers.
func TestReportTakesNoLock(t *testing.T) {
	b := testBoard("registry.commit_ready")
	b.mu.Lock()
	defer b.mu.Unlock()
	if r := b.Report("", ""); !r.Ready || len(r.Missing) != 1 || b.failing("registry", "commit_ready") != 1 ||
		b.failing("node", "storage_ready") != 0 {
		t.Errorf("%+v", r)
	}
}

func TestReport(t *testing.T) {
	type want struct{ ready, write, read bool }
	for _, tt := range []struct {
		failing        string
		service, plane string
		want           want
		retry          int
	}{
		{"", "", "", want{true, true, true}, 0},
		{"", "registry", "", want{true, true, true}, 0},
		{"node.storage_ready", "", "", want{false, false, true}, 5},
		{"node.storage_ready", "", "write", want{false, false, true}, 5},
		{"node.storage_ready", "", "read", want{true, false, true}, 0},
		{"node.storage_ready", "node", "read", want{true, false, true}, 0},
		{"node.storage_ready", "registry", "", want{true, true, true}, 0},
		{"node.listener_bound", "", "read", want{false, false, false}, 5},
		{"registry.commit_ready", "", "", want{true, true, true}, 0},
		{"registry.commit_ready", "registry", "", want{false, true, true}, 5},
		{"registry.commit_ready", "registry", "read", want{true, true, true}, 0},
		{"edge.packs_verified", "", "", want{true, true, true}, 0},
		{"edge.packs_verified", "edge", "read", want{false, true, true}, 1},
		{"", "nobody", "", want{false, false, false}, 5},
	} {
		got := testBoard(tt.failing).Report(tt.service, tt.plane)
		if (want{got.Ready, got.WriteReady, got.ReadReady}) != tt.want || got.RetryAfter != tt.retry {
			t.Errorf("%s, asked for %q %q: %+v, want %+v, retry %d", tt.failing, tt.service, tt.plane, got, tt.want,
				tt.retry)
		}
		seen := tt.failing != "" && (tt.service == "" || strings.HasPrefix(tt.failing, tt.service+"."))
		if got.Degraded != seen || seen != slices.Equal(got.Missing, []string{tt.failing}) ||
			seen != (got.Causes[tt.failing] == errSlow.Error()) {
			t.Errorf("%s, asked for %q: degraded %v, missing %q, causes %q", tt.failing, tt.service, got.Degraded,
				got.Missing, got.Causes)
		}
	}
}

func TestReportOfServices(t *testing.T) {
	got := testBoard("registry.commit_ready", "registry.bus_attached", "edge.packs_verified").Report("", "")
	if s := got.Services["registry"]; s.Ready || s.WriteReady ||
		!slices.Equal(s.Missing, []string{"bus_attached", "commit_ready"}) {
		t.Errorf("registry %+v", s)
	}
	if s := got.Services["edge"]; s.Ready || !s.WriteReady || !slices.Equal(s.Missing, []string{"packs_verified"}) {
		t.Errorf("edge %+v", s)
	}
	if s := got.Services["node"]; !s.Ready || !s.WriteReady || len(s.Missing) != 0 || s.Missing == nil {
		t.Errorf("node %+v", s)
	}
	if !slices.IsSorted(got.Missing) || len(got.Missing) != 3 || len(got.Services) != 3 {
		t.Errorf("missing %q of %d services", got.Missing, len(got.Services))
	}
}

// A State is reported by its service and does not degrade the node. Asked alone, the service is not
// ready.
func TestStateIsNoFailure(t *testing.T) {
	m := NewMetrics()
	b := NewBoard(m)
	b.Add(Probe{Service: "registry", Key: "genesis"}, Probe{Service: "registry", Key: "log"})
	b.Set("registry", "genesis", State("not_begun"))
	b.Set("registry", "log", nil)
	all := b.Report("", "")
	if s := all.Services["registry"]; !all.Ready || all.Degraded || len(all.Missing)+len(all.Causes) > 0 ||
		s.State != "not_begun" || s.Ready || !s.WriteReady || len(s.Missing) > 0 {
		t.Errorf("%+v", all)
	}
	own := b.Report("registry", "")
	if own.Ready || !slices.Equal(own.Missing, []string{"registry.genesis"}) ||
		own.Services["registry"].State != "not_begun" {
		t.Errorf("alone: %+v", own)
	}
	if text := scrape(t, m); !strings.Contains(text, `readyz_degraded{cause="genesis",service="registry"} 0`) {
		t.Error("the metric warns")
	}
	b.Set("registry", "log", errSlow)
	if all := b.Report("", ""); !all.Degraded || !slices.Equal(all.Missing, []string{"registry.log"}) {
		t.Errorf("beside a failure: %+v", all)
	}
}

func TestNewKeysAreStarting(t *testing.T) {
	m := NewMetrics()
	b := NewBoard(m)
	b.Add(Probe{Service: "node", Key: "config_loaded", Hard: true})
	if got := b.Report("", ""); got.Ready || got.Causes["node.config_loaded"] != "starting" {
		t.Errorf("%+v", got)
	}
	const series = `readyz_degraded{cause="config_loaded",service="node"} `
	if text := scrape(t, m); !strings.Contains(text, series+"1\n") {
		t.Error("the failing key does not show")
	}
	b.Set("node", "config_loaded", nil)
	if got := b.Report("", ""); !got.Ready || got.Degraded || len(got.Missing) != 0 {
		t.Errorf("%+v", got)
	}
	if text := scrape(t, m); !strings.Contains(text, series+"0\n") {
		t.Error("the key that holds shows as failing")
	}
	b.Add(Probe{Service: "node", Key: "config_loaded"}) // again: the state stays
	if got := b.Report("node", ""); !got.Ready {
		t.Errorf("%+v", got)
	}
}

// A key that no one added, such as a task's, is hard and of the write plane.
func TestSetAddsKeys(t *testing.T) {
	b := testBoard()
	b.Set("registry", "task:pipeline", errSlow)
	if got := b.Report("", ""); got.Ready || got.WriteReady || !got.ReadReady ||
		!slices.Equal(got.Missing, []string{"registry.task:pipeline"}) {
		t.Errorf("%+v", got)
	}
	b.Set("registry", "task:pipeline", nil)
	if got := b.Report("", ""); !got.Ready {
		t.Errorf("%+v", got)
	}
}

func TestSample(t *testing.T) {
	b := NewBoard(nil)
	var cause error
	calls := 0
	b.Add(
		Probe{
			Service: "node",
			Key:     "metrics_live",
			Hard:    true,
			Every:   250 * time.Millisecond,
			Bad:     2,
			Good:    4,
			Func: func() error {
				calls++
				return cause
			},
		},
	)
	now := start
	for i, tt := range []struct {
		cause error
		set   bool // Set instead of a sample
		ready bool
	}{
		{nil, false, true},      // the first sample decides
		{errSlow, false, true},  // one is not enough
		{nil, false, true},      // the count restarts
		{errSlow, false, true},  //
		{errSlow, false, false}, // two in a row
		{nil, false, false}, {nil, false, false}, {nil, false, false},
		{nil, false, true},     // four in a row
		{errSlow, false, true}, //
		{errSlow, true, false}, // seen at once
		{nil, false, false}, {nil, false, false},
		{nil, true, true}, // holds again at once
		{errSlow, false, true},
	} {
		if tt.set {
			b.Set("node", "metrics_live", tt.cause)
		} else {
			cause = tt.cause
			b.Sample(now)
			b.Sample(now.Add(249 * time.Millisecond)) // not due
			now = now.Add(250 * time.Millisecond)
		}
		if got := b.Report("", "").Ready; got != tt.ready {
			t.Fatalf("step %d: ready = %v", i, got)
		}
	}
	if calls != 13 {
		t.Errorf("%d samples run, want 13", calls)
	}
}

func TestFirstSampleMayFail(t *testing.T) {
	b := NewBoard(nil)
	b.Add(
		Probe{Service: "a", Key: "bad", Bad: 9, Func: func() error { return errSlow }},
		Probe{Service: "a", Key: "panics", Bad: 9, Func: func() error { panic("gone") }},
	)
	b.Sample(start)
	if got := b.Report("", "").Causes; got["a.bad"] != errSlow.Error() || got["a.panics"] != "probe panicked: gone" {
		t.Errorf("%q", got)
	}
}

// A Func may use the board, and reports may run concurrently.
func TestFuncsRunUnlocked(t *testing.T) {
	b := NewBoard(nil)
	b.Add(Probe{Service: "a", Key: "one", Func: func() error {
		b.Set("a", "two", nil)
		b.Report("", "")
		return nil
	}})
	b.Sample(start)
	if got := b.Report("", ""); !got.Ready || len(got.Services["a"].Missing) != 0 {
		t.Errorf("%+v", got)
	}
}

func TestNilBoard(t *testing.T) {
	var b *Board
	b.Add(Probe{})
	b.Set("a", "b", errSlow)
	b.Sample(start)
	if got := b.Report("", ""); !got.Ready || got.Missing == nil || got.Causes == nil || got.Services == nil {
		t.Errorf("%+v", got)
	}
}

// The row flips exactly when a model that looks at the last samples says so.
func TestHysteresis(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bad, good := rapid.IntRange(0, 4).Draw(t, "bad"), rapid.IntRange(0, 4).Draw(t, "good")
		r := &row{Probe: Probe{Bad: bad, Good: good}, cause: errStarting, fresh: true}
		holds, run := false, 0
		for i, sample := range rapid.SliceOf(rapid.Bool()).Draw(t, "samples") {
			var cause error
			if !sample {
				cause = errSlow
			}
			r.sampled(cause)
			need := max(1, map[bool]int{true: good, false: bad}[sample])
			switch run++; {
			case i == 0:
				holds, run = sample, 0
			case sample == holds:
				run = 0
			case run >= need:
				holds, run = sample, 0
			}
			if (r.cause == nil) != holds {
				t.Fatalf("sample %d: holds = %v, want %v", i, r.cause == nil, holds)
			}
		}
	})
}

// Ready, the missing keys and the services' own reports never contradict each other.
func TestReportIsConsistent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBoard(nil)
		for _, service := range []string{"node", "registry", "edge"} {
			for _, key := range []string{"a", "b", "c"} {
				b.Add(
					Probe{
						Service: service,
						Key:     key,
						Hard:    rapid.Bool().Draw(t, "hard"),
						Plane:   Plane(rapid.IntRange(0, 1).Draw(t, "plane")),
					},
				)
				if rapid.Bool().Draw(t, "holds") {
					b.Set(service, key, nil)
				}
			}
		}
		all := b.Report("", "")
		if all.Ready != all.WriteReady || all.Ready && !b.Report("", "read").Ready || all.WriteReady && !all.ReadReady {
			t.Fatalf("planes contradict: %+v", all)
		}
		if all.Degraded != (len(all.Missing) > 0) || len(all.Missing) != len(all.Causes) ||
			all.Ready != (all.RetryAfter == 0) {
			t.Fatalf("missing contradicts: %+v", all)
		}
		missing := 0
		for _, service := range slices.Sorted(maps.Keys(all.Services)) {
			own := b.Report(service, "")
			missing += len(own.Missing)
			if own.Ready != all.Services[service].Ready || own.WriteReady != all.Services[service].WriteReady ||
				own.Ready == own.Degraded {
				t.Fatalf("%s contradicts: %+v, in all %+v", service, own, all.Services[service])
			}
			if all.Ready && !own.WriteReady {
				t.Fatalf("%s is not write-ready and the node is", service)
			}
		}
		if missing != len(all.Missing) {
			t.Fatalf("%d keys missing in services, %d in all", missing, len(all.Missing))
		}
	})
}

func BenchmarkReport(b *testing.B) {
	board := testBoard("node.storage_ready")
	b.ReportAllocs()
	for b.Loop() {
		_ = board.Report("", "")
	}
}

// What someone sets while a sample is taken is newer than the sample.
func TestSetWinsOverASampleInHand(t *testing.T) {
	for _, seen := range []error{nil, errSlow} {
		b := NewBoard(nil)
		said := errors.New("said at once")
		if seen != nil {
			said = nil
		}
		b.Add(Probe{Service: "node", Key: "k", Hard: true, Func: func() error {
			b.Set("node", "k", said)
			return seen
		}})
		b.Sample(start)
		if got := b.Report("", ""); got.Ready != (said == nil) {
			t.Errorf("%v was set, %v was sampled: %+v", said, seen, got)
		}
	}
}
