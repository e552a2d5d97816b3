package store

import (
	"bytes"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// A scripted run leaves every family of the store with the series it promises.
func TestMetrics(t *testing.T) {
	m := obs.NewMetrics()
	var log bytes.Buffer
	s := New(testConfig(), Options{
		Path:    newFile(t),
		Metrics: m,
		Catalog: flow.NewCatalog(m, nil),
		Log:     hclog.New(&hclog.LoggerOptions{Output: &log}),
	})
	s.Declare("test", testRows, testDerived, testLog)
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	s.db.NoSync = true // a commit of two seconds is followed by a probe, which counts
	r := (&rig{Store: s, t: t}).start()
	mustCommit(r, put{Key: "k"})
	for want, c := range map[error]put{errRefused: {Key: "k", Refuse: true}, ErrInternal: {Key: "k", Panic: true}} {
		if _, err := Commit(t.Context(), s, Work, c); !errors.Is(err, want) {
			t.Fatal(err)
		}
	}
	if _, err := s.Snapshot(t.Context(), t.TempDir(), SnapshotOptions{}, nil); err != nil {
		t.Fatal(err)
	}
	var text string
	if err := s.View(t.Context(), func(Reader) error {
		text = scrape(m)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`store_commands_total{kind="test.put/1",result="ok",service="store"} 1`,
		`store_commands_total{kind="test.put/1",result="refused",service="store"} 2`,
		`store_command_panics_total{kind="test.put/1",service="store"} 1`,
		`store_batch_commands_count{service="store"} 1`,
		`store_commit_seconds_count{phase="commit",service="store"} 1`,
		`store_wait_seconds_count{lane="work",service="store"} 1`,
		`store_snapshot_seconds_count{service="store"} 1`,
		`store_read_tx_open{service="store"} 1`,
		`store_read_tx_slow_total{service="store"} 0`,
		`store_poisoned{service="store"} 0`,
		`store_pages{service="store",state="free"}`,
		`store_pages{service="store",state="pending"}`,
		`store_pages{service="store",state="used"}`,
		`store_commit_seconds_count{phase="apply",service="store"} 1`,
		`store_commit_seconds_count{phase="spill",service="store"} 1`,
		`store_commit_seconds_count{phase="grow",service="store"} 1`,
		`store_commit_seconds_count{phase="sync",service="store"} 1`,
		`store_bytes{service="store"}`,
		`store_read_tx_oldest_seconds{service="store"}`,
		`queue_depth{queue="work",service="store"} 0`,
		`io_timeouts_total{op="commit",peer="",service="store"} 0`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s", want)
		}
	}
	r.stop()
	if !strings.Contains(log.String(), "command_panicked") || strings.Count(log.String(), "[running]:") != 1 {
		t.Errorf("a panic is not logged once with its stack: %s", log.String())
	}
}

// The gauges show the same free space that Health uses. An unknown value is NaN, which matches no
// alert.
func TestRoomGauges(t *testing.T) {
	m := obs.NewMetrics()
	s := New(testConfig(), Options{Path: newFile(t), Metrics: m, Catalog: flow.NewCatalog(m, nil)})
	want := func(free, reserve, used, most string) {
		t.Helper()
		text := scrape(m)
		for name, value := range map[string]string{"disk_free": free, "disk_reserve": reserve, "used": used,
			"max": most} {
			if line := "store_" + name + "_bytes{service=\"store\"} " + value + "\n"; !strings.Contains(text, line) {
				t.Errorf("no %s", line)
			}
		}
	}
	want("NaN", "NaN", "NaN", "NaN")
	s.room.last.Store(&space{used: 1000, capacity: 2000, disk: 4096, own: 0, minFree: 100, step: 10, total: 8000})
	want("4096", "100", "1000", "1900")
	s.room.last.Store(&space{used: 1000, capacity: 2000, disk: -1})
	want("NaN", "NaN", "1000", "1900")
}

func scrape(m *obs.Metrics) string {
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	return rec.Body.String()
}

// The lanes and the committer are in the catalogue, and nothing in it is unknown.
func TestTopology(t *testing.T) {
	cat := flow.NewCatalog(nil, nil)
	New(testConfig(), Options{Catalog: cat})
	if err := cat.Check(); err != nil {
		t.Error(err)
	}
	var names []string
	for _, s := range cat.Specs() {
		names = append(names, s.Name)
	}
	if got := strings.Join(names, " "); got != "bulk control heartbeat work" {
		t.Errorf("channels: %s", got)
	}
}

func TestConfig(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	bad := Config{GroupMax: 5000, LockTimeout: -1}
	for _, key := range []string{"store.max_bytes", "store.group_max", "store.group_bytes", "store.lock_timeout"} {
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%v does not name %s", err, key)
		}
	}
	large := DefaultConfig()
	if large.MaxBytes = maxBytes + 1; large.Validate() == nil {
		t.Errorf("a map of %s passes", large.MaxBytes)
	}
}

func TestViewGauge(t *testing.T) {
	var g viewGauge
	a, b := g.begin(10), g.begin(30)
	if age := g.oldest(50); age != 40 || g.open.Load() != 2 {
		t.Errorf("oldest is %d of %d", age, g.open.Load())
	}
	g.end(a)
	if age := g.oldest(50); age != 20 {
		t.Errorf("oldest is %d", age)
	}
	for range 2 * viewSlots {
		g.begin(40)
	}
	if g.begin(40) != -1 || g.open.Load() != 2+2*viewSlots {
		t.Errorf("%d open", g.open.Load())
	}
	g.end(b)
	g.end(-1)
	if age := g.oldest(50); age != 10 {
		t.Errorf("oldest is %d", age)
	}
}
