package rewarder_test

import (
	"context"
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
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	ledgerrecord "ronbox/engines/ledger/record"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// rig is an engine on a real store in a temporary file, with a supervisor and a model of a ledger.
type rig struct {
	t         testing.TB
	path      string
	artifacts string
	cfg       rewarder.Config
	metrics   *obs.Metrics
	board     *obs.Board
	catalog   *flow.Catalog
	store     *store.Store
	sup       *flow.Supervisor
	model     *ledgertest.Model
	ledger    ledger.Client
	e         *rewarder.Engine
	clock     atomic.Int64 // added to the wall clock, ns
	step      atomic.Pointer[func(string)]
	key       *record.Key
	stopped   bool
	log       hclog.Logger // of the engine
	pins      rewarder.PinsOf
	audited   func([]store.AuditRow)
	before    func(*rig)           // called after the store was created, before the engine
	memory    *store.AmnesiaConfig // keep the file in memory: no syncs, lost at a reboot
}

const (
	pool   = "pool:protocol"
	asset  = "ron"
	funded = 5_000_000
)

var alice = rewarder.Call{By: engines.Actor{CapID: "cap-alice", Principal: "alice"}, Tenant: rewarder.DefaultTenant,
	CorrID: "corr"}

func newRig(t testing.TB, change ...func(*rig)) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{
		t:         t,
		path:      filepath.Join(dir, "ronbox.db"),
		artifacts: filepath.Join(dir, "rewarder"),
		cfg:       rewarder.DefaultConfig(),
		model:     ledgertest.NewModel(nil),
	}
	r.ledger = r.model
	key, err := record.NewKey(strings.NewReader(strings.Repeat("\x00", 32)))
	if err != nil {
		t.Fatal(err)
	}
	r.key, r.cfg.TrustKeys = key, []string{key.Public()}
	r.cfg.ReadTimeout = unit.Duration(time.Minute) // a busy machine must not look like a silent ledger
	for _, f := range change {
		f(r)
	}
	if err := r.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if r.memory == nil {
		if err := store.Create(r.path, id); err != nil {
			t.Fatal(err)
		}
	}
	r.fund(funded)
	r.open()
	t.Cleanup(r.stop)
	return r
}

// inMemory keeps the file in memory, for tests with many runs and without reboots.
func inMemory(r *rig) {
	memory := store.DefaultAmnesiaConfig()
	r.memory, r.artifacts = &memory, ""
}

func (r *rig) now() time.Time { return time.Now().Add(time.Duration(r.clock.Load())) }

func (r *rig) ctx() context.Context { return context.Background() }

var funding atomic.Uint64

// fund issues n to the funding account.
func (r *rig) fund(n uint64) {
	r.t.Helper()
	if err := r.model.Declare(r.ctx(), asset); err != nil {
		r.t.Fatal(err)
	}
	assets, err := r.model.Account(r.ctx(), engines.IssuanceAccount(asset))
	if err != nil {
		r.t.Fatal(err)
	}
	word := fmt.Sprint("fund", funding.Add(1))
	out, err := r.model.Commit(r.ctx(), []ledger.Op{
		{
			Code:        ledgerrecord.OpIssue,
			To:          pool,
			Asset:       asset,
			Amount:      engines.AmountOf(0, n),
			Nonce:       assets.LastNonce + 1,
			Idem:        word,
			Dedupe:      ledger.DedupeKey{Scope: "test", Key: word},
			Fingerprint: b3.Sum([]byte(word)),
			TTL:         time.Hour,
			Principal:   "test",
		},
	})
	if err != nil || out[0].Reject != nil {
		r.t.Fatalf("fund: %v %v", err, out)
	}
}

// open boots the node, without the tasks of the rewarder.
func (r *rig) open() {
	r.t.Helper()
	r.metrics = obs.NewMetrics()
	r.board = obs.NewBoard(r.metrics)
	r.catalog = flow.NewCatalog(r.metrics, nil)
	r.store = store.New(
		store.DefaultConfig(),
		store.Options{Path: r.path, Catalog: r.catalog, Metrics: r.metrics, Memory: r.memory, Audited: r.audited,
			Producers: map[store.Lane][]string{store.Work: {"rewarder.worker"}, store.Bulk: {"rewarder.worker"}}},
	)
	if r.before != nil {
		r.before(r)
	}
	r.e = rewarder.New(r.cfg, rewarder.Deps{
		Catalog:   r.catalog,
		Store:     r.store,
		Ledger:    r.ledger,
		Metrics:   r.metrics,
		Board:     r.board,
		Now:       r.now,
		Artifacts: r.artifacts,
		Log:       r.log,
		Pins:      r.pins,
		Step: func(s string) {
			if f := r.step.Load(); f != nil {
				(*f)(s)
			}
		},
	})
	*r.e.Answers() = patience
	r.sup = flow.NewSupervisor(r.ctx(), r.catalog, flow.Hooks{})
	if err := errors.Join(r.store.Open(r.ctx()), r.store.Prepare(r.ctx())); err != nil {
		r.t.Fatalf("open: %v", err)
	}
	r.sup.Start(r.store.Tasks()...)
	r.stopped = false
}

func (r *rig) start() *rig {
	r.sup.Start(r.e.Tasks()...)
	return r
}

// onStep sets the function that is called at each step; it may be nil.
func (r *rig) onStep(f func(string)) {
	if f == nil {
		r.step.Store(nil)
		return
	}
	r.step.Store(&f)
}

// stop shuts the node down. It may be called again.
func (r *rig) stop() { r.stopWithin(patience) }

func (r *rig) stopWithin(d time.Duration) (aborted int) {
	if r.stopped {
		return 0
	}
	r.stopped = true
	r.catalog.CloseFedBy(rewarder.Service, flow.HTTP)
	r.sup.CancelBackground()
	aborted = r.sup.Drain(rewarder.Service, d, patience)
	r.store.CloseLanes()
	r.sup.Drain("store", patience, patience)
	r.sup.Close()
	if err := errors.Join(r.e.Close(r.ctx()), r.store.Close()); err != nil && r.store.Err() == nil {
		r.t.Errorf("close: %v", err)
	}
	return aborted
}

// reboot stops the node and starts it again.
func (r *rig) reboot() {
	r.stop()
	r.open()
	r.start()
}

// policy returns the policy of the tour with changes.
func policy(change ...func(*record.Policy)) record.Policy {
	p := record.Policy{
		ID:       "rev1",
		Tenant:   rewarder.DefaultTenant,
		Version:  "1.0.0",
		Asset:    asset,
		PoolMax:  n64(5_000_000),
		Excess:   record.Residual,
		Account:  pool,
		Source:   "protocol_pool",
		Metrics:  map[string]record.Weight{"requests": {Num: 1, Den: 1}},
		Rounding: record.LargestRemainder,
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func n64(n uint64) engines.Amount { return engines.AmountOf(0, n) }

// put stores a policy and returns its hash.
func (r *rig) put(p record.Policy) b3.Digest {
	r.t.Helper()
	doc, err := r.e.PutPolicy(r.ctx(), rewarder.Call{Tenant: p.Tenant}, p.ID, p.Bytes(),
		[]record.Signature{r.key.Sign(p.Hash())})
	if err != nil {
		r.t.Fatalf("policy: %v", err)
	}
	return doc.Hash
}

// usage returns JSON lines for rows of the form "actor metric qty".
func usage(rows ...string) []byte {
	var b strings.Builder
	for _, row := range rows {
		f := strings.Fields(row)
		fmt.Fprintf(&b, "{\"actor\":%q,\"metric\":%q,\"qty\":%q}\n", f[0], f[1], f[2])
	}
	return []byte(b.String())
}

// many returns the usage of n actors with ascending names and one metric.
func many(n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"actor\":\"acct_%07d\",\"metric\":\"requests\",\"qty\":\"%d\"}\n", i, 1+i%97)
	}
	return []byte(b.String())
}

// seal uploads usage in parts and seals it.
func (r *rig) seal(in rewarder.OpenInput, body []byte) rewarder.Input {
	r.t.Helper()
	up, err := r.e.OpenInput(r.ctx(), alice, in)
	if err != nil {
		r.t.Fatalf("open input: %v", err)
	}
	for n := uint32(0); len(body) > 0; n++ {
		cut := len(body)
		if cut > maxPart {
			cut = strings.LastIndexByte(string(body[:maxPart]), '\n') + 1
		}
		if _, err := r.e.PutPart(r.ctx(), alice, up.ID, n, false, body[:cut]); err != nil {
			r.t.Fatalf("part %d: %v", n, err)
		}
		body = body[cut:]
	}
	sealed, err := r.e.SealInput(r.ctx(), alice, up.ID)
	if err != nil {
		r.t.Fatalf("seal: %v", err)
	}
	return sealed
}

// maxPart bounds a part as HTTP does.
const maxPart = 1 << 20

// inputOf returns the declaration of an upload for an epoch with a pool of n.
func inputOf(epoch string, n uint64) rewarder.OpenInput {
	return rewarder.OpenInput{EpochID: epoch, Asset: asset, PoolMinor: n64(n), Metrics: []string{"requests"},
		Account: pool}
}

func (r *rig) compute(epoch string, in rewarder.Input, p record.Policy) (rewarder.Run, error) {
	return r.e.Compute(r.ctx(), alice, epoch,
		rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash(), EmptyOK: true})
}

// accept sends the scheduler a request that Compute would refuse, as earlier releases did.
func (r *rig) accept(epoch string, in rewarder.Input, p record.Policy) {
	r.t.Helper()
	want := rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash()}
	j := rewarder.JobOf(rewarder.Scoped(rewarder.DefaultTenant, epoch),
		record.RunKey(epoch, want.PolicyHash, want.InputsCID))
	q := rewarder.NewRequest(alice, j, want)
	if err := r.e.Requests().TrySend(q); err != nil {
		r.t.Fatal(err)
	}
	if _, err := q.Reply().Wait(r.ctx()); err != nil {
		r.t.Fatalf("accept %s: %v", epoch, err)
	}
}

func (r *rig) mustCompute(epoch string, in rewarder.Input, p record.Policy) rewarder.Run {
	r.t.Helper()
	c, err := r.compute(epoch, in, p)
	if err != nil {
		r.t.Fatalf("compute %s: %v", epoch, err)
	}
	return c
}
