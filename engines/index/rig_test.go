package index_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/engines/index/name/nametest"
	"ronbox/engines/index/tables"
	"ronbox/store"
)

// rig is an engine on a real store, in memory or in a temporary file, under a supervisor.
type rig struct {
	t       testing.TB
	path    string // "": in memory
	cfg     index.Config
	peers   []name.Peer
	fleet   bool
	admit   func(network netip.Addr, cost int) (ok bool, wait time.Duration)
	ahead   atomic.Int64 // ns by which the wall clock of the engine is ahead
	metrics *obs.Metrics
	board   *obs.Board
	catalog *flow.Catalog
	store   *store.Store
	sup     *flow.Supervisor
	e       *index.Engine
	stopped bool
}

// Names and numbers of the index that tests know.
const (
	service    = "index"
	taskWorker = "worker"
	taskCache  = "cache_janitor"
	workCap    = 512
	reindexCap = 16
	eventsCap  = 1024
	nameTTL    = time.Hour
	siteTTL    = 48 * time.Hour
	keyRows    = "rows"
)

var (
	alice = engines.Actor{CapID: "cap-alice", Principal: "alice"}
	own   = seedKey(1) // the key of the rig's node

	key, digest        = nametest.Parse, nametest.Digest
	seedKey, publicOf  = nametest.Key, nametest.Public
	signed, signedName = nametest.SignedProvider, nametest.SignedName
)

// newRig boots an engine with a store in memory, which also works in a synctest bubble.
func newRig(t testing.TB, change func(*rig)) *rig {
	t.Helper()
	r := &rig{t: t, cfg: index.DefaultConfig()}
	r.cfg.Resolver.Workers = 16
	if change != nil {
		change(r)
	}
	if err := r.cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	if r.path != "" {
		id, err := store.NewIdentity(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Create(r.path, id); err != nil {
			t.Fatal(err)
		}
	}
	r.open()
	t.Cleanup(r.stop)
	return r
}

// patient gives lookups the time that a busy machine needs.
func patient(r *rig) { r.cfg.DHT.DeadlineMS = 5000 }

// onDisk keeps the rig's store in a file.
func onDisk(t testing.TB) func(*rig) {
	return func(r *rig) { r.path = filepath.Join(t.TempDir(), "ronbox.db") }
}

func (r *rig) ctx() context.Context { return context.Background() }

// open boots the node without the tasks of the engine.
func (r *rig) open() {
	r.t.Helper()
	r.metrics = obs.NewMetrics()
	r.board = obs.NewBoard(r.metrics)
	r.catalog = flow.NewCatalog(r.metrics, nil)
	o := store.Options{
		Path: r.path, Catalog: r.catalog, Metrics: r.metrics,
		Producers: map[store.Lane][]string{store.Work: {flow.HTTP}, store.Bulk: {"index." + taskCache}},
	}
	if r.path == "" {
		o.Memory = &store.AmnesiaConfig{Enabled: true, PurgeIntervalMS: 30_000, MaxBytes: 256 << 20, AllowSwap: true}
	}
	r.store = store.New(store.DefaultConfig(), o)
	r.e = index.New(r.cfg, index.Deps{
		Catalog:  r.catalog,
		Store:    r.store,
		Metrics:  r.metrics,
		Board:    r.board,
		Peers:    r.peers,
		Fleet:    r.fleet,
		Admit:    r.admit,
		Now:      func() time.Time { return time.Now().Add(time.Duration(r.ahead.Load())) },
		Identity: func() ed25519.PrivateKey { return own },
	})
	r.sup = flow.NewSupervisor(r.ctx(), r.catalog, flow.Hooks{})
	if err := errors.Join(r.store.Open(r.ctx()), r.store.Prepare(r.ctx())); err != nil {
		r.t.Fatalf("open: %v", err)
	}
	r.sup.Start(r.store.Tasks()...)
	if err := r.e.Recover(r.ctx()); err != nil {
		r.t.Fatalf("recover: %v", err)
	}
	r.stopped = false
}

func (r *rig) start() *rig {
	r.sup.Start(r.e.Tasks()...)
	return r
}

// stop shuts the node down. It may be called again.
func (r *rig) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	r.catalog.CloseFedBy(service, flow.HTTP)
	r.sup.CancelBackground()
	r.sup.Drain(service, 5*time.Second, time.Second)
	r.store.CloseLanes()
	r.sup.Drain("store", 5*time.Second, time.Second)
	r.sup.Close()
	r.e.Close()
	if err := r.store.Close(); err != nil && r.store.Err() == nil {
		r.t.Errorf("close: %v", err)
	}
}

// turns returns the length of work_tx.
func (r *rig) turns() int {
	work, _, _ := r.e.Queued()
	return work
}

// count returns the value of a series.
func (r *rig) count(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.metrics.Registry().Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(labels); i += 2 {
				if has[labels[i]] != labels[i+1] {
					continue series
				}
			}
			found = true
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	if !found {
		r.t.Fatalf("no series %s%v", name, labels)
	}
	return sum
}

func (r *rig) put(k string, m b3.Digest) name.Named {
	r.t.Helper()
	n, _, err := r.e.PutName(r.ctx(), alice, key(k), m, "corr-put")
	if err != nil {
		r.t.Fatalf("put %s: %v", k, err)
	}
	return n
}

func (r *rig) resolve(k string) name.Answer {
	r.t.Helper()
	a, err := r.e.Resolve(r.ctx(), key(k), name.ResolveOptions{})
	if err != nil {
		r.t.Fatalf("resolve %s: %v", k, err)
	}
	return a
}

// fake is a Peer with scripted answers.
type fake struct {
	target, region string
	sends, running atomic.Int64
	providers      func(ctx context.Context, cid b3.Digest) ([]name.Provider, error) // nil: it knows nobody
	name           func(ctx context.Context, k name.Key) ([]byte, error)             // nil: ErrNotFound
}

func (f *fake) Target() string { return f.target }
func (f *fake) Region() string { return f.region }

func (f *fake) Providers(ctx context.Context, cid b3.Digest, _ int) ([]name.Provider, error) {
	f.sends.Add(1)
	f.running.Add(1)
	defer f.running.Add(-1)
	if f.providers == nil {
		return nil, nil
	}
	return f.providers(ctx, cid)
}

func (f *fake) Name(ctx context.Context, k name.Key) ([]byte, error) {
	f.sends.Add(1)
	f.running.Add(1)
	defer f.running.Add(-1)
	if f.name == nil {
		return nil, name.ErrNotFound
	}
	return f.name(ctx, k)
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// knows returns a peer function that answers after d with a record of the key.
func knows(owner ed25519.PrivateKey, d time.Duration) func(context.Context, b3.Digest) ([]name.Provider, error) {
	return func(ctx context.Context, cid b3.Digest) ([]name.Provider, error) {
		if err := wait(ctx, d); err != nil {
			return nil, err
		}
		return []name.Provider{{Record: signed(owner, cid, "", time.Now(), time.Hour)}}, nil
	}
}

// hangs is a peer function that returns when its context ends.
func hangs(ctx context.Context, _ b3.Digest) ([]name.Provider, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// fails returns a peer function that returns err after d.
func fails(err error, d time.Duration) func(context.Context, b3.Digest) ([]name.Provider, error) {
	return func(ctx context.Context, _ b3.Digest) ([]name.Provider, error) {
		if ended := wait(ctx, d); ended != nil {
			return nil, ended
		}
		return nil, err
	}
}

// withPeers adds peers that are named after their index.
func withPeers(peers ...*fake) func(*rig) {
	return func(r *rig) {
		for i, p := range peers {
			if p.target == "" {
				p.target = fmt.Sprintf("peer%d:8443", i)
			}
			r.peers = append(r.peers, p)
		}
	}
}

func all(changes ...func(*rig)) func(*rig) {
	return func(r *rig) {
		for _, c := range changes {
			c(r)
		}
	}
}

// rows counts the provider records in the file, and checks that each has one row of expiry.
func (r *rig) rows() (n int) {
	r.t.Helper()
	ends := 0
	err := r.store.View(r.ctx(), func(rd store.Reader) error {
		for k, row := range tables.Providers.All(rd) {
			n++
			if !tables.Expiries.Has(rd, k.Expiry(&row)) {
				r.t.Errorf("a record is not in the order of expiry")
			}
		}
		for range tables.Expiries.All(rd) {
			ends++
		}
		return nil
	})
	if err != nil || ends != n {
		r.t.Errorf("%d records, %d in the order of expiry, %v", n, ends, err)
	}
	return n
}
