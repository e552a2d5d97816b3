package registry

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// rig is an engine on a real store in a temporary file, under a supervisor.
type rig struct {
	t       testing.TB
	path    string
	cfg     Config
	metrics *obs.Metrics
	board   *obs.Board
	catalog *flow.Catalog
	store   *store.Store
	sup     *flow.Supervisor
	e       *Engine
	clock   atomic.Int64 // added to the wall clock, ns
	frozen  atomic.Int64 // Unix ns at which the wall clock stands; 0: it goes
	steps   atomic.Int64 // that Recover told of
	stopped bool

	replicated bool
	memory     *store.AmnesiaConfig // keeps the file in memory
	tracer     *obs.Tracer
	log        hclog.Logger
	keyFile    string     // of the log key; "" for none, and no high-water mark then
	segment    uint64     // versions of one; 0: as many as in production
	hub        follow.Hub // of a follower
}

const testOrigin = "ronbox.local/test"

// alice proposes and commits in most tests.
var alice = engines.Actor{CapID: "cap-alice", Principal: "alice"}

// patient are deadlines beyond the limits of a configuration: a busy machine must not fail a test.
var patient = TimeoutsConfig{
	Propose: unit.Duration(patience), Approve: unit.Duration(patience), Commit: unit.Duration(patience),
}

func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, path: filepath.Join(t.TempDir(), "ronbox.db"), cfg: DefaultConfig()}
	r.cfg.Origin = testOrigin
	for _, f := range change {
		f(&r.cfg)
	}
	if err := r.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	r.cfg.Timeouts = patient
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(r.path, id); err != nil {
		t.Fatal(err)
	}
	r.open()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) now() time.Time {
	wall := time.Now()
	if at := r.frozen.Load(); at != 0 {
		wall = time.Unix(0, at)
	}
	return wall.Add(time.Duration(r.clock.Load()))
}

// freeze stops the clock of the engine; advance still moves it.
func (r *rig) freeze() { r.frozen.Store(time.Now().UnixNano()) }

// advance moves the engine's clock.
func (r *rig) advance(d time.Duration) { r.clock.Add(int64(d)) }

// open is a boot: all but the registry's tasks run after it.
func (r *rig) open() {
	r.t.Helper()
	r.openStore()
	if err := r.e.Recover(r.ctx()); err != nil {
		r.t.Fatalf("recover: %v", err)
	}
}

// openStore opens the file, and makes an engine that has not recovered.
func (r *rig) openStore() {
	r.t.Helper()
	r.wire()
	if err := errors.Join(r.store.Open(r.ctx()), r.store.Prepare(r.ctx())); err != nil {
		r.t.Fatalf("open: %v", err)
	}
	r.sup.Start(r.store.Tasks()...)
	r.stopped = false
}

func (r *rig) wire() {
	r.metrics = obs.NewMetrics()
	r.board = obs.NewBoard(r.metrics)
	r.catalog = flow.NewCatalog(r.metrics, nil)
	r.store = store.New(store.DefaultConfig(), store.Options{
		Path: r.path, Catalog: r.catalog, Metrics: r.metrics, Memory: r.memory,
		Producers: map[store.Lane][]string{store.Work: {"registry.pipeline"}, store.Bulk: {"registry.pipeline"}},
	})
	r.e = New(r.cfg, Deps{
		Catalog:       r.catalog,
		Store:         r.store,
		Metrics:       r.metrics,
		Board:         r.board,
		Tracer:        r.tracer,
		Log:           r.log,
		Now:           r.now,
		Progress:      func(string, int64, int64) { r.steps.Add(1) },
		LogKeyFile:    r.keyFile,
		HighWaterFile: r.markFile(),
		Replicated:    r.replicated,
		Hub:           r.hub,
		Segment:       r.segment,
	})
	r.sup = flow.NewSupervisor(r.ctx(), r.catalog, flow.Hooks{})
}

// markFile is the high-water mark of a rig that has a log key.
func (r *rig) markFile() string {
	if r.keyFile == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(r.path), "highwater.note")
}

func (r *rig) start() *rig {
	r.sup.Start(r.e.Tasks()...)
	return r
}

// attached waits until the publisher follows the log: it does not send earlier versions.
func (r *rig) attached() {
	r.t.Helper()
	r.waitFor("the publisher to attach",
		func() bool { return r.board.Report(service, "").Causes["registry.bus_attached"] == "" })
}

// stop is an orderly shutdown. It may be called again.
func (r *rig) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	r.catalog.CloseFedBy(service, flow.HTTP)
	r.sup.CancelBackground()
	r.sup.Drain(service, patience, patience)
	r.store.CloseLanes()
	r.sup.Drain("store", patience, patience)
	r.sup.Close()
	if err := r.e.Close(r.ctx()); err != nil {
		r.t.Errorf("close the engine: %v", err)
	}
	if err := r.store.Close(); err != nil && r.store.Err() == nil {
		r.t.Errorf("close: %v", err)
	}
}

func (r *rig) ctx() context.Context { return context.Background() }

// signers are keys of one organisation with a threshold.
type signers struct {
	keys      []*record.Key
	threshold int
	logKeys   []string
	policy    string // of witnesses
}

func newSigners(n, threshold int) signers {
	s := signers{threshold: threshold}
	for i := range n {
		seed := make([]byte, ed25519.SeedSize)
		seed[0], seed[1] = byte(i+1), 0x5e
		key, err := record.NewKey(fmt.Sprintf("org:test#key%d", i+1), &fixed{seed})
		if err != nil {
			panic(err)
		}
		s.keys = append(s.keys, key)
	}
	return s
}

// fixed reads the same bytes once.
type fixed struct{ b []byte }

func (f *fixed) Read(p []byte) (int, error) {
	n := copy(p, f.b)
	f.b = f.b[n:]
	return n, nil
}

func (s signers) set() *record.SignerSet {
	set := &record.SignerSet{
		Epoch: 1, Threshold: s.threshold, ThresholdGov: s.threshold,
		LogKeys: s.logKeys, WitnessPolicy: s.policy,
	}
	for _, k := range s.keys {
		set.Signers = append(set.Signers, k.Signer(1))
	}
	return set
}

// genesis starts the log with items and s in force.
func (r *rig) genesis(s signers, items ...string) document.Committed {
	r.t.Helper()
	raw, approvals := r.genesisPayload(s, items...)
	c, err := r.e.Genesis(r.ctx(), alice, raw, approvals, "corr-genesis")
	if err != nil {
		r.t.Fatalf("genesis: %v", err)
	}
	return c
}

func (r *rig) genesisPayload(s signers, items ...string) ([]byte, []record.Approval) {
	r.t.Helper()
	all := make([]string, 0, len(items))
	for _, id := range items {
		all = append(all, testItem(id))
	}
	draft := fmt.Appendf(nil,
		`{"schema_version":"1.0.0","origin":%q,"version":1,"kind":"genesis","mode":"full","items":[%s],"signer_set":%s}`,
		testOrigin, strings.Join(all, ","), s.set().Bytes())
	p, _, err := record.Complete(draft, record.Base{Origin: testOrigin}, r.now())
	if err != nil {
		r.t.Fatalf("genesis payload: %v", err)
	}
	return p.Bytes(), s.sign(p.B3(), r.now())
}

func (s signers) sign(payload b3.Digest, at time.Time) []record.Approval {
	var out []record.Approval
	for _, k := range s.keys {
		out = append(out, k.Sign(payload, at))
	}
	return out
}

func testItem(id string) string {
	return fmt.Sprintf(`{"id":%q,"kind":"service","meta":{"note":"of %s"}}`, id, id)
}

// delta is a draft that adds one item.
func delta(version uint64, id string) []byte {
	return fmt.Appendf(nil, `{"schema_version":"1.0.0","version":%d,"mode":"delta","put":[%s],"remove":[]}`,
		version, testItem(id))
}

// deltaOn is delta stacked on a proposal.
func deltaOn(version uint64, id string, prev b3.Digest) []byte {
	return fmt.Appendf(nil,
		`{"schema_version":"1.0.0","version":%d,"prev_hash":%q,"mode":"delta","put":[%s],"remove":[]}`, version,
		prev, testItem(id))
}

func (r *rig) propose(version uint64, id string) document.Proposed {
	r.t.Helper()
	p, err := r.e.Propose(r.ctx(), alice, delta(version, id), "", "corr-propose")
	if err != nil {
		r.t.Fatalf("propose version %d: %v", version, err)
	}
	return p
}

func (r *rig) approve(p document.Proposed, keys ...*record.Key) {
	r.t.Helper()
	for _, k := range keys {
		if _, err := r.e.Approve(r.ctx(), alice, p.ID, k.Sign(p.PayloadB3, r.now()), "corr-approve"); err != nil {
			r.t.Fatalf("approve: %v", err)
		}
	}
}

func (r *rig) commit(p document.Proposed) document.Committed {
	r.t.Helper()
	c, err := r.e.Commit(r.ctx(), alice, p.ID, "corr-commit")
	if err != nil {
		r.t.Fatalf("commit: %v", err)
	}
	return c
}
