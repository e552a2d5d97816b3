package appliance

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// acknowledged commits n versions and gives the last one.
func (s *siege) acknowledged(n uint64) (last wire.Committed) {
	s.t.Helper()
	c := s.socket()
	defer c.Close()
	for range n {
		last = s.mustPut(c, s.key, s.registry.Head().Head.Version+1, "kept")
	}
	return last
}

// The file as it is at any moment boots to what was acknowledged, and says that the stop was none.
func powerCut(t *testing.T) {
	s := besiege(t)
	for range 3 {
		want := s.acknowledged(2)
		again := start(t, twin(t, s.cfg)) // the file of a process that is gone, as the disk has it
		if again.store.Info().Clean || !strings.Contains(again.log.String(), "unclean_boot") {
			t.Errorf("the log does not say that the stop was unclean\n%s", again.log)
		}
		if got := again.metric("registry_recoveries_total", "kind", "crash"); got != 1 {
			t.Errorf("%v recoveries from a crash", got)
		}
		c := again.tcp()
		v, err := c.Version(t.Context(), want.Version, true)
		if head, herr := c.Head(t.Context()); err != nil || herr != nil || head.Hash != want.Hash || v.PayloadB3 != want.PayloadB3 {
			t.Errorf("HEAD %+v, %v, want %+v", head, errors.Join(err, herr), want)
		}
		c.Close()
		again.halt()
	}
	s.look()
	s.holds()
}

func badDisk(t *testing.T) {
	t.Run("full", fullDisk)
	t.Run("failed sync", failedSync)
	t.Run("short file", shortFile)
	t.Run("bit rot", bitRot)
	t.Run("full for payments", fullDiskOfMoney)
	t.Run("full before the ledger", fullBeforeTheLedger)
	t.Run("failed sync of a payment", failedSyncOfMoney)
	t.Run("bit rot in the journal", rottenJournal)
}

// A full disk takes no writes, told as such; reads and probes of reads go on, and it heals by itself once there is room.
func fullDisk(t *testing.T) {
	cfg := newConfig(t)
	disk := filepath.Dir(cfg.Node.DataDir)
	if !smallDisk(t, disk) {
		return
	}
	_, err := Init(t.Context(), cfg, InitOptions{Dev: true})
	must(t, err)
	s := besieged(start(t, loaded(t, cfg)))
	ballast := filepath.Join(disk, "ballast")
	fillDisk(t, ballast)
	s.writable(false)
	s.counted("full", map[string]float64{"rejected_total reason=store_full": 3, "rejected_total reason=degraded": 1, "governance_proposals_total": 0, "store_poisoned": 0}, func() {
		for range 3 {
			got := s.ask(s.attacker(), s.post("/registry/proposals", s.propose("full")))
			s.told("full", got, http.StatusInsufficientStorage, "store_full")
			if got.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
		for path, status := range map[string]int{
			"/registry/head": 200, "/registry/1": 200, "/healthz": 200, "/readyz": 503, "/readyz?plane=read": 200,
		} {
			if got := s.ask(quietHost, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); got.status != status {
				t.Errorf("%s is %d on a full disk, want %d", path, got.status, status)
			}
		}
	})
	must(t, os.Remove(ballast))
	s.writable(true)
	s.look()
	s.holds()
}

// fillDisk writes until the disk takes no more.
func fillDisk(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	for chunk := make([]byte, 1<<20); err == nil; {
		_, err = f.Write(chunk)
	}
	if must(t, f.Close()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// After a failed sync nothing is acknowledged, the metrics say why, and the process ends with 74; what was acknowledged
// before is on the disk.
func failedSync(t *testing.T) {
	s := besiege(t)
	want := s.acknowledged(2)
	s.poison()
	got := s.ask(s.attacker(), s.post("/registry/proposals", s.propose("lost")))
	s.told("a write on a broken disk", got, http.StatusServiceUnavailable, "store_failed")
	if got.problem.Details["outcome"] != "unknown" {
		t.Errorf("outcome %v", got.problem.Details)
	}
	if code := s.end(); code != ExitStorage {
		t.Errorf("exit %d, want %d", code, ExitStorage)
	}
	if s.metric("store_poisoned") != 1 || s.metric("rejected_total", "reason", "store_failed") != 1 {
		t.Errorf("store_poisoned %v", s.metric("store_poisoned"))
	}
	again := start(t, twin(t, s.cfg))
	if head, err := again.tcp().Head(t.Context()); err != nil || head.Hash != want.Hash {
		t.Errorf("HEAD %+v, %v, want %+v", head, err, want)
	}
	again.halt()
}

// A file that is too short for its pages is not mapped: exit 65, and it says what it found.
func shortFile(t *testing.T) {
	for _, size := range []int64{0, 1, store.PageSize, 5 * store.PageSize} {
		cfg, _ := devConfig(t)
		must(t, os.Truncate(cfg.Path(DatabaseName), size))
		r := launch(t, cfg)
		if code := r.end(); code != ExitCorrupt || !strings.Contains(r.log.String(), "ronbox db restore") {
			t.Errorf("%d bytes left: exit %d\n%s", size, code, r.log)
		}
		if info, err := os.Stat(cfg.Path(DatabaseName)); err != nil || info.Size() != size {
			t.Errorf("the file was touched: %v, %v", info, err)
		}
	}
}

// A bit that changed in what the log holds keeps the node from starting, and the log names the version.
func bitRot(t *testing.T) {
	cfg, _ := devConfig(t)
	flip(t, cfg.Path(DatabaseName), `"threshold":1`)
	r := launch(t, cfg)
	if code := r.end(); code != ExitCorrupt || !strings.Contains(r.log.String(), "version 1") {
		t.Errorf("exit %d, and the spot is not named\n%s", code, r.log)
	}
}

// There is one writer: a second process ends with 75 and harms nothing, by whatever name it reaches the file; a copy of
// the directory carries no lock with it and is another node's.
func secondProcess(t *testing.T) {
	s := besiege(t)
	for doc, alias := range map[string]func(from, to string) error{"the directory itself": nil, "a hard link": os.Link, "a symbolic link": os.Symlink} {
		cfg := loaded(t, s.cfg)
		if alias != nil {
			cfg = twin(t, s.cfg)
			must(t, os.Remove(cfg.Path(DatabaseName)))
			must(t, alias(s.cfg.Path(DatabaseName), cfg.Path(DatabaseName)))
		}
		cfg.Store.LockTimeout = 0
		second := launch(t, cfg)
		if code := second.end(); code != ExitLocked || second.Addr() != "" {
			t.Errorf("%s: exit %d, bound %q\n%s", doc, code, second.Addr(), second.log)
		}
	}
	copied := start(t, twin(t, s.cfg))
	copied.halt()
	s.holds()
}

// A configuration that cannot be taken is refused whole, by the keys that are wrong, and the old one stays in force; at
// the start it ends the process before anything is opened.
func badConfig(t *testing.T) {
	r, rewrite := reloadable(t)
	s := besieged(r)
	for _, tt := range []struct{ doc, text, cause, key string }{
		{"no TOML", "[[[", "parse", ""},
		{"an unknown key", "server.max_conn = 5\n", "validate", "server.max_conn"},
		{"a value out of its range", "log.level = \"debug\"\nserver.max_conns = 0\n", "validate", "server.max_conns"},
		{"a key that needs a restart", "log.level = \"debug\"\nregistry.queues.proposals = 100\n", "restart", "registry.queues.proposals"},
	} {
		rewrite(tt.text)
		want := map[string]float64{"registry_reload_fail_total reason=" + tt.cause: 1, "registry_reload_success_total": 0, "config_version": 0, "rejected_total reason=reload_refused": 1}
		s.counted(tt.doc, want, func() {
			c := s.socket()
			defer c.Close()
			_, err := c.Reload(t.Context())
			p := problem(t, err)
			if p.Status != http.StatusUnprocessableEntity || p.Details["cause"] != tt.cause || !strings.Contains(p.Detail, tt.key) {
				t.Errorf("%s: %+v", tt.doc, p)
			}
			if s.LogLevel().Level != "info" || s.version() != 1 {
				t.Errorf("%s: half of it is in force", tt.doc)
			}
		})
	}
	rewrite("")
	s.holds()
	for _, text := range []string{"server.max_conns = 0\n", "server.max_conn = 5\n"} {
		cfg := newConfig(t)
		must(t, os.Mkdir(cfg.Node.DataDir, 0o700))
		must(t, os.WriteFile(cfg.Path(config.FileName), []byte("# one\n"+text), 0o600))
		_, err := config.Load(config.LoadOptions{DataDir: cfg.Node.DataDir})
		if err == nil || !strings.Contains(err.Error(), config.FileName+":2:") || !strings.Contains(err.Error(), strings.Fields(text)[0]) {
			t.Errorf("%q at the start: %v", text, err)
		}
	}
}

// A clock that jumps back by little changes no order; one that jumps far keeps writes out, and says so, until it is right
// again. Reads go on.
func clockJumps(t *testing.T) {
	cfg, _ := devConfig(t)
	var shift atomic.Int64
	s := besieged(launchAt(t, cfg, func() time.Time { return time.Now().Add(time.Duration(shift.Load())) }))
	first := s.acknowledged(1)
	shift.Store(int64(-4 * time.Minute))
	second := s.acknowledged(2)
	if second.CommittedAt < first.CommittedAt {
		t.Errorf("version %d at %s, after version %d at %s", second.Version, second.CommittedAt, first.Version, first.CommittedAt)
	}
	page, err := s.Audit(t.Context(), 1, 100)
	must(t, err)
	for i := 1; i < len(page.Rows); i++ {
		if !page.Rows[i].At.After(page.Rows[i-1].At) {
			t.Errorf("audit row %d at %s, after one at %s", page.Rows[i].Seq, page.Rows[i].At, page.Rows[i-1].At)
		}
	}
	shift.Store(int64(-time.Hour))
	s.writable(false)
	s.counted("a clock far behind", map[string]float64{
		"rejected_total reason=degraded": 1, "rejected_total reason=unauth": 1, "auth_failures_total stage=time": 1, "store_commands_total": 0,
	}, func() {
		c := s.socket()
		defer c.Close()
		_, err := c.Propose(t.Context(), draft(5, "late"), "")
		if p := problem(t, err); p.Status != http.StatusServiceUnavailable || p.Reason != "degraded" || p.Details["cause"] != "clock_behind" {
			t.Errorf("a write: %+v", p)
		}
		got := s.ask(s.attacker(), s.post("/registry/proposals", s.propose("late")))
		s.told("a token from the future", got, http.StatusUnauthorized, "unauth")
	})
	if got := s.ask(quietHost, "GET /registry/head HTTP/1.1\r\nHost: x\r\n\r\n"); got.status != http.StatusOK {
		t.Errorf("a read is %d", got.status)
	}
	shift.Store(0)
	s.writable(true)
	s.look()
	s.holds()
}

// launchAt is start of a node with its own clock.
func launchAt(t *testing.T, cfg *config.Config, now func() time.Time) *rig {
	t.Helper()
	r := &rig{t: t, cfg: cfg, log: &logs{}, up: make(chan struct{}), exit: make(chan int, 1)}
	n, err := assemble(cfg, Build{Version: "test"}, Options{}, r.log, now)
	must(t, err)
	r.Node = n
	r.OnRunning(func(wire.Status) { close(r.up) })
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() { r.exit <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		r.closeEngines()
		if t.Failed() {
			t.Log(r.log)
		}
	})
	return r.begin()
}

// A snapshot holds no secret and no token, and its thief can do nothing with it to the node: the tokens of the node that
// it was taken from are void where it is restored, and none can be made from it that the node would take.
func stolenSnapshot(t *testing.T) {
	s := besiege(t)
	c := s.socket()
	minted, err := c.Mint(t.Context(), wire.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}})
	must(t, err)
	s.acknowledged(1)
	for _, compact := range []bool{false, true} {
		snap, err := c.Snapshot(t.Context(), wire.SnapshotRequest{Dir: t.TempDir(), Compact: compact}, nil)
		must(t, err)
		raw, err := os.ReadFile(snap.File)
		must(t, err)
		for _, name := range []string{SecretName, SignerName, TokenName, LogKeyName} {
			secret, err := os.ReadFile(s.cfg.Path(name))
			if errors.Is(err, os.ErrNotExist) {
				continue
			}
			must(t, err)
			if len(secret) < 16 || strings.Contains(string(raw), strings.TrimSpace(string(secret))) {
				t.Errorf("the snapshot holds %s", name)
			}
		}
		if strings.Contains(string(raw), minted.Token) {
			t.Error("the snapshot holds a token")
		}
		s.thief(snap.File)
	}
	c.Close()
	s.look()
	s.holds()
}

// thief restores a snapshot elsewhere, without the key of the node, and tries what he gets there on the node.
func (s *siege) thief(snapshot string) {
	s.t.Helper()
	cfg := restored(s.t, s.cfg, snapshot)
	must(s.t, os.Remove(cfg.Path(SecretName)))
	r := launch(s.t, cfg)
	r.serving()
	local := r.socket()
	if _, err := r.tcp().Propose(s.t.Context(), draft(3, "x"), ""); problem(s.t, err).Status != http.StatusUnauthorized {
		s.t.Errorf("a token of the node on its stolen copy: %v", err)
	}
	must(s.t, local.AcceptRestore(s.t.Context()))
	forged, err := local.Mint(s.t.Context(), wire.MintRequest{Sub: "thief", Scopes: []string{"node.admin"}})
	must(s.t, err)
	local.Close()
	victim := s.client(client.Options{URL: "http://" + s.Addr(), Token: forged.Token})
	if _, err := victim.Propose(s.t.Context(), draft(3, "x"), ""); problem(s.t, err).Status != http.StatusUnauthorized {
		s.t.Errorf("a token made from a stolen copy: %v", err)
	}
	victim.Close()
	r.until("running", func(p flow.Phase) bool { return p == flow.Running || p == flow.Degraded })
	r.halt()
}
