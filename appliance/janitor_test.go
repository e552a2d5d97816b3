package appliance

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// inBubble runs a node without sockets inside a bubble of fake time, and its janitor.
func inBubble(t *testing.T, cfg *config.Config, work func(t *testing.T, n *Node)) {
	t.Helper()
	outside := time.Now() // the bubble begins long before init ran
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		now := func() time.Time { return outside.Add(time.Since(begun)) }
		n, err := assemble(cfg, Build{}, Options{}, &logs{}, now)
		must(t, err)
		err = n.offline(t.Context(), func(ctx context.Context) error {
			ctx, stop := context.WithCancel(ctx)
			return flow.Fan(ctx, 2, func(ctx context.Context, leg int) error {
				if leg == 0 {
					err := n.runJanitor(ctx)
					if errors.Is(err, context.Canceled) {
						err = nil
					}
					return err
				}
				defer stop()
				work(t, n)
				return nil
			})
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// bubbled is a dev node with a change, for hours in which nothing is paid: what looks every some milliseconds whether there is
// work does not run, or seldom, since a test pays for each look.
func bubbled(t *testing.T, change func(*config.Config)) *config.Config {
	t.Helper()
	cfg, _ := devConfig(t)
	cfg.Wallet.Enabled, cfg.Ledger.FlushEvery = false, unit.Duration(10*time.Second)
	change(cfg)
	return cfg
}

func snapshots(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".db" {
			names = append(names, e.Name())
		}
	}
	return names
}

// Snapshots come by the schedule, the first at once where there is none; a new node keeps the schedule; the old ones go.
func TestScheduledSnapshots(t *testing.T) {
	cfg := bubbled(t, func(c *config.Config) { c.Store.SnapshotEvery = unit.Duration(20 * time.Minute) })
	dir := cfg.Path(snapshotDirName)
	inBubble(t, cfg, func(t *testing.T, _ *Node) {
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := snapshots(t, dir); len(got) != 1 {
			t.Errorf("after a minute %v", got)
		}
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if got := snapshots(t, dir); len(got) < 4 || len(got) > 5 { // one of each hour, and the newest
			t.Errorf("after three hours %v", got)
		}
	})
	made := snapshots(t, dir)
	report, err := store.Verify(t.Context(), filepath.Join(dir, made[len(made)-1]), nil, nil, nil)
	if err != nil || !report.OK {
		t.Errorf("%+v, %v", report, err)
	}
	if rows := auditRows(t, cfg); !slices.Contains(rows, "db.snapshot") {
		t.Errorf("no audit row of a snapshot in %v", rows)
	}
}

// A folder that cannot be written is told, and does not end the schedule.
func TestScheduledSnapshotFails(t *testing.T) {
	cfg := bubbled(t, func(c *config.Config) {
		c.Store.SnapshotEvery = unit.Duration(time.Hour)
		c.Store.SnapshotDir = "in-the-way"
	})
	must(t, os.WriteFile(cfg.Path("in-the-way"), nil, 0o600))
	inBubble(t, cfg, func(t *testing.T, _ *Node) {
		time.Sleep(time.Minute)
		must(t, os.Remove(cfg.Path("in-the-way")))
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := snapshots(t, cfg.Path("in-the-way")); len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
}

// The key is replaced when it is as old as it may be, the old one verifies until its tokens have expired, then it is
// retired; what has expired is swept.
func TestJanitorRotatesAndSweeps(t *testing.T) {
	cfg := bubbled(t, func(c *config.Config) { c.Auth.Rotate = unit.Duration(2 * time.Hour) })
	inBubble(t, cfg, func(t *testing.T, n *Node) {
		synctest.Wait()
		if _, err := n.RotateKey(t.Context(), engines.Actor{Admin: true}, ""); err != nil { // init's token outlives the test
			t.Fatal(err)
		}
		first := keysOf(t, n).Active
		if _, err := n.Mint(t.Context(), engines.Actor{Admin: true}, "", wire.MintRequest{Sub: "x", Scopes: []string{"a.b"}, TTL: "3h"}); err != nil {
			t.Fatal(err)
		}
		if _, err := n.Revoke(t.Context(), engines.Actor{Admin: true}, "", wire.RevokeRequest{TID: "01ARZ3NDEKTSV4RRFFQ69G5FAV"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*time.Hour + 2*time.Minute)
		if k := stateOf(t, n, first); k != kidVerify {
			t.Errorf("after two hours the key is %s", k)
		}
		time.Sleep(time.Hour + 10*time.Minute)
		if k := stateOf(t, n, first); k != kidRetired {
			t.Errorf("after its last token the key is %s", k)
		}
		list, err := n.Tokens(t.Context(), engines.Actor{}, "", 100)
		if err != nil || slices.ContainsFunc(list.Tokens, func(i wire.TokenInfo) bool { return i.Sub == "x" }) {
			t.Errorf("%+v, %v", list, err)
		}
	})
	for _, want := range []string{"auth.kid_rotated", "auth.kid_retired"} {
		if rows := auditRows(t, cfg); !slices.Contains(rows, want) {
			t.Errorf("no audit row %s in %v", want, rows)
		}
	}
}

func keysOf(t *testing.T, n *Node) wire.KeyList {
	t.Helper()
	list, err := n.Keys(t.Context())
	must(t, err)
	return list
}

func stateOf(t *testing.T, n *Node, kid string) string {
	t.Helper()
	for _, k := range keysOf(t, n).Keys {
		if k.Kid == kid {
			return k.State
		}
	}
	return ""
}
