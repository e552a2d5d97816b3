package rewarder

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	ledgerrecord "ronbox/engines/ledger/record"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// rig is an engine on a real store in a temporary file, under a supervisor, with a model of a ledger.
type rig struct {
	t         testing.TB
	path      string
	artifacts string
	cfg       Config
	metrics   *obs.Metrics
	board     *obs.Board
	catalog   *flow.Catalog
	store     *store.Store
	sup       *flow.Supervisor
	model     *ledgertest.Model
	ledger    ledger.Client
	e         *Engine
	clock     atomic.Int64 // added to the wall clock, ns
	step      atomic.Pointer[func(string)]
	key       *record.Key
	stopped   bool
	before    func(*rig)           // is called once the store is made, before the engine
	memory    *store.AmnesiaConfig // keeps the file in memory: nothing is synced, and no reboot finds it
}

const (
	pool   = "pool:protocol"
	asset  = "ron"
	funded = 5_000_000
)

var alice = Call{By: engines.Actor{CapID: "cap-alice", Principal: "alice"}, Tenant: DefaultTenant, CorrID: "corr"}

func newRig(t testing.TB, change ...func(*rig)) *rig {
	t.Helper()
	dir := t.TempDir()
	r := &rig{t: t, path: filepath.Join(dir, "ronbox.db"), artifacts: filepath.Join(dir, "rewarder"), cfg: DefaultConfig(), model: ledgertest.NewModel(nil)}
	r.ledger = r.model
	key, err := record.NewKey(strings.NewReader(strings.Repeat("\x00", 32)))
	if err != nil {
		t.Fatal(err)
	}
	r.key, r.cfg.TrustKeys = key, []string{key.Public()}
	r.cfg.ReadTimeout = unit.Duration(time.Minute) // a busy machine is no ledger that does not answer
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

// inMemory is for tests of many runs and no reboot.
func inMemory(r *rig) {
	memory := store.DefaultAmnesiaConfig()
	r.memory, r.artifacts = &memory, ""
}

func (r *rig) now() time.Time { return time.Now().Add(time.Duration(r.clock.Load())) }

func (r *rig) ctx() context.Context { return context.Background() }

var funding atomic.Uint64

// fund issues so much to the funding account.
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
	out, err := r.model.Commit(r.ctx(), []ledger.Op{{
		Code: ledgerrecord.OpIssue, To: pool, Asset: asset, Amount: engines.AmountOf(0, n), Nonce: assets.LastNonce + 1, Idem: word,
		Dedupe: ledger.DedupeKey{Scope: "test", Key: word}, Fingerprint: b3.Sum([]byte(word)), TTL: time.Hour, Principal: "test",
	}})
	if err != nil || out[0].Reject != nil {
		r.t.Fatalf("fund: %v %v", err, out)
	}
}

// open is a boot: all but the rewarder's tasks run after it.
func (r *rig) open() {
	r.t.Helper()
	r.metrics = obs.NewMetrics()
	r.board = obs.NewBoard(r.metrics)
	r.catalog = flow.NewCatalog(r.metrics, nil)
	r.store = store.New(store.DefaultConfig(), store.Options{Path: r.path, Catalog: r.catalog, Metrics: r.metrics, Memory: r.memory,
		Producers: map[store.Lane][]string{store.Work: {"rewarder.worker"}, store.Bulk: {"rewarder.worker"}}})
	if r.before != nil {
		r.before(r)
	}
	r.e = New(r.cfg, Deps{
		Catalog: r.catalog, Store: r.store, Ledger: r.ledger, Metrics: r.metrics, Board: r.board, Now: r.now, Artifacts: r.artifacts,
		Step: func(s string) {
			if f := r.step.Load(); f != nil {
				(*f)(s)
			}
		},
	})
	r.e.answers = patience
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

// onStep has f told of each step; nil: nobody.
func (r *rig) onStep(f func(string)) {
	if f == nil {
		r.step.Store(nil)
		return
	}
	r.step.Store(&f)
}

// stop is an orderly shutdown. It may be called again.
func (r *rig) stop() { r.stopWithin(patience) }

func (r *rig) stopWithin(d time.Duration) (aborted int) {
	if r.stopped {
		return 0
	}
	r.stopped = true
	r.catalog.CloseFedBy(service, flow.HTTP)
	r.sup.CancelBackground()
	aborted = r.sup.Drain(service, d, patience)
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

// policy is the tour's policy, changed.
func policy(change ...func(*record.Policy)) record.Policy {
	p := record.Policy{
		ID: "rev1", Tenant: DefaultTenant, Version: "1.0.0", Asset: asset, PoolMax: n64(5_000_000), Excess: record.Residual, Account: pool,
		Source: "protocol_pool", Metrics: map[string]record.Weight{"requests": {Num: 1, Den: 1}},
		Rounding: record.LargestRemainder,
	}
	for _, f := range change {
		f(&p)
	}
	return p
}

func n64(n uint64) engines.Amount { return engines.AmountOf(0, n) }

// put stores a policy and gives its hash.
func (r *rig) put(p record.Policy) b3.Digest {
	r.t.Helper()
	doc, err := r.e.PutPolicy(r.ctx(), Call{Tenant: p.Tenant}, p.ID, p.Bytes(), []record.Signature{r.key.Sign(p.Hash())})
	if err != nil {
		r.t.Fatalf("policy: %v", err)
	}
	return doc.Hash
}

// usage is rows of JSON lines, "actor metric qty" each.
func usage(rows ...string) []byte {
	var b strings.Builder
	for _, row := range rows {
		f := strings.Fields(row)
		fmt.Fprintf(&b, "{\"actor\":%q,\"metric\":%q,\"qty\":%q}\n", f[0], f[1], f[2])
	}
	return []byte(b.String())
}

// many is usage of n actors, named so that they ascend, by one metric.
func many(n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{\"actor\":\"acct_%07d\",\"metric\":\"requests\",\"qty\":\"%d\"}\n", i, 1+i%97)
	}
	return []byte(b.String())
}

// seal uploads usage in parts and seals it.
func (r *rig) seal(in OpenInput, body []byte) Input {
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

// maxPart is the longest part that HTTP takes.
const maxPart = 1 << 20

// inputOf is an upload for an epoch that shares n.
func inputOf(epoch string, n uint64) OpenInput {
	return OpenInput{EpochID: epoch, Asset: asset, PoolMinor: n64(n), Metrics: []string{"requests"}, Account: pool}
}

func (r *rig) compute(epoch string, in Input, p record.Policy) (Run, error) {
	return r.e.Compute(r.ctx(), alice, epoch, ComputeRequest{InputsCID: in.InputsCID, PolicyID: p.ID, PolicyHash: p.Hash()})
}

func (r *rig) mustCompute(epoch string, in Input, p record.Policy) Run {
	r.t.Helper()
	c, err := r.compute(epoch, in, p)
	if err != nil {
		r.t.Fatalf("compute %s: %v", epoch, err)
	}
	return c
}

// patience is how long a test waits for what must happen: a busy machine is slow, a broken one never.
const patience = 2 * time.Minute

// await waits until a run is in one of the states.
func (r *rig) await(epoch string, states ...State) Run {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx(), patience)
	defer cancel()
	sub := r.e.events.Subscribe("test")
	defer sub.Close()
	for {
		run, err := r.e.Epoch(r.ctx(), DefaultTenant, epoch)
		if err == nil && slices.Contains(states, run.State) {
			return run
		}
		for heard := (Event{}); err == nil && heard.Epoch != epoch; {
			var lagged uint64
			if heard, lagged, err = sub.Recv(ctx); lagged > 0 {
				break
			}
		}
		if err != nil {
			r.t.Fatalf("epoch %s is %s (%s %+v), not %v: %v", epoch, run.State, run.Reason, run.Quarantine, states, err)
		}
	}
}

// hearLedger puts in force how long a call of the ledger may take.
func (r *rig) hearLedger(within time.Duration) {
	cfg := r.cfg
	cfg.ReadTimeout = unit.Duration(within)
	r.e.Reload(cfg)
}

// eventually polls until ok.
func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("never: %s", what)
		}
	}
}

// balance is what an account has.
func (r *rig) balance(account string) string {
	r.t.Helper()
	v, err := r.model.Balance(r.ctx(), account, asset, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	return v.Available.String()
}

// count reads a counter by its name and labels, as "name{a=b,c=d}"; service is the rewarder's.
func (r *rig) count(series string) float64 {
	r.t.Helper()
	name, rest, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
	all, err := r.metrics.Registry().Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			ok := labels["service"] == service
			for _, pair := range strings.Split(rest, ",") {
				if k, v, has := strings.Cut(pair, "="); has && labels[k] != v {
					ok = false
				}
			}
			if ok {
				if h := m.GetHistogram(); h != nil {
					return float64(h.GetSampleCount())
				}
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// syncBool is a bool that goroutines share.
type syncBool = atomic.Bool

// paidOnce checks what each actor has, and what is left in the funding account. It reads the model, closed or not.
func (r *rig) paidOnce(want map[string]engines.Amount, left engines.Amount) {
	r.t.Helper()
	model := r.model.Reopen()
	for actor, amount := range want {
		v, err := model.Balance(r.ctx(), actor, asset, 0)
		if err != nil || v.Available != amount {
			r.t.Fatalf("%s has %s, want %s (%v)", actor, v.Available, amount, err)
		}
	}
	if v, err := model.Balance(r.ctx(), pool, asset, 0); err != nil || v.Available != left {
		r.t.Fatalf("%s has %s, want %s (%v)", pool, v.Available, left, err)
	}
}

func asA[T error](err error) (T, bool) {
	var is T
	return is, errors.As(err, &is)
}
