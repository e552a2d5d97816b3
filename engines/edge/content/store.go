package content

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/cache"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// service is the name of the edge in metrics, logs, probes and the catalogue.
const service = "edge"

// Deps holds the dependencies of a Store. Members may be nil.
type Deps struct {
	Catalog *flow.Catalog
	Store   *store.Store
	Dir     *cas.Dir
	Log     hclog.Logger
	Now     func() time.Time // wall clock
	Config  func() *config.Config
	Members Members // nil on a node alone
	Owner   Owner
}

// Owner is the engine, as far as its content store needs it. Its methods are safe for concurrent
// use.
type Owner interface {
	// Event publishes an event. Damaged counts and logs damage of a kind. Fault shows an error of
	// the content store in readiness, or its end.
	Event(asset.Event)
	Damaged(kind, what string)
	Fault(err error)
	// Draining reports whether no work may begin. Amnesia reports whether nothing is stored.
	Draining() bool
	Amnesia() bool
	// Shed gives up reserved room that no running work needs, and reports whether there was any.
	Shed() bool
	// Refetch fetches a URL, or an object without one, after its object was set aside.
	Refetch(ctx context.Context, row tables.Stored) error
	// Rehash reads every pack and calls each with the result.
	Rehash(ctx context.Context, each func(pack.Info, error)) error
}

// Store is the content store: the objects that are kept, with the URLs that lead to them, their
// pins and their room on the disk. Only its task cas_writer changes it. Its methods may be called
// from any goroutine after Recover has returned, and those that read after Stand, too.
type Store struct {
	d      Deps
	hot    *cache.Cache[string, *hotEntry]
	writes *flow.Queue[*writeJob]
	sums   *sums
	room   room
	// regains are the fetches from other members of the cluster; nil on a node alone.
	regains   *flow.Flight[b3.Digest, struct{}, struct{}]
	scrubTick *flow.Ticker

	begun     atomic.Bool   // Recover was called
	opened    atomic.Bool   // objects may be stored
	faults    *flow.Mutex   // broken and readiness change together
	broken    atomic.Bool   // readiness shows a fault
	verifying atomic.Bool   // a call of Verify runs
	walks     atomic.Int64  // full scans of edge/paths, which are slow; tests count them
	stands    bool          // the memory is open; of the caller of Stand
	epoch     atomic.Uint64 // of the rows; it ends when a row changes or is removed
}

// Bounds of the queues.
const (
	writeQueue = 64   // jobs that wait for the CAS writer
	maxWaiters = 4096 // requests that wait for one object
)

// New returns a content store, and declares its queue, caches and flights. It does no I/O.
// writers send changes to it: HTTP and tasks.
func New(writers []string, d Deps) *Store {
	s := &Store{d: d}
	s.hot = cache.New[string, *hotEntry](d.Catalog, cache.Spec[string, *hotEntry]{
		Service:   service,
		Name:      "hot_set",
		Producers: []string{flow.HTTP},
		Doc:       "objects up to 1 MiB",
		Bytes:     hotBytes,
		Entry:     16 << 10,
	})
	s.sums = newSums(d.Catalog, d.Config().Ingress.MaxInflight)
	s.room.mu = flow.NewMutex(d.Catalog, service, flow.RankCounters)
	s.faults = flow.NewMutex(d.Catalog, service, flow.RankCounters)
	if d.Members != nil {
		s.regains = flow.NewFlight[b3.Digest, struct{}, struct{}](d.Catalog, flow.FlightSpec{
			Service: service, Name: "members", Shards: 16, Waiters: maxWaiters, Calls: d.Config().Queues.WorkTX,
		})
	}
	s.writes = flow.NewQueue[*writeJob](d.Catalog, flow.Spec{
		Service:   service,
		Name:      "cas_tx",
		Cap:       writeQueue,
		Policy:    flow.Wait,
		Producers: writers,
		Consumers: []string{TaskWriter},
		Doc:       "changes of the content store; a worker waits for room, others are refused",
	})
	s.scrubTick = flow.Every(d.Catalog, flow.Spec{
		Service:   service,
		Name:      "scrub_tick",
		Consumers: []string{TaskScrubber},
		Doc:       "checks whether a scrub is due",
	}, time.Minute)
	return s
}

// Tasks returns the tasks of the content store.
func (s *Store) Tasks() []flow.Task {
	return []flow.Task{
		{Service: service, Name: TaskWriter, Count: 1, Restart: flow.Always, Lanes: []string{"store.work"},
			Doc: "installs, moves and removes the files of the content store", Run: s.runWriter},
		{
			Service:    service,
			Name:       TaskScrubber,
			Count:      1,
			Restart:    flow.Always,
			Background: true,
			Lanes:      []string{"store.work"},
			Doc:        "reads every object and pack again, slowly",
			Run:        s.runScrubber,
		},
	}
}

// Recover opens the content store, which stays closed in amnesia. A disk that does not read or
// write is no error: it is tried again later.
func (s *Store) Recover(ctx context.Context) error {
	s.begun.Store(true)
	err := s.hot.Open()
	if err == nil && !s.d.Owner.Amnesia() {
		err = s.openStore(ctx)
	}
	return err
}

// Stand makes reads answer from rows and files that other nodes write. Call it again after they
// have changed, and never at the same time as Recover.
func (s *Store) Stand() error {
	s.epoch.Add(1) // any row may have changed
	if s.stands {
		return nil
	}
	err := s.hot.Open()
	s.stands = err == nil
	return err
}

// Purge empties the memory. Objects are read from the disk again.
func (s *Store) Purge() { s.hot.Purge() }

// Close ends running flights until ctx ends, frees the memory and closes the files.
func (s *Store) Close(ctx context.Context) error {
	err := s.sums.flights.Close(ctx)
	if s.regains != nil {
		err = errors.Join(err, s.regains.Close(ctx))
	}
	s.hot.Close()
	s.d.Dir.CloseFiles()
	return err
}

// Ready returns asset.ErrAmnesia or asset.ErrStore if no object may be stored now.
func (s *Store) Ready() error {
	switch {
	case s.d.Owner.Amnesia():
		return asset.ErrAmnesia
	case !s.opened.Load():
		return asset.ErrStore
	}
	return nil
}

// Epoch returns the epoch of the rows. Rows that were read in one epoch are consistent.
func (s *Store) Epoch() uint64 { return s.epoch.Load() }

// Held returns the counts of the content, and the bytes that running work has reserved.
func (s *Store) Held() (has tables.Tally, reserved int64) { return s.room.held() }

// Dir returns the folder of the objects.
func (s *Store) Dir() *cas.Dir { return s.d.Dir }

// HasFile reports whether an object has a file.
func (s *Store) HasFile(d b3.Digest) bool { return !s.d.Dir.Used(d).IsZero() }

// Has reports whether an object is stored. A row without a file is a miss.
func (s *Store) Has(ctx context.Context, d b3.Digest) (bool, error) {
	_, err := tables.Find(ctx, s.d.Store, tables.Blobs, d)
	if err != nil {
		return false, asset.Ignore(err, asset.ErrNotFound)
	}
	return s.HasFile(d), nil
}

// BusyIfFull returns flow.ErrBusy if too many callers wait for a fill, and any other err unchanged.
func BusyIfFull(err error) error {
	if errors.Is(err, flow.ErrFlightFull) {
		return flow.ErrBusy
	}
	return err
}
