package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/tables"
	"ronbox/httpapi/client"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// If several inits run in one directory, one succeeds, and the others do not remove its files.
func TestInitsAtOnce(t *testing.T) {
	for range 8 {
		cfg := newConfig(t)
		var won atomic.Int32
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				switch _, err := Init(t.Context(), cfg, initdir.Options{}); {
				case err == nil:
					won.Add(1)
				case !errors.Is(err, initdir.ErrNotEmpty):
					t.Errorf("a second init: %v", err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d inits succeeded", won.Load())
		}
		for _, name := range []string{config.SecretName, config.DatabaseName, config.TokenName} {
			if _, err := os.Stat(cfg.Path(name)); err != nil {
				t.Errorf("after init: %v", err)
			}
		}
	}
}

// An init that fails leaves the directory unchanged, and removes a directory that it created.
func TestFailedInitLeavesNothing(t *testing.T) {
	for _, there := range []bool{true, false} {
		cfg := newConfig(t)
		cfg.Registry.Bootstrap.TrustRootsHash = "b3:" + strings.Repeat("0", 64) // no genesis has this hash
		if there {
			must(t, os.Mkdir(cfg.Node.DataDir, 0o755))
		}
		if _, err := Init(t.Context(), cfg, initdir.Options{Dev: true}); err == nil {
			t.Fatal("a genesis against the pinned one was committed")
		}
		info, err := os.Stat(cfg.Node.DataDir)
		if !there {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("left a directory: %v", err)
			}
			continue
		}
		if entries, err := os.ReadDir(cfg.Node.DataDir); err != nil || len(entries) > 0 {
			t.Errorf("left %v, %v", entries, err)
		}
		if err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("mode is %v, %v", info.Mode(), err)
		}
	}
}

// A killed init leaves a mark. The node refuses to serve such a directory, and the next init starts
// over unless the directory has other files or the first init still runs.
func TestKilledInit(t *testing.T) {
	t.Parallel()
	for doc, lost := range map[string][]string{
		"at once":             {config.SecretName, config.FileName, config.DatabaseName, config.TokenName, "registry"},
		"before the database": {config.DatabaseName, config.TokenName, "registry"},
		"before the token":    {config.TokenName, "registry"},
		"before the money":    {},
	} {
		if hosttest.UnderRace() && doc != "before the token" { // each is the work of one goroutine
			continue
		}
		cfg, _ := devConfig(t)
		mark := cfg.Path(config.UnfinishedName)
		must(t, os.WriteFile(mark, nil, 0o600))
		for _, name := range lost {
			must(t, os.RemoveAll(cfg.Path(name)))
		}
		r := launch(t, cfg)
		if code := r.end(); code != process.ExitConfig || !strings.Contains(r.log.String(), "ronbox init") {
			t.Errorf("%s: exit %d\n%s", doc, code, r.log)
		}
		alien := cfg.Path("alien")
		must(t, os.WriteFile(alien, nil, 0o600))
		before := files(t, cfg.Node.DataDir)
		if _, err := Init(t.Context(), cfg, initdir.Options{Dev: true}); !errors.Is(err, initdir.ErrNotEmpty) {
			t.Errorf("%s, beside another's file: %v", doc, err)
		}
		must(t, os.Remove(alien))
		live, err := os.Open(mark)
		must(t, err)
		must(t, unix.Flock(int(live.Fd()), unix.LOCK_EX))
		if _, err := Init(t.Context(), cfg, initdir.Options{Dev: true}); !errors.Is(err, initdir.ErrNotEmpty) {
			t.Errorf("%s, while the first one lives: %v", doc, err)
		}
		must(t, live.Close())
		if after := files(t, cfg.Node.DataDir); len(after) != len(before)-1 {
			t.Errorf("%s: a refused init left %v of %v", doc, after, before)
		}
		res, err := Init(t.Context(), cfg, initdir.Options{Dev: true})
		if err != nil || res.Account != devAccount {
			t.Fatalf("%s: %+v, %v", doc, res, err)
		}
		again := start(t, loaded(t, cfg))
		again.has(devAccount, "1000000", 0)
		again.halt()
	}
}

func TestInitRefusesWhatIsThere(t *testing.T) {
	cfg, _ := devConfig(t)
	if _, err := Init(t.Context(), cfg, initdir.Options{}); !errors.Is(err, initdir.ErrNotEmpty) {
		t.Errorf("second init: %v", err)
	}
	if _, err := os.Stat(cfg.Path(config.DatabaseName)); err != nil {
		t.Errorf("a refused init touched the node: %v", err)
	}
	file := newConfig(t)
	must(t, os.WriteFile(file.Node.DataDir, nil, 0o600))
	if _, err := Init(t.Context(), file, initdir.Options{}); wiring.OutcomeOf(err).Code != process.ExitConfig {
		t.Errorf("init on a file: %v, exit %d", err, wiring.OutcomeOf(err).Code)
	}
}

// A verb without a node leaves no goroutine running, and its error names the directory.
func TestOfflineVerbEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	cfg, _ := devConfig(t)
	cfg.OTel.Exporter, cfg.OTel.Endpoint = "otlp", "http://127.0.0.1:1"
	m := nodeapi.MintRequest{Sub: "x", Scopes: []string{"registry.propose"}}
	if _, err := MintOffline(t.Context(), cfg, Build{}, m); err != nil {
		t.Error(err)
	}
	if _, err := MintOffline(t.Context(), newConfig(t), Build{}, m); wiring.OutcomeOf(err).Code != process.ExitConfig ||
		!strings.Contains(err.Error(), "no database in") {
		t.Errorf("where there is no node: %v, exit %d", err, wiring.OutcomeOf(err).Code)
	}
}

// After the file is opened and before recovery ends, the bound sockets answer only probes, and the
// file is not written.
func TestSocketsBeforeRecovery(t *testing.T) {
	cfg, _ := devConfig(t)
	r := &rig{t: t, cfg: cfg, log: &logs{}}
	r.Node = wired(t, cfg, Options{}, r.log)
	r.sup = flow.NewSupervisor(context.WithoutCancel(t.Context()), r.catalog, flow.Hooks{})
	defer r.sup.Close()
	if e := r.open(t.Context()); e.Kind != process.EvOpened {
		t.Fatalf("%+v\n%s", e, r.log)
	}
	if r.store.Info() != nil {
		t.Error("the file was prepared before the sockets were bound")
	}
	for path, want := range map[string]int{
		"/healthz": 200, "/readyz": 503, "/version": 200, "/metrics": 200, "/registry/head": 503, "/registry/1": 503,
	} {
		if resp := r.raw(http.MethodGet, path, ""); resp.StatusCode != want {
			t.Errorf("%s is %d, want %d", path, resp.StatusCode, want)
		}
	}
	if got := r.Version().Formats["ledger"]; got != tables.Format {
		t.Errorf("the ledger's tables have format %d", got)
	}
	r.step(process.Event{Kind: process.EvOpened})
	r.step(process.Event{Kind: process.EvDrain})
	if e := r.Node.stop(context.WithoutCancel(t.Context())); e.Kind != process.EvClosed {
		t.Errorf("%+v", e)
	}
}

// A stop signal during a commit of the boot makes the outcome of the commit unknown. It does not
// count as a failed start.
func TestStopInTheMiddleOfTheBoot(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	n := wired(t, newConfig(t), Options{}, io.Discard)
	unknown := fmt.Errorf("declare the assets: %w", &ledger.UnavailableError{Unknown: true, Cause: store.ErrUnknown})
	if e := n.bootFailed(ctx, unknown); e.Kind != process.EvFailed {
		t.Errorf("without a signal: %+v", e)
	}
	stop()
	if e := n.bootFailed(ctx, unknown); e.Kind != process.EvDrain {
		t.Errorf("%+v", e)
	}
}

// clogged is a log pipe that blocks until it is freed.
type clogged struct {
	free chan struct{}
	once sync.Once
}

func (c *clogged) Write(p []byte) (int, error) {
	<-c.free
	return len(p), nil
}

// A log pipe that is full before the start delays neither the boot nor requests nor the stop.
func TestFullLogPipe(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	cfg.Node.AbortGrace = unit.Duration(300 * time.Millisecond) // what the stop gives the writer
	pipe := &clogged{free: make(chan struct{})}
	r := &rig{t: t, cfg: cfg, log: &logs{}, up: make(chan struct{}), exit: make(chan int, 1)}
	within := patientStop
	within.lines = stopWithin.lines
	r.Node = wired(t, cfg, Options{within: within}, pipe)
	r.OnRunning(func(nodeapi.Status) { close(r.up) })
	defer pipe.once.Do(func() { close(pipe.free) })
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() { r.exit <- r.Run(ctx) }()
	r.serving()
	r.mustPut(r.tcp(), signer(t, cfg), 2, "x")
	r.stop()
	if code := r.end(); code != process.ExitClean {
		t.Errorf("exit %d", code)
	}
}

// A node in memory needs no init, creates no file but its socket, refuses and reports writes to a
// disk, and has a new identity at each start.
func TestAmnesia(t *testing.T) {
	cfg := newConfig(t)
	cfg.Amnesia.Enabled, cfg.Amnesia.AllowSwap, cfg.Amnesia.PurgeIntervalMS = true, true, 100
	cfg.Store.SnapshotEvery = unit.Duration(24 * time.Hour) // of the file that init has written: without effect
	var ids []string
	for range 2 {
		r := launch(t, cfg)
		r.serving()
		if slices.Contains(r.board.Report("", "").Missing, "node.amnesia_ok") {
			t.Error("it begins degraded")
		}
		c := r.socket()
		st, err := c.Status(t.Context())
		must(t, err)
		ids = append(ids, st.NodeID)
		token, err := c.Mint(
			t.Context(),
			nodeapi.MintRequest{Sub: "me", Scopes: []string{"registry.propose"}, Caveats: []string{"amnesia = on"}},
		)
		must(t, err)
		if _, err := r.client(client.Options{URL: "http://" + r.Addr(), Token: token.Token}).
			Proposals(t.Context(), "", 10); err != nil {
			t.Errorf("its token: %v", err)
		}
		_, err = c.Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: filepath.Join(cfg.Node.DataDir, "snap")}, nil)
		if p := problem(t, err); p.Status < 400 || p.Reason != "amnesia" {
			t.Errorf("a snapshot: %+v", p)
		}
		if _, err := c.CheckDB(t.Context(), func(nodeapi.CheckLine) {}); problem(t, err).Reason != "amnesia" {
			t.Errorf("a check: %v", err)
		}
		r.await("purges", func() bool { return r.metric("amnesia_purge_total") >= 2 })
		if r.metric("amnesia_mode", "status", "on") != 1 || r.metric("amnesia_mode", "status", "off") != 0 {
			t.Error("the metrics do not tell the mode")
		}
		r.await("the refusal to be forgotten", func() bool {
			return !slices.Contains(r.board.Report("", "").Missing, "node.amnesia_ok")
		})
		if left := files(t, cfg.Node.DataDir); !slices.Equal(left, []string{"admin.sock"}) {
			t.Errorf("files: %v", left)
		}
		r.halt()
	}
	if ids[0] == ids[1] || ids[0] == "" {
		t.Errorf("node ids %v", ids)
	}
}

// files lists dir recursively.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(dir, path)
			out = append(out, rel)
		}
		return err
	}))
	return out
}

// A refused write to a disk is shown until the next purge.
func TestAmnesiaShowsRefusals(t *testing.T) {
	cfg := newConfig(t)
	cfg.Amnesia.Enabled = true
	n := wired(t, cfg, Options{}, &logs{})
	defer n.services.Close(t.Context())
	must(t, n.purgeCaches(t.Context()))
	if _, err := n.Snapshot(t.Context(), engines.Actor{}, "", nodeapi.SnapshotRequest{Dir: "/x"}, nil); err == nil {
		t.Error("a snapshot was taken")
	}
	if r := n.board.Report("node", ""); !slices.Contains(r.Missing, "node.amnesia_ok") {
		t.Errorf("%+v", r)
	}
	must(t, n.purgeCaches(t.Context()))
	if r := n.board.Report("node", ""); slices.Contains(r.Missing, "node.amnesia_ok") {
		t.Errorf("after a purge: %+v", r)
	}
}

// A node with a disk keeps its secret in a file and purges nothing.
func TestNoAmnesia(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	if r.purgeEvery() != 0 || r.metric("amnesia_mode", "status", "off") != 1 {
		t.Error("a node with a disk forgets")
	}
	if _, err := os.Stat(cfg.Path(config.SecretName)); err != nil {
		t.Error(err)
	}
	if resp := r.raw(http.MethodGet, "/readyz", ""); resp.StatusCode != http.StatusOK {
		t.Errorf("readyz %d", resp.StatusCode)
	}
	r.halt()
}

// Init and offline mint refuse a node in memory.
func TestAmnesiaNeedsNoInit(t *testing.T) {
	cfg := newConfig(t)
	cfg.Amnesia.Enabled = true
	if _, err := Init(t.Context(), cfg, initdir.Options{}); wiring.OutcomeOf(err).Code != process.ExitConfig {
		t.Errorf("init: %v", err)
	}
	if _, err := MintOffline(t.Context(), cfg, Build{},
		nodeapi.MintRequest{Sub: "x", Scopes: []string{"a.b"}}); wiring.OutcomeOf(
		err,
	).Code != process.ExitConfig {
		t.Errorf("mint: %v", err)
	}
	if _, err := os.Stat(cfg.Node.DataDir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left a directory: %v", err)
	}
}

// A node of chosen services has the others off after a restart too, and says so.
func TestInitOfServices(t *testing.T) {
	cfg := newConfig(t)
	must(t, config.Choose(cfg, []string{"wallet", "edge"}))
	res, err := Init(t.Context(), cfg, initdir.Options{Dev: true, Services: []string{"wallet", "edge"}})
	must(t, err)
	if res.Genesis != "" || res.PolicyKey != "" || res.Account != devAccount {
		t.Errorf("made %+v", res)
	}
	cfg = loaded(t, cfg)
	if on, _ := config.Chosen(cfg); strings.Join(on, " ") != "wallet edge" {
		t.Errorf("on are %v", on)
	}
	r := start(t, cfg)
	r.sound()
	if f := r.finding("services"); f.State != "ok" || f.Message != "on: wallet, edge; off: registry, rewarder, index" {
		t.Errorf("%+v", f)
	}
	for name, want := range map[string]float64{"wallet": 1, "edge": 1, "registry": 0, "rewarder": 0, "index": 0} {
		if got := r.metric("service_on", "service", name); got != want {
			t.Errorf("the metric of %s is %v", name, got)
		}
	}
	r.halt()
}
