package appliance

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// smallDisk is where a node's directory will be: a disk of its own, of 64 MiB. It tells whether there can be one.
func smallDisk(t *testing.T, dir string) bool {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size=64m,mode=0700"); err != nil {
		t.Logf("no small disk can be mounted here (%v): the tests of the store stand in", err)
		return false
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return true
}

// A full disk takes no payment, told as such however many ask, and counts against no breaker: the first one after there is room
// is taken. Balances and receipts are read all the while.
func fullDiskOfMoney(t *testing.T) {
	cfg := newConfig(t)
	disk := filepath.Dir(cfg.Node.DataDir)
	if !smallDisk(t, disk) {
		return
	}
	_, err := Init(t.Context(), cfg, InitOptions{Dev: true})
	must(t, err)
	s := besieged(start(t, loaded(t, cfg)))
	paid, first := s.receipt("/v1/transfer", "before", pay("alice", "bob", "1", 1))
	s.look()
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast)
	s.writable(false)
	const many = 40 // twice what opens the breaker
	s.keeps("full", "alice", func() {
		s.counted("full", map[string]float64{"rejected_total service=wallet reason=store_full": many, "circuit_open_total svc=ledger": 0, "upstream_fail_total svc=ledger": 0, "store_poisoned": 0}, func() {
			for range many {
				got := s.ask(s.attacker(), s.pays("full", pay("alice", "bob", "1", 2)))
				s.told("full", got, http.StatusInsufficientStorage, "store_full")
				if got.problem.Code != "STORE_FULL" || got.header.Get("Retry-After") == "" {
					t.Errorf("full: %v %s", got.header, got.body)
				}
			}
		})
	})
	s.has("alice", "999999", paid.Ledger.Seq)
	if again := s.v1("POST", "/v1/transfer", "before", pay("alice", "bob", "1", 1)); again.body != first.body || !again.replayed {
		t.Errorf("a replay on a full disk: %d %s", again.status, again.body)
	}
	must(t, os.Remove(ballast))
	s.writable(true)
	if got := s.v1("POST", "/v1/transfer", "full", pay("alice", "bob", "1", 2)); got.status != http.StatusOK || got.replayed {
		t.Errorf("once there is room: %d %s", got.status, got.body)
	}
	s.halt()
	verified(t, s.cfg)
}

// A node whose disk is full before its ledger has begun serves what is there, and declares its assets once there is room.
func fullBeforeTheLedger(t *testing.T) {
	cfg := newConfig(t)
	disk := filepath.Dir(cfg.Node.DataDir)
	if !smallDisk(t, disk) {
		return
	}
	_, err := Init(t.Context(), cfg, InitOptions{})
	must(t, err)
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast)
	r := launch(t, loaded(t, cfg))
	r.serving()
	r.writable(false)
	if !strings.Contains(r.log.String(), "assets_not_declared") {
		t.Error("the log does not say that assets are missing")
	}
	r.await("a payment to be told of the disk", func() bool {
		return r.v1("POST", "/v1/issue", "k", issue("bob", "5", 1)).problem.Code == "STORE_FULL"
	})
	if got := r.v1("GET", "/v1/balance?asset=ron&account=bob", "", ""); got.status != http.StatusBadRequest || got.problem.Details["field"] != "asset" {
		t.Errorf("an asset that could not be declared: %d %s", got.status, got.body)
	}
	must(t, os.Remove(ballast))
	r.writable(true)
	must(t, r.declareAssets(t.Context())) // as the janitor does every minute
	if got := r.assets(); !slices.Equal(got, []string{"ron"}) {
		t.Errorf("assets %v", got)
	}
	r.receipt("/v1/issue", "k", issue("bob", "5", 1))
	r.halt()
	verified(t, r.cfg)
}

// A payment whose sync fails is not acknowledged and its outcome is said to be unknown; or it is said not to be done, where what the
// ledger writes behind has met the disk before it. The node ends with 74, and the same request to the next one is done once, whatever
// had become of the first.
func failedSyncOfMoney(t *testing.T) {
	s := besiege(t)
	_, kept := s.receipt("/v1/transfer", "kept", pay("alice", "bob", "1", 1))
	s.poison()
	got := s.ask(s.attacker(), s.pays("lost", pay("alice", "bob", "2", 2)))
	want := map[string]any{"UPSTREAM_UNAVAILABLE": "unknown", "RETRY_LATER": "none"}[got.problem.Code]
	if got.status != http.StatusServiceUnavailable || want == nil || got.problem.Details["outcome"] != want {
		t.Errorf("a payment on a broken disk: %d %s", got.status, got.body)
	}
	if code := s.end(); code != ExitStorage {
		t.Errorf("exit %d, want %d", code, ExitStorage)
	}
	again := start(t, twin(t, s.cfg))
	if got := again.v1("POST", "/v1/transfer", "kept", pay("alice", "bob", "1", 1)); got.body != kept.body || !got.replayed {
		t.Errorf("what was acknowledged: %d %s\nwas\n%s", got.status, got.body, kept.body)
	}
	again.receipt("/v1/transfer", "lost", pay("alice", "bob", "2", 2))
	again.has("bob", "3", 0)
	again.halt()
	verified(t, again.cfg)
}
