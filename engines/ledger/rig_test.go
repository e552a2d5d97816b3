package ledger_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// rig is a ledger on a real store in a temporary file, under a supervisor.
type rig struct {
	t       testing.TB
	path    string
	cfg     ledger.Config
	clock   *ledgertest.Clock // nil: the wall clock
	machine *machine          // replaces clock, if it is not nil
	metrics *obs.Metrics
	board   *obs.Board
	catalog *flow.Catalog
	store   *store.Store
	sup     *flow.Supervisor
	l       *ledger.Local
	stopped bool
	safe    bool                 // the boot may end in safe mode
	elected bool                 // the boot follows an election
	memory  *store.AmnesiaConfig // keeps the file in memory
	room    unit.Size            // of the file; 0: the default
	bg      sync.WaitGroup       // calls started by the test
	groups  groupCount
	readers atomic.Int64 // subscriptions to the bus that waited for a record
}

// busReaders counts the subscriptions to the bus that wait for a record.
type busReaders struct {
	flow.Meter
	n *atomic.Int64
}

// Counter is called once per subscription.
func (m *busReaders) Counter(family, service string, pairs ...string) func(int) {
	if family == "bus_lagged_total" && slices.Contains(pairs, "balance") {
		m.n.Add(1)
	}
	return m.Meter.Counter(family, service, pairs...)
}

// groupCount counts the transactions of a store.
type groupCount struct {
	atomic.Int64
	dies atomic.Bool // the next one ends the store once it is synced
}

// Begin does nothing.
func (c *groupCount) Begin() {}

// Committed counts a transaction.
func (c *groupCount) Committed() {
	if c.Add(1); c.dies.Load() {
		panic("a bug")
	}
}

// Aborted does nothing.
func (c *groupCount) Aborted() {}

func newRig(t testing.TB, clock *ledgertest.Clock, change ...func(*ledger.Config)) *rig {
	t.Helper()
	return (&rig{t: t, clock: clock}).create(change...)
}

// create creates the file and boots.
func (r *rig) create(change ...func(*ledger.Config)) *rig {
	t := r.t
	t.Helper()
	r.path, r.cfg = filepath.Join(t.TempDir(), "ronbox.db"), ledger.DefaultConfig()
	r.cfg.FlushAfter = 0
	for _, f := range change {
		f(&r.cfg)
	}
	if err := r.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	created := time.Now()
	if r.machine != nil {
		created = r.machine.wall()
	}
	id, err := store.NewIdentity(created)
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
	if r.clock == nil {
		return time.Now()
	}
	return r.clock.Now()
}

func (r *rig) ctx() context.Context { return context.Background() }

// open boots the ledger and starts everything except the ledger's tasks.
func (r *rig) open() {
	r.t.Helper()
	if err := r.boot(); err != nil {
		r.t.Fatal(err)
	}
	if why := r.l.SafeMode(); why != "" && !r.safe {
		r.t.Fatalf("safe mode after a boot: %s", why)
	}
}

// boot is like open but returns an error. The caller must call stop in any case.
func (r *rig) boot() error {
	r.stopped = false
	r.metrics = obs.NewMetrics()
	r.board = obs.NewBoard(r.metrics)
	catalog := flow.NewCatalog(&busReaders{Meter: r.metrics, n: &r.readers}, nil)
	r.catalog = catalog
	cfg := store.DefaultConfig()
	if r.room > 0 {
		cfg.MaxBytes = r.room
	}
	o := store.Options{Path: r.path, Catalog: catalog, Metrics: r.metrics, Now: r.now, Memory: r.memory}
	d := ledger.Deps{Catalog: catalog, Metrics: r.metrics, Board: r.board, Now: r.now, Elected: r.elected}
	if r.machine != nil {
		node := r.machine.start()
		o.Now, o.Opened = node.Now, node.Begin
		d.Now, d.Settled = node.Now, node.Settled
	}
	r.store = store.New(cfg, o)
	r.store.RegisterGroup(&r.groups)
	d.Store = r.store
	r.l = ledger.New(r.cfg, d)
	r.sup = flow.NewSupervisor(r.ctx(), catalog, flow.Hooks{})
	if err := r.store.Open(r.ctx()); err != nil {
		return fmt.Errorf("open: %w", err)
	}
	if err := r.store.Prepare(r.ctx()); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	r.sup.Start(r.store.Tasks()...)
	if err := r.l.Recover(r.ctx()); err != nil {
		return fmt.Errorf("recover: %w", err)
	}
	return nil
}

// start starts the ledger's tasks.
func (r *rig) start() *rig {
	r.sup.Start(r.l.Tasks()...)
	return r
}

// stop closes the ledger and the store without a flush.
func (r *rig) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	r.bg.Wait()
	r.sup.CancelBackground()
	r.sup.Drain("ledger", time.Minute, time.Second)
	if err := r.l.Close(r.ctx()); err != nil {
		r.t.Errorf("close the ledger: %v", err)
	}
	r.store.CloseLanes()
	r.sup.Drain("store", time.Minute, time.Second)
	r.sup.Close()
	if err := r.store.Close(); err != nil && r.store.Err() == nil {
		r.t.Errorf("close: %v", err)
	}
}

// reopen stops without a flush and boots again.
func (r *rig) reopen() {
	r.stop()
	r.open()
}

func (r *rig) commit(ops ...ledger.Op) []ledger.Outcome {
	r.t.Helper()
	outs, err := r.l.Commit(r.ctx(), ops)
	if err != nil {
		r.t.Fatalf("commit: %v", err)
	}
	return outs
}

func (r *rig) accept(ops ...ledger.Op) []ledger.Outcome {
	r.t.Helper()
	outs := r.commit(ops...)
	for i, o := range outs {
		if o.Reject != nil {
			r.t.Fatalf("op %d: %v", i, o.Reject)
		}
	}
	return outs
}

func (r *rig) declare(assets ...string) *rig {
	r.t.Helper()
	for _, asset := range assets {
		if err := r.l.Declare(r.ctx(), ledger.Op{Code: record.OpAsset, Asset: asset}); err != nil {
			r.t.Fatalf("declare: %v", err)
		}
	}
	return r
}

func amount(n uint64) engines.Amount { return engines.AmountOf(0, n) }

func issue(to string, n, nonce uint64) ledger.Op {
	return ledger.Op{Code: record.OpIssue, To: to, Asset: "ron", Amount: amount(n), Nonce: nonce}
}

func transfer(from, to string, n, nonce uint64) ledger.Op {
	return ledger.Op{Code: record.OpTransfer, From: from, To: to, Asset: "ron", Amount: amount(n), Nonce: nonce}
}

// keyed returns o with an idempotency key.
func keyed(o ledger.Op, key string) ledger.Op {
	o.Dedupe, o.TTL, o.Idem = ledger.DedupeKey{Scope: "alice", Key: key}, time.Hour, key
	o.Fingerprint[0], o.Fingerprint[1] = byte(o.Code), byte(o.Nonce)
	return o
}
