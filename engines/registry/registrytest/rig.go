package registrytest

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
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Rig is an engine on a real store in a temporary file, under a supervisor.
type Rig struct {
	T       testing.TB
	Path    string
	Config  registry.Config
	Metrics *obs.Metrics
	Board   *obs.Board
	Catalog *flow.Catalog
	Store   *store.Store
	Sup     *flow.Supervisor
	Engine  *registry.Engine
	clock   atomic.Int64 // added to the wall clock, ns
	frozen  atomic.Int64 // Unix ns at which the wall clock stands; 0: it goes
	Steps   atomic.Int64 // that Recover told of
	Stopped bool

	Replicated bool
	Memory     *store.AmnesiaConfig // keeps the file in memory
	Tracer     *obs.Tracer
	Log        hclog.Logger
	KeyFile    string     // of the log key; "" for none, and no high-water mark then
	Segment    uint64     // versions of one; 0: as many as in production
	Hub        follow.Hub // of a follower
}

// Origin is the name of the log of a rig.
const Origin = "ronbox.local/test"

// Alice proposes and commits in most tests.
var Alice = engines.Actor{CapID: "cap-alice", Principal: "alice"}

// Patient are deadlines beyond the limits of a configuration: a busy machine must not fail a
// test.
var Patient = registry.TimeoutsConfig{
	Propose: unit.Duration(Patience), Approve: unit.Duration(Patience), Commit: unit.Duration(Patience),
}

// New returns a rig on a new file that has recovered. Its tasks do not run yet.
func New(t testing.TB, change ...func(*registry.Config)) *Rig {
	t.Helper()
	r := &Rig{T: t, Path: filepath.Join(t.TempDir(), "ronbox.db"), Config: registry.DefaultConfig()}
	r.Config.Origin = Origin
	for _, f := range change {
		f(&r.Config)
	}
	if err := r.Config.Validate(); err != nil {
		t.Fatal(err)
	}
	r.Config.Timeouts = Patient
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(r.Path, id); err != nil {
		t.Fatal(err)
	}
	r.Open()
	t.Cleanup(r.Stop)
	return r
}

// Now returns the time of the engine.
func (r *Rig) Now() time.Time {
	wall := time.Now()
	if at := r.frozen.Load(); at != 0 {
		wall = time.Unix(0, at)
	}
	return wall.Add(time.Duration(r.clock.Load()))
}

// Freeze stops the clock of the engine; Advance still moves it.
func (r *Rig) Freeze() { r.frozen.Store(time.Now().UnixNano()) }

// Advance moves the engine's clock.
func (r *Rig) Advance(d time.Duration) { r.clock.Add(int64(d)) }

// Open is a boot: all but the registry's tasks run after it.
func (r *Rig) Open() {
	r.T.Helper()
	r.OpenStore()
	if err := r.Engine.Recover(r.Ctx()); err != nil {
		r.T.Fatalf("recover: %v", err)
	}
}

// OpenStore opens the file, and makes an engine that has not recovered.
func (r *Rig) OpenStore() {
	r.T.Helper()
	r.Wire()
	if err := errors.Join(r.Store.Open(r.Ctx()), r.Store.Prepare(r.Ctx())); err != nil {
		r.T.Fatalf("open: %v", err)
	}
	r.Sup.Start(r.Store.Tasks()...)
	r.Stopped = false
}

// Wire makes a store and an engine, and opens neither.
func (r *Rig) Wire() {
	r.Metrics = obs.NewMetrics()
	r.Board = obs.NewBoard(r.Metrics)
	r.Catalog = flow.NewCatalog(r.Metrics, nil)
	r.Store = store.New(store.DefaultConfig(), store.Options{
		Path: r.Path, Catalog: r.Catalog, Metrics: r.Metrics, Memory: r.Memory,
		Producers: map[store.Lane][]string{store.Work: {"registry.pipeline"}, store.Bulk: {"registry.pipeline"}},
	})
	r.Engine = registry.New(r.Config, registry.Deps{
		Catalog:       r.Catalog,
		Store:         r.Store,
		Metrics:       r.Metrics,
		Board:         r.Board,
		Tracer:        r.Tracer,
		Log:           r.Log,
		Now:           r.Now,
		Progress:      func(string, int64, int64) { r.Steps.Add(1) },
		LogKeyFile:    r.KeyFile,
		HighWaterFile: r.MarkFile(),
		Replicated:    r.Replicated,
		Hub:           r.Hub,
		Segment:       r.Segment,
	})
	r.Sup = flow.NewSupervisor(r.Ctx(), r.Catalog, flow.Hooks{})
}

// MarkFile is the high-water mark of a rig that has a log key.
func (r *Rig) MarkFile() string {
	if r.KeyFile == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(r.Path), "highwater.note")
}

// Start starts the tasks of the registry.
func (r *Rig) Start() *Rig {
	r.Sup.Start(r.Engine.Tasks()...)
	return r
}

// Attached waits until the publisher follows the log: it does not send earlier versions.
func (r *Rig) Attached() {
	r.T.Helper()
	r.WaitFor("the publisher to attach",
		func() bool { return r.Board.Report(tables.Service, "").Causes["registry.bus_attached"] == "" })
}

// Stop is an orderly shutdown. It may be called again.
func (r *Rig) Stop() {
	if r.Stopped {
		return
	}
	r.Stopped = true
	r.Catalog.CloseFedBy(tables.Service, flow.HTTP)
	r.Sup.CancelBackground()
	r.Sup.Drain(tables.Service, Patience, Patience)
	r.Store.CloseLanes()
	r.Sup.Drain("store", Patience, Patience)
	r.Sup.Close()
	if err := r.Engine.Close(r.Ctx()); err != nil {
		r.T.Errorf("close the engine: %v", err)
	}
	if err := r.Store.Close(); err != nil && r.Store.Err() == nil {
		r.T.Errorf("close: %v", err)
	}
}

// Ctx returns a context that does not end.
func (r *Rig) Ctx() context.Context { return context.Background() }

// Signers are keys of one organisation with a threshold.
type Signers struct {
	Keys      []*record.Key
	Threshold int
	LogKeys   []string
	Policy    string // of witnesses
}

// NewSigners returns n keys, of which threshold must approve. They are the same in each test.
func NewSigners(n, threshold int) Signers {
	s := Signers{Threshold: threshold}
	for i := range n {
		seed := make([]byte, ed25519.SeedSize)
		seed[0], seed[1] = byte(i+1), 0x5e
		key, err := record.NewKey(fmt.Sprintf("org:test#key%d", i+1), &fixed{seed})
		if err != nil {
			panic(err)
		}
		s.Keys = append(s.Keys, key)
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

// Set returns the signer set of the keys.
func (s Signers) Set() *record.SignerSet {
	set := &record.SignerSet{
		Epoch: 1, Threshold: s.Threshold, ThresholdGov: s.Threshold,
		LogKeys: s.LogKeys, WitnessPolicy: s.Policy,
	}
	for _, k := range s.Keys {
		set.Signers = append(set.Signers, k.Signer(1))
	}
	return set
}

// Genesis starts the log with items and s in force.
func (r *Rig) Genesis(s Signers, items ...string) document.Committed {
	r.T.Helper()
	raw, approvals := r.GenesisPayload(s, items...)
	c, err := r.Engine.Genesis(r.Ctx(), Alice, raw, approvals, "corr-genesis")
	if err != nil {
		r.T.Fatalf("genesis: %v", err)
	}
	return c
}

// GenesisPayload returns a genesis with items and s in force, and its approvals.
func (r *Rig) GenesisPayload(s Signers, items ...string) ([]byte, []record.Approval) {
	r.T.Helper()
	all := make([]string, 0, len(items))
	for _, id := range items {
		all = append(all, Item(id))
	}
	draft := fmt.Appendf(nil,
		`{"schema_version":"1.0.0","origin":%q,"version":1,"kind":"genesis","mode":"full","items":[%s],"signer_set":%s}`,
		Origin, strings.Join(all, ","), s.Set().Bytes())
	p, _, err := record.Complete(draft, record.Base{Origin: Origin}, r.Now())
	if err != nil {
		r.T.Fatalf("genesis payload: %v", err)
	}
	return p.Bytes(), s.Sign(p.B3(), r.Now())
}

// Sign returns the approvals of a payload by all keys.
func (s Signers) Sign(payload b3.Digest, at time.Time) []record.Approval {
	var out []record.Approval
	for _, k := range s.Keys {
		out = append(out, k.Sign(payload, at))
	}
	return out
}

// Item returns a descriptor.
func Item(id string) string {
	return fmt.Sprintf(`{"id":%q,"kind":"service","meta":{"note":"of %s"}}`, id, id)
}

// Delta is a draft that adds one item.
func Delta(version uint64, id string) []byte {
	return fmt.Appendf(nil, `{"schema_version":"1.0.0","version":%d,"mode":"delta","put":[%s],"remove":[]}`,
		version, Item(id))
}

// DeltaOn is delta stacked on a proposal.
func DeltaOn(version uint64, id string, prev b3.Digest) []byte {
	return fmt.Appendf(nil,
		`{"schema_version":"1.0.0","version":%d,"prev_hash":%q,"mode":"delta","put":[%s],"remove":[]}`, version,
		prev, Item(id))
}

// Propose enters a version that adds one item.
func (r *Rig) Propose(version uint64, id string) document.Proposed {
	r.T.Helper()
	p, err := r.Engine.Propose(r.Ctx(), Alice, Delta(version, id), "", "corr-propose")
	if err != nil {
		r.T.Fatalf("propose version %d: %v", version, err)
	}
	return p
}

// Approve approves a proposal with keys.
func (r *Rig) Approve(p document.Proposed, keys ...*record.Key) {
	r.T.Helper()
	for _, k := range keys {
		if _, err := r.Engine.Approve(r.Ctx(), Alice, p.ID, k.Sign(p.PayloadB3, r.Now()), "corr-approve"); err != nil {
			r.T.Fatalf("approve: %v", err)
		}
	}
}

// Commit commits a proposal.
func (r *Rig) Commit(p document.Proposed) document.Committed {
	r.T.Helper()
	c, err := r.Engine.Commit(r.Ctx(), Alice, p.ID, "corr-commit")
	if err != nil {
		r.T.Fatalf("commit: %v", err)
	}
	return c
}
