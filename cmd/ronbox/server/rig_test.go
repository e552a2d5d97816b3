package server

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	edgeapi "ronbox/httpapi/wire/edge"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	walletapi "ronbox/httpapi/wire/wallet"
	"ronbox/store"
)

// TestMain has more tests run side by side than there are processors: those that do so wait most of
// the time.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "6")
	hosttest.InMemory()
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of a test for something that takes milliseconds.
const patience = time.Minute

// patientStop are the bounds of a stop that a busy machine is not to exceed.
var patientStop = bounds{store: patience, server: 5 * time.Second, spans: 5 * time.Second, lines: 5 * time.Second}

// newConfig is a node on a fresh directory, on any free port. Socket paths have at most 107 bytes,
// so the directory's name does not hold the test's.
func newConfig(t *testing.T) *config.Config {
	t.Helper()
	dir, err := os.MkdirTemp("", "ronbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := config.Default()
	cfg.Node.DataDir = filepath.Join(dir, "data")
	cfg.Server.Bind = "127.0.0.1:0"
	cfg.Store.MaxBytes = 256 << 20
	cfg.Node.AbortGrace = unit.Duration(5 * time.Second)
	cfg.Ledger.FlushAfter = 0
	return cfg
}

// devAccount is the account of a dev node that has funds.
const devAccount = "alice"

// exists reports whether a file exists.
func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// freshDev is newConfig after init --dev: a node unlike any other.
func freshDev(t *testing.T) (*config.Config, initdir.Result) {
	t.Helper()
	cfg := newConfig(t)
	res, err := Init(t.Context(), cfg, initdir.Options{Dev: true})
	must(t, err)
	return loaded(t, cfg), res
}

// dev holds a data directory of init --dev, which all tests copy. Creating one takes longer than
// most tests, because of its syncs.
var dev struct {
	once  sync.Once
	from  string // the data directory that res names
	res   initdir.Result
	files map[string]sparse // by their names there
}

// sparse is a file without the zeros at its end, which are most of a database.
type sparse struct {
	raw  []byte
	size int64
}

// devConfig is a copy of a dev node. All copies have the same identity and the same keys; see
// freshDev.
func devConfig(t *testing.T) (*config.Config, initdir.Result) {
	t.Helper()
	dev.once.Do(func() {
		cfg, res := freshDev(t)
		root := os.DirFS(cfg.Node.DataDir)
		dev.from, dev.res, dev.files = cfg.Node.DataDir, res, map[string]sparse{}
		must(t, fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := fs.ReadFile(root, name)
			dev.files[name] = sparse{bytes.Clone(bytes.TrimRight(raw, "\x00")), int64(len(raw))}
			return err
		}))
	})
	cfg := newConfig(t)
	for name, f := range dev.files {
		must(t, os.MkdirAll(filepath.Dir(cfg.Path(name)), 0o700))
		must(t, os.WriteFile(cfg.Path(name), f.raw, 0o600))
		must(t, os.Truncate(cfg.Path(name), f.size))
	}
	res := dev.res
	for _, path := range []*string{&res.DataDir, &res.Socket, &res.TokenFile, &res.SignerKey} {
		*path = strings.Replace(*path, dev.from, cfg.Node.DataDir, 1)
	}
	return loaded(t, cfg), res
}

// calm is the environment of a node on a busy machine: any free port, a small file, and long
// timeouts for the disk, for packs and for stops.
func calm() []string {
	return []string{
		"RONBOX_SERVER__BIND=127.0.0.1:0",
		"RONBOX_STORE__MAX_BYTES=256MiB",
		"RONBOX_LEDGER__STALL_AFTER=2s",
		"RONBOX_LEDGER__FLUSH_AFTER=0s",
		"RONBOX_NODE__ABORT_GRACE=5s",
		"RONBOX_NODE__DRAIN_CAP=30s",
		"RONBOX_REGISTRY__DRAIN_DEADLINE=30s",
		"RONBOX_EDGE__DRAIN_DEADLINE=30s",
		"RONBOX_EDGE__PACKS__VERIFY_BASE=1m",
		"RONBOX_INDEX__DRAIN_DEADLINE=5s",
		"RONBOX_REWARDER__DRAIN_DEADLINE=5s",
		"RONBOX_REGISTRY__TIMEOUTS__PROPOSE=5s",
		"RONBOX_REGISTRY__TIMEOUTS__APPROVE=5s",
		"RONBOX_REGISTRY__TIMEOUTS__COMMIT=5s",
	}
}

// unhurried lets a call of the ledger take as long as a busy machine needs for it.
func unhurried(cfg *config.Config) {
	cfg.Wallet.Retry.RPCTimeout = unit.Duration(10 * time.Second)
	cfg.Wallet.ReqTimeout = unit.Duration(20 * time.Second)
}

// hurried returns options with the usual bounds of a stop, for tests in which a part hangs.
func hurried(cfg *config.Config) Options {
	cfg.Node.AbortGrace = config.Default().Node.AbortGrace
	within := stopWithin
	within.lines = patientStop.lines // tests read the last line
	return Options{within: within}
}

// loaded returns the configuration that serve loads from the directory, with any free port.
func loaded(t *testing.T, cfg *config.Config) *config.Config {
	t.Helper()
	out, err := config.Load(config.LoadOptions{DataDir: cfg.Node.DataDir, Env: calm()})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// logs collects a node's log lines.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// phases lists the phases a node went through, but for turns between running and degraded.
func (l *logs) phases() string {
	var out []string
	for line := range strings.Lines(l.String()) {
		var v struct{ Event, To string }
		if json.Unmarshal([]byte(line), &v) != nil || v.Event != "lifecycle" || v.To == "degraded" {
			continue
		}
		if len(out) == 0 || out[len(out)-1] != v.To {
			out = append(out, v.To)
		}
	}
	return strings.Join(out, " ")
}

// rig is a node that runs.
type rig struct {
	*Node
	cfg  *config.Config // it was started with
	t    *testing.T
	log  *logs
	stop context.CancelFunc
	up   chan struct{} // closed when the gate is open
	exit chan int

	mu      sync.Mutex
	clients []*apiClient // guarded by mu
}

// launch runs a node and does not wait for it.
func launch(t *testing.T, cfg *config.Config) *rig {
	t.Helper()
	return launchWith(t, cfg, Options{})
}

// launchWith is launch of a node that can be reloaded.
func launchWith(t *testing.T, cfg *config.Config, o Options) *rig {
	t.Helper()
	r := &rig{t: t, cfg: cfg, log: &logs{}, up: make(chan struct{}), exit: make(chan int, 1)}
	r.Node = wired(t, cfg, o, r.log)
	r.OnRunning(func(nodeapi.Status) { close(r.up) })
	ctx, cancel := context.WithCancel(t.Context())
	r.stop = cancel
	go func() { r.exit <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		// a node that ends with a straggler or a failed disk leaves its caches to the end of the
		// process
		r.services.Close(context.WithoutCancel(t.Context()))
		if t.Failed() {
			t.Log(r.log)
		}
	})
	return r
}

// wired is a node that does not run.
func wired(t *testing.T, cfg *config.Config, o Options, out io.Writer) *Node {
	t.Helper()
	o.within = cmp.Or(o.within, patientStop)
	n, err := assemble(cfg, Build{Version: "test"}, o, out)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// start runs a node until it serves.
func start(t *testing.T, cfg *config.Config) *rig {
	t.Helper()
	return launch(t, cfg).begin()
}

// begin waits until a node that was launched serves.
func (r *rig) begin() *rig {
	r.t.Helper()
	r.serving()
	r.writable(true)
	return r
}

// serving waits until the gate is open.
func (r *rig) serving() {
	r.t.Helper()
	r.reaches("serving", r.up)
}

// reaches waits until a node that runs closes the channel of a state.
func (r *rig) reaches(state string, is <-chan struct{}) {
	r.t.Helper()
	select {
	case <-is:
	case code := <-r.exit:
		r.t.Fatalf("exit %d before %s\n%s", code, state, r.log)
	case <-time.After(patience):
		r.t.Fatalf("not %s\n%s", state, r.log)
	}
}

// writable waits until the probe table says that writes are taken, or that they are not.
func (r *rig) writable(want bool) {
	r.t.Helper()
	tick, late := time.NewTicker(time.Millisecond), time.After(patience)
	defer tick.Stop()
	for r.board.Report("", "").WriteReady != want {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("write-ready is not %v: %v\n%s", want, r.board.Report("", "").Causes, r.log)
		}
	}
}

// sound waits until nothing degrades the node: tasks that have just been started show a moment
// later that they run.
func (r *rig) sound() {
	r.t.Helper()
	r.await("a sound node", func() bool { return !r.board.Report("", "").Degraded })
}

// until waits for a phase.
func (r *rig) until(what string, is func(flow.Phase) bool) {
	r.t.Helper()
	late := time.After(patience)
	for {
		p, next := r.Lifecycle()
		if is(p) {
			return
		}
		select {
		case <-next:
		case code := <-r.exit:
			r.t.Fatalf("exit %d before %s\n%s", code, what, r.log)
		case <-late:
			r.t.Fatalf("still %v, not %s\n%s", p, what, r.log)
		}
	}
}

// end waits for Run to return.
func (r *rig) end() int {
	r.t.Helper()
	select {
	case code := <-r.exit:
		return code
	case <-time.After(patience):
		r.t.Fatalf("the node does not end\n%s", r.log)
		return -1
	}
}

// halt drains the node and wants a clean exit.
func (r *rig) halt() {
	r.t.Helper()
	r.mu.Lock()
	for _, c := range r.clients {
		c.Close() // or the stop lingers for its idle connections
	}
	r.mu.Unlock()
	r.stop()
	if code := r.end(); code != process.ExitClean {
		r.t.Fatalf("exit %d, want 0\n%s", code, r.log)
	}
}

func (r *rig) client(o client.Options) *apiClient {
	r.t.Helper()
	c, err := client.New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	out := newAPIClient(c)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clients = append(r.clients, out)
	return out
}

// The calls of each service, by a name of their own.
type (
	nodeAPI     = nodeapi.Client
	registryAPI = registryapi.Client
	walletAPI   = walletapi.Client
	edgeAPI     = edgeapi.Client
)

// caller has the calls of all services.
type apiClient struct {
	*client.Client
	nodeAPI
	registryAPI
	walletAPI
	edgeAPI
}

func newAPIClient(c *client.Client) *apiClient {
	return &apiClient{c, nodeapi.NewClient(c), registryapi.NewClient(c), walletapi.NewClient(c), edgeapi.NewClient(c)}
}

// socket is a client of the admin socket, tcp one with the token that init wrote.
func (r *rig) socket() *apiClient { return r.client(client.Options{Socket: r.cfg.SocketPath()}) }

func (r *rig) tcp() *apiClient {
	r.t.Helper()
	token, err := os.ReadFile(r.cfg.Path(config.TokenName))
	if err != nil {
		r.t.Fatal(err)
	}
	return r.client(client.Options{URL: "http://" + r.Addr(), Token: strings.TrimSpace(string(token))})
}

// signer is the dev node's key.
func signer(t *testing.T, cfg *config.Config) *record.Key {
	t.Helper()
	raw, err := os.ReadFile(cfg.Path(config.SignerName))
	if err != nil {
		t.Fatal(err)
	}
	key, err := record.ParseKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// draft is a delta that puts one descriptor at version v.
func draft(v uint64, id string) []byte {
	return fmt.Appendf(
		nil,
		`{"schema_version":"1.0.0","version":%d,"mode":"delta","put":[{"id":%q,"kind":"service","endpoint":"https://%s.example","meta":{}}],"remove":[]}`,
		v,
		id,
		id,
	)
}

// put proposes, signs and commits one descriptor as version v.
func put(ctx context.Context, c *apiClient, key *record.Key, v uint64, id string) (registryapi.Committed, error) {
	return putDraft(ctx, c, key, draft(v, id))
}

// putDraft proposes, signs and commits a draft.
func putDraft(ctx context.Context, c *apiClient, key *record.Key, draft []byte) (registryapi.Committed, error) {
	return putDraftAt(ctx, c, key, draft, time.Now())
}

// putDraftAt is putDraft with an approval of another time.
func putDraftAt(
	ctx context.Context,
	c *apiClient,
	key *record.Key,
	draft []byte,
	at time.Time,
) (registryapi.Committed, error) {
	p, err := c.Propose(ctx, draft, "")
	if err != nil {
		return registryapi.Committed{}, err
	}
	payload, err := c.ProposalPayload(ctx, p.ID)
	if err != nil {
		return registryapi.Committed{}, err
	}
	parsed, err := record.ParsePayload(payload)
	if err != nil {
		return registryapi.Committed{}, err
	}
	a := key.Sign(parsed.B3(), at)
	if _, err := c.Approve(ctx, p.ID,
		registryapi.Approval{SignerID: a.SignerID, Algo: a.Algo, Sig: a.Sig, SignedAt: a.SignedAt}); err != nil {
		return registryapi.Committed{}, err
	}
	done, _, err := c.Commit(ctx, p.ID)
	return done, err
}

// mustPut is put that has to succeed.
func (r *rig) mustPut(c *apiClient, key *record.Key, v uint64, id string) registryapi.Committed {
	r.t.Helper()
	done, err := put(r.t.Context(), c, key, v, id)
	if err != nil || done.Version != v {
		r.t.Fatalf("version %d: %+v, %v\n%s", v, done, err, r.log)
	}
	return done
}

// problem takes the problem out of a refusal.
func problem(t *testing.T, err error) *wire.Problem {
	t.Helper()
	var p *wire.Problem
	if !errors.As(err, &p) {
		t.Fatalf("%v is no problem", err)
	}
	return p
}

// auditRows reads the names of the audit rows of a stopped node.
func auditRows(t *testing.T, cfg *config.Config) []string {
	t.Helper()
	var names []string
	for _, e := range auditEvents(t, cfg) {
		names = append(names, e.Event)
	}
	return names
}

// auditEvents reads the audit rows of a stopped node.
func auditEvents(t *testing.T, cfg *config.Config) []store.Event {
	t.Helper()
	var events []store.Event
	offline(t, cfg, func(r store.Reader) error {
		rows, err := store.Audit(r, 0, 1000)
		for _, row := range rows {
			events = append(events, row.Event)
		}
		return err
	})
	return events
}

// offline reads a stopped node's file.
func offline(t *testing.T, cfg *config.Config, read func(store.Reader) error) {
	t.Helper()
	r, err := store.OpenReader(cfg.Path(config.DatabaseName))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.View(t.Context(), read), r.Close()); err != nil {
		t.Fatal(err)
	}
}

// metric sums the series of a family that carry the given labels.
func (r *rig) metric(name string, labels ...string) (sum float64) {
	r.t.Helper()
	all, err := r.metrics.Registry().Gather()
	must(r.t, err)
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			match := true
			for i := 0; i < len(labels); i += 2 {
				match = match && slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool {
					return l.GetName() == labels[i] && l.GetValue() == labels[i+1]
				})
			}
			if match {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}
