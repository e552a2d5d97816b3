package edgetest

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/cache"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/sites"
	"ronbox/engines/edge/tables"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
	"ronbox/store"
)

const service = "edge"

// Rig is a content store with fills, searches and sites, on a real store in a temporary folder. It
// is their owner, too.
type Rig struct {
	T     testing.TB
	Cfg   config.Config
	Names interface { // nil if the index is off
		near.Names
		sites.Names
	}
	Fleet   near.Config
	Own     []netip.AddrPort // listeners of this node, which it must not call
	Metrics *obs.Metrics
	Catalog *flow.Catalog
	DB      *store.Store
	Content *content.Store
	Fills   *fill.Filler
	Near    *near.Searcher
	Sites   *sites.Server

	sup     *flow.Supervisor
	pool    *lines.Pool
	flights *flow.Flight[string, struct{}, fill.Filled]
	absent  *cache.Cache[string, fill.Answer]
	clock   atomic.Int64 // added to the wall clock, ns
	stopped atomic.Bool

	mu     sync.Mutex    // a leaf
	events []asset.Event // guarded by mu
}

// New returns a rig whose tasks run. change may set Cfg, Names, Fleet and Own.
func New(t testing.TB, change ...func(*Rig)) *Rig {
	t.Helper()
	r := &Rig{T: t, Cfg: config.DefaultConfig()}
	r.Cfg.CAS.MinFree = 0
	r.Cfg.Ingress.TimeoutSecs = 30 // for a busy machine, as the next one
	r.Fleet.ProbeWithin = 30 * time.Second
	for _, f := range change {
		f(r)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "ronbox.db")
	id, err := store.NewIdentity(time.Now())
	if err == nil {
		err = store.Create(path, id)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Metrics = obs.NewMetrics()
	r.Catalog = flow.NewCatalog(r.Metrics, hclog.NewNullLogger())
	r.DB = store.New(store.DefaultConfig(), store.Options{
		Path:      path,
		Catalog:   r.Catalog,
		Metrics:   r.Metrics,
		Producers: map[store.Lane][]string{store.Work: {"edge.cas_writer"}},
	})
	r.DB.Declare(service, tables.Buckets()...)
	r.parts(dir)
	r.start()
	t.Cleanup(r.stop)
	return r
}

// parts makes the parts.
func (r *Rig) parts(dir string) {
	r.pool = lines.New(lines.Deps{
		Catalog: r.Catalog,
		Metrics: r.Metrics,
		Rule:    func(*fleet.View) upstream.NodeRule { return upstream.NodeRule{Plain: true, Own: r.Own} },
	})
	r.Content = content.New([]string{flow.HTTP, fill.TaskName}, content.Deps{
		Catalog: r.Catalog,
		Store:   r.DB,
		Dir:     cas.In(dir, cas.Faults{}),
		Log:     hclog.NewNullLogger(),
		Now:     r.Now,
		Config:  r.config,
		Owner:   r,
	})
	r.flights = flow.NewFlight[string, struct{}, fill.Filled](r.Catalog, flow.FlightSpec{
		Service: service, Name: "fill", Shards: 16, Waiters: 4096, Calls: r.Cfg.Queues.WorkTX + 2*r.Cfg.Fill.Workers,
	})
	r.absent = cache.New[string, fill.Answer](r.Catalog, cache.Spec[string, fill.Answer]{
		Service: service, Name: "absent_set", Producers: []string{flow.HTTP, fill.TaskName}, Bytes: 4096, Entry: 1,
		Doc: "refusals",
	})
	r.Fills = fill.New(fill.Deps{
		Catalog: r.Catalog,
		Metrics: r.Metrics,
		Content: r.Content,
		Config:  r.config,
		Now:     r.Now,
		Absent:  r.absent,
		Flights: r.flights,
		Owner:   r,
	})
	r.Fleet.Readers, r.Fleet.Searchers = []string{flow.HTTP}, []string{flow.HTTP}
	r.Near = near.New(r.Fleet, near.Deps{
		Catalog: r.Catalog,
		Log:     hclog.NewNullLogger(),
		Config:  r.config,
		Content: r.Content,
		Fills:   r.Fills,
		Names:   r.Names,
		Owner:   r,
	})
	r.Sites = sites.New([]string{flow.HTTP}, sites.Deps{
		Catalog: r.Catalog,
		Config:  r.config,
		Now:     r.Now,
		Content: r.Content,
		Near:    r.Near,
		Names:   r.Names,
	})
}

// start opens the files and starts the tasks.
func (r *Rig) start() {
	r.T.Helper()
	ctx := context.Background()
	r.sup = flow.NewSupervisor(ctx, r.Catalog, flow.Hooks{})
	if err := errors.Join(r.DB.Open(ctx), r.DB.Prepare(ctx)); err != nil {
		r.T.Fatal(err)
	}
	r.sup.Start(r.DB.Tasks()...)
	if err := errors.Join(r.absent.Open(), r.Sites.Open(), r.Content.Recover(ctx)); err != nil {
		r.T.Fatal(err)
	}
	r.sup.Start(append(r.Content.Tasks(), r.Fills.Tasks()...)...)
}

func (r *Rig) stop() { r.Drain(5 * time.Second) }

// Drain shuts down and lets the tasks run for within.
func (r *Rig) Drain(within time.Duration) {
	if r.stopped.Swap(true) {
		return
	}
	r.Catalog.CloseFedBy(service, flow.HTTP)
	r.sup.CancelBackground()
	r.sup.Drain(service, within, 5*time.Second)
	r.DB.CloseLanes()
	r.sup.Drain("store", 5*time.Second, time.Second)
	r.sup.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := errors.Join(r.Near.Close(ctx), r.flights.Close(ctx), r.Content.Close(ctx), r.Sites.Close(ctx))
	if err != nil {
		r.T.Error(err)
	}
	r.Fills.Shed()
	r.absent.Close()
	r.pool.Close()
	if err := r.DB.Close(); err != nil {
		r.T.Error(err)
	}
}

// Now returns the time of the rig. Pass moves it forward.
func (r *Rig) Now() time.Time { return time.Now().Add(time.Duration(r.clock.Load())) }

// Pass moves the clock forward.
func (r *Rig) Pass(d time.Duration) { r.clock.Add(int64(d)) }

func (r *Rig) config() *config.Config { return &r.Cfg }

// SetFleet makes v the view of the node. Like the node, it sets the pool of lines first.
func (r *Rig) SetFleet(v *fleet.View) { r.Near.Set(r.pool.Set(v)) }

// Fetch fetches an object and returns its bytes.
func (r *Rig) Fetch(d b3.Digest, h near.Hint) (string, error) {
	if err := r.Near.Fetch(context.Background(), d, h); err != nil {
		return "", err
	}
	o, _, err := r.Content.Open(context.Background(), asset.Target{Digest: d, Name: asset.PathOf(d)})
	if err != nil {
		return "", err
	}
	defer o.Close()
	b := o.Bytes
	if o.File != nil {
		b, err = io.ReadAll(o.File)
	}
	if b3.Sum(b) != d {
		r.T.Errorf("%d bytes of %s, want %s", len(b), b3.Sum(b), d)
	}
	return string(b), err
}

// Store stores an object under a pseudo URL, as a put does.
func (r *Rig) Store(body string) b3.Digest {
	r.T.Helper()
	temp, err := r.Content.Dir().Create()
	if err != nil {
		r.T.Fatal(err)
	}
	_, err = temp.Write([]byte(body))
	d, size := temp.Sum()
	if err = errors.Join(err, temp.Seal()); err == nil {
		_, err = r.Content.Install(context.Background(), tables.RowOf(d, size, "text/plain"), temp)
	}
	if err != nil {
		r.T.Fatal(err)
	}
	return d
}

// Sound checks that every row has its object, every object its bytes, and that no room is reserved.
func (r *Rig) Sound() {
	r.T.Helper()
	r.Fills.Shed()
	v, err := r.Content.Verify(context.Background(), content.VerifyOptions{})
	if err != nil || v.Bad != 0 {
		r.T.Errorf("%+v, %v", v, err)
	}
	if has, reserved := r.Content.Held(); reserved != 0 {
		r.T.Errorf("%+v, %d bytes are reserved", has, reserved)
	}
}

// Events returns the events of a kind.
func (r *Rig) Events(kind string) (out []asset.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.events {
		if v.Kind == kind {
			out = append(out, v)
		}
	}
	return out
}

// Event keeps an event.
func (r *Rig) Event(v asset.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, v)
}

// Draining, and the other methods below, are those of an owner of the parts.
func (r *Rig) Draining() bool                               { return r.stopped.Load() }
func (r *Rig) Received(string, b3.Digest, int64, bool)      {}
func (r *Rig) Damaged(string, string)                       {}
func (r *Rig) Fault(error)                                  {}
func (r *Rig) Amnesia() bool                                { return false }
func (r *Rig) Shed() bool                                   { return r.Fills.Shed() }
func (r *Rig) Competing() bool                              { return r.Near.Len() > 1 }
func (r *Rig) Allows(string) bool                           { return false }
func (r *Rig) Refetch(context.Context, tables.Stored) error { return asset.ErrNotFound }

// Rehash finds no pack.
func (r *Rig) Rehash(context.Context, func(pack.Info, error)) error { return nil }

// Ask refuses: there is no host.
func (r *Rig) Ask(context.Context, string, upstream.Request, func(*upstream.Answer) error) error {
	return asset.ErrOffline
}

// Until polls ok for up to a minute.
func Until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
