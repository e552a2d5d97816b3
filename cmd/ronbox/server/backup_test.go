package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/upkeep"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// A snapshot taken under load is complete. Restored into an empty folder it has the same state
// under a new incarnation, and refuses writes until an operator accepts it.
func TestSnapshotRestoreAccept(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	c, key := r.socket(), signer(t, cfg)
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	under := make(chan struct{})
	load.Go(func() {
		for v := uint64(2); ctx.Err() == nil; v++ {
			if _, err := put(context.WithoutCancel(ctx), c, key, v, fmt.Sprintf("d%d", v)); err != nil {
				t.Errorf("version %d under a snapshot: %v", v, err)
				return
			}
			if v == 4 {
				close(under)
			}
		}
	})
	<-under
	snap, err := r.socket().Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: t.TempDir()}, nil)
	cancel()
	load.Wait()
	must(t, err)
	r.halt()
	if rows := auditRows(t, cfg); !slices.Contains(rows, "db.snapshot") {
		t.Errorf("no audit row of the snapshot in %v", rows)
	}
	m, err := store.ReadManifest(snap.File)
	must(t, err)

	back := restored(t, cfg, snap.File)
	if got := stateHash(t, back); got != m.StateHash {
		t.Errorf("state %s, the snapshot has %s", got, m.StateHash)
	}
	refusesThenAccepts(t, back, r.store.Info().Incarnation)
}

// restored restores a snapshot into an empty folder and copies the keys.
func restored(t *testing.T, from *config.Config, snapshot string) *config.Config {
	t.Helper()
	to := newConfig(t)
	_, err := store.Restore(t.Context(), snapshot, to.Path(config.DatabaseName), store.RestoreOptions{
		Now: time.Now(), By: store.Event{Event: "db.restore", Decision: "allow"},
	}, nil)
	must(t, err)
	for _, name := range []string{config.SecretName, config.TokenName} {
		raw, err := os.ReadFile(from.Path(name))
		must(t, err)
		must(t, os.WriteFile(to.Path(name), raw, 0o600))
	}
	return loaded(t, to)
}

func refusesThenAccepts(t *testing.T, cfg *config.Config, before string) {
	t.Helper()
	r := launch(t, cfg)
	r.serving()
	c := r.socket()
	head, err := c.Head(t.Context())
	if err != nil || head.Version < 4 || head.Incarnation == before {
		t.Fatalf("head %+v, %v", head, err)
	}
	_, err = c.Propose(t.Context(), draft(head.Version+1, "early"), "")
	if p := problem(t, err); p.Status != 503 || p.Reason != "restored" {
		t.Errorf("a write before accept-restore: %+v", p)
	}
	ready, err := c.Ready(t.Context(), "", "")
	if err != nil || ready.WriteReady || !slices.Contains(ready.Missing, "node.accept_restore") {
		t.Errorf("readyz %+v, %v", ready, err)
	}
	if reads, err := c.Ready(t.Context(), "", "read"); err != nil || !reads.Ready {
		t.Errorf("readyz?plane=read %+v, %v", reads, err)
	}
	if _, err := r.tcp().Propose(t.Context(), draft(head.Version+1, "old-token"), ""); problem(t, err).Status != 401 {
		t.Errorf("a token from before the restore: %v", err)
	}
	must(t, c.AcceptRestore(t.Context()))
	must(t, c.AcceptRestore(t.Context())) // a repeat has no effect
	if _, err := c.Propose(t.Context(), draft(head.Version+1, "fork"),
		""); problem(t, err).Details["cause"] != "rollback_detected" {
		t.Errorf("a write that would split the log: %v", err)
	}
	if w, err := c.Adopt(t.Context()); err != nil || w.Rollback {
		t.Errorf("adopt: %+v, %v", w, err)
	}
	r.writable(true)
	if _, err := c.Propose(t.Context(), draft(head.Version+1, "later"), ""); err != nil {
		t.Errorf("a write after accept-restore: %v", err)
	}
	r.halt()
	if rows := auditRows(t, cfg); !slices.Contains(rows, "db.accept_restore") || !slices.Contains(rows, "db.restore") {
		t.Errorf("no audit rows of the restore in %v", rows)
	}
}

// stateHash returns the state hash of the file of a stopped node.
func stateHash(t *testing.T, cfg *config.Config) (sum b3.Digest) {
	t.Helper()
	file, err := store.OpenReader(cfg.Path(config.DatabaseName))
	must(t, err)
	defer func() { must(t, file.Close()) }()
	must(t, file.View(t.Context(), func(r store.Reader) error {
		sum = store.StateHash(r, file.Buckets())
		return nil
	}))
	return sum
}

// The file of a running node is checked on a copy, which is removed afterwards.
func TestCheckDB(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	stages := map[string]bool{}
	last, err := r.socket().CheckDB(t.Context(), func(l nodeapi.CheckLine) { stages[l.Stage] = true })
	if err != nil || !last.Sound() || len(last.Findings) > 0 {
		t.Errorf("%+v, %v", last, err)
	}
	left, err := filepath.Glob(cfg.Path("check-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	snap, err := r.socket().Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: t.TempDir(), Compact: true}, nil)
	if err != nil {
		t.Errorf("compact: %+v, %v", snap, err)
	}
	for dir, why := range map[string]string{
		cfg.Path(config.DatabaseName):      "not a directory",
		cfg.Path(config.DatabaseName, "x"): "not a directory",
		"/proc/nowhere/at/all":             "no such file or directory",
	} {
		_, err := r.socket().Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: dir}, nil)
		if p := problem(t, err); p.Status != http.StatusBadRequest || p.Reason != nodeapi.ReasonSnapshotDir ||
			!strings.HasPrefix(p.Detail, dir+": "+why+" (user ") || p.Details["path"] != dir || p.Details["user"] == "" {
			t.Errorf("into %s: %+v", dir, p)
		}
	}
	r.halt()
}

// A snapshot that fails still removes the remains of killed snapshots, because a lack of space may
// be the cause of the failure.
func TestFailedSnapshotSweeps(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	dir := cfg.SnapshotDir()
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
		if err := r.backup.Job(time.Now()).Do(t.Context()); !errors.Is(err, store.ErrBusy) {
			t.Errorf("beside another snapshot: %v", err)
		}
	})
	must(t, err)
	if _, err := os.Stat(rest); !tried || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the rest of a killed snapshot: %v", err)
	}
	r.halt()
}

// A boot removes the remains of killed runs: copies for checks, compactions and snapshots. It keeps
// other files, and files that may still be written.
func TestBootRemovesCheckedCopies(t *testing.T) {
	cfg, _ := devConfig(t)
	left, other := cfg.Path(upkeep.CheckPrefix+"123"), cfg.Path("check-list")
	for _, dir := range []string{left, other} {
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, "copy.db"), nil, 0o600))
	}
	must(t, os.MkdirAll(cfg.SnapshotDir(), 0o700))
	put := func(path string, age time.Duration) string {
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Chtimes(path, time.Now().Add(-age), time.Now().Add(-age)))
		return path
	}
	shot := func(name string, age time.Duration) string { return put(filepath.Join(cfg.SnapshotDir(), name), age) }
	temp := func(name string, age time.Duration) string { return put(cfg.Path(name), age) }
	beside := func(suffix string, age time.Duration) string { return put(cfg.Path(config.DatabaseName+suffix), age) }
	gone := []string{
		left,
		beside(".compacting", 0),
		beside(".restoring", 0),
		beside(".before-compact", 0),
		beside(".new", 0),
		temp(".ronbox-123", 2*time.Hour),
		temp(".ronbox-sync-4", 2*time.Hour),
		temp("registry/.ronbox-6", 2*time.Hour),
		shot("ronbox-20260101T000000.000000000Z.partial", 2*time.Hour),
		shot("pre-migrate-v1-X-7.partial", 2*time.Hour),
	}
	kept := []string{
		temp(".ronbox-5", time.Minute),
		temp(".ronbox-x", 2*time.Hour),
		beside(".before-restore-20260101T000000.000Z", 2*time.Hour),
		filepath.Join(other, "copy.db"),
		shot("ronbox-20260102T000000.000000000Z.partial", time.Minute),
		shot("mine.partial", 2*time.Hour),
	}
	r := start(t, cfg)
	for _, path := range gone {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range kept {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
	r.halt()
	for _, path := range gone {
		if !strings.Contains(r.log.String(), path) {
			t.Errorf("%s: the log says nothing", path)
		}
	}
}

// There is room for a copy in a folder that is not there yet, and on another disk.
func TestRoomElsewhere(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	must(t, r.backup.RoomFor(cfg.Path("not/there/yet"), false))
	must(t, r.backup.RoomFor("/proc", true))
	r.halt()
}
