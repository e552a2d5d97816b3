package appliance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/config"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// A snapshot taken under load is whole; restored into an empty folder it has the same state under a new incarnation,
// and takes no write until someone accepts it.
func TestSnapshotRestoreAccept(t *testing.T) {
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
	snap, err := r.socket().Snapshot(t.Context(), wire.SnapshotRequest{Dir: t.TempDir()}, nil)
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

// restored lifts a snapshot into an empty folder and puts the keys back.
func restored(t *testing.T, from *config.Config, snapshot string) *config.Config {
	t.Helper()
	to := newConfig(t)
	_, err := store.Restore(t.Context(), snapshot, to.Path(DatabaseName), store.RestoreOptions{
		Now: time.Now(), By: store.Event{Event: "db.restore", Decision: "allow"},
	}, nil)
	must(t, err)
	for _, name := range []string{SecretName, TokenName} {
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
	must(t, c.AcceptRestore(t.Context())) // twice is once
	r.writable(true)
	if _, err := c.Propose(t.Context(), draft(head.Version+1, "later"), ""); err != nil {
		t.Errorf("a write after accept-restore: %v", err)
	}
	r.halt()
	if rows := auditRows(t, cfg); !slices.Contains(rows, "db.accept_restore") || !slices.Contains(rows, "db.restore") {
		t.Errorf("no audit rows of the restore in %v", rows)
	}
}

// stateHash is that of a stopped node's file.
func stateHash(t *testing.T, cfg *config.Config) (sum b3.Digest) {
	t.Helper()
	file, err := store.OpenReader(cfg.Path(DatabaseName))
	must(t, err)
	defer func() { must(t, file.Close()) }()
	must(t, file.View(t.Context(), func(r store.Reader) error {
		sum = store.StateHash(r, file.Buckets())
		return nil
	}))
	return sum
}
