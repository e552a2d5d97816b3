package appliance

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/engines"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// What was done leaves its row, also when whoever asked has left meanwhile.
func TestNoteOutlivesTheCaller(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := r.SetLogLevel(ctx, engines.Actor{}, "", wire.LogLevel{Level: "off"})
	must(t, err)
	r.halt()
	if rows := auditRows(t, cfg); !slices.Contains(rows, "log.level_set") {
		t.Errorf("no row of the level in %v", rows)
	}
}

// A snapshot that fails does not keep what killed ones have left, which may be why it fails.
func TestFailedSnapshotSweeps(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	dir := snapshotDir(cfg)
	rest := filepath.Join(dir, "ronbox-20200101T000000.000000000Z.partial")
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.WriteFile(rest, nil, 0o600))
	old := time.Now().Add(-48 * time.Hour)
	must(t, os.Chtimes(rest, old, old))
	tried := false
	_, err := r.store.Snapshot(t.Context(), t.TempDir(), store.SnapshotOptions{}, func(_, _ int64) {
		if tried {
			return
		}
		tried = true
		if err := r.scheduledSnapshot(t.Context()); !errors.Is(err, store.ErrBusy) {
			t.Errorf("beside another snapshot: %v", err)
		}
	})
	must(t, err)
	if _, err := os.Stat(rest); !tried || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the rest of a killed snapshot: %v", err)
	}
	r.halt()
}

// A copy that a killed node was checking is gone with the next boot; what others have put beside it is not.
func TestBootRemovesCheckedCopies(t *testing.T) {
	cfg, _ := devConfig(t)
	left, other := cfg.Path(checkPrefix+"123"), cfg.Path("check-list")
	for _, dir := range []string{left, other} {
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "copy.db"), nil, 0o600))
	}
	r := start(t, cfg)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the copy: %v", err)
	}
	if _, err := os.Stat(filepath.Join(other, "copy.db")); err != nil {
		t.Errorf("somebody's folder: %v", err)
	}
	r.halt()
}

// A collector that hangs costs the stop its spans, not its log lines, and no more than its share of the time.
func TestHangingCollector(t *testing.T) {
	hung := make(chan struct{})
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hung }))
	defer collector.Close()
	defer close(hung)
	cfg, _ := devConfig(t)
	cfg.OTel.Exporter, cfg.OTel.Endpoint = "otlp", collector.URL
	r := start(t, cfg)
	r.mustPut(r.socket(), signer(t, cfg), 2, "traced")
	r.halt()
	for _, want := range []string{"spans lost", `"event":"stopped"`} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("the log does not say %q", want)
		}
	}
}

// A verb that works beside no node leaves nothing running, and says which directory holds none.
func TestOfflineVerbEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cfg, _ := devConfig(t)
	cfg.OTel.Exporter, cfg.OTel.Endpoint = "otlp", "http://127.0.0.1:1"
	m := wire.MintRequest{Sub: "x", Scopes: []string{"registry.propose"}}
	if _, err := MintOffline(t.Context(), cfg, Build{}, m); err != nil {
		t.Error(err)
	}
	if _, err := MintOffline(t.Context(), newConfig(t), Build{}, m); ExitCode(err) != ExitConfig || !strings.Contains(err.Error(), "no database in") {
		t.Errorf("where there is no node: %v, exit %d", err, ExitCode(err))
	}
}

// A copy beside the file leaves what the store keeps free; nothing is known against one elsewhere.
func TestRoomForACopy(t *testing.T) {
	const mb, gb = 1 << 20, 1 << 30
	for _, tt := range []struct {
		doc                      string
		need, free, own, minFree int64
		want                     bool
	}{
		{"plenty", gb, 4 * gb, gb, 256 * mb, true},
		{"just", gb, gb + 256*mb, gb, 256 * mb, true},
		{"it would take of what is kept free", gb, gb + 255*mb, gb, 256 * mb, false},
		{"it would not fit at all", gb, gb / 2, gb, 256 * mb, false},
		{"a small disk keeps an eighth", 16 * mb, 40 * mb, 16 * mb, 256 * mb, true},
	} {
		if err := copyFits(tt.need, tt.free, tt.own, tt.minFree); (err == nil) != tt.want || err != nil && !errors.Is(err, store.ErrFull) {
			t.Errorf("%s: %v", tt.doc, err)
		}
	}
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	must(t, r.roomFor(cfg.Path("not/there/yet"), false))
	must(t, r.roomFor("/proc", true))
	r.halt()
}

// A profile ends with whoever asked for it; meanwhile there is no second one.
func TestProfileEndsWithItsCaller(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.socket().Profile(ctx, "profile", 5*time.Minute, io.Discard) }()
	r.await("the profile", r.profiling.Load)
	if err := r.socket().Profile(t.Context(), "mutex", time.Second, io.Discard); problem(t, err).Status != http.StatusConflict {
		t.Errorf("a second one: %v", err)
	}
	leave()
	if err := <-ended; err == nil {
		t.Error("who left was given a profile")
	}
	r.await("its end", func() bool { return !r.profiling.Load() })
	r.halt()
}

// A call that lasts until its caller has enough does not make a stop an unclean one.
func TestStopEndsLongCalls(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	ended := make(chan error, 1)
	go func() { ended <- r.socket().Profile(t.Context(), "profile", 5*time.Minute, io.Discard) }()
	r.await("the profile", r.profiling.Load)
	r.halt()
	if err := <-ended; err == nil {
		t.Error("a profile that was cut short was given as a whole one")
	}
}
