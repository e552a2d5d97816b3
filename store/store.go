package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// Options are what a Store is given by its owner.
type Options struct {
	Path      string
	Catalog   *flow.Catalog
	Metrics   *obs.Metrics      // nil: none
	Log       hclog.Logger      // nil: none
	Now       func() time.Time  // stamps; nil: time.Now
	Strict    bool              // check all pages after every commit: tests only
	Producers map[Lane][]string // who submits to a lane, for the catalogue: "registry.pipeline", "http"
}

// Store is one open file. Its methods are safe for concurrent use, but for Declare, RegisterGroup, Open and Close, which its owner calls.
type Store struct {
	cfg    Config
	opt    Options
	log    hclog.Logger
	now    func() time.Time
	born   time.Time
	schema schema  // fixed by Open
	groups []Group // fixed by Open
	lanes  [lanes]*flow.Queue[job]

	db       *bolt.DB // set by Open; writes are the committer's
	ring     uint64   // rows of the audit ring
	info     atomic.Pointer[Info]
	failure  atomic.Pointer[PoisonError]
	failed   chan struct{}
	closed   atomic.Bool
	running  atomic.Bool // the committer
	restored atomic.Bool // work is refused until AcceptRestore
	copying  atomic.Bool // a snapshot is being taken
	heart    heartbeat
	views    viewGauge
	metrics  *metrics
}

// New declares the lanes and the committer. It touches no file and starts nothing.
func New(cfg Config, o Options) *Store {
	if o.Catalog == nil {
		o.Catalog = flow.NewCatalog(nil, nil)
	}
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Store{
		cfg: cfg, opt: o, log: o.Log.Named(ownService), now: o.Now, born: time.Now(), schema: newSchema(), ring: auditRows,
		failed: make(chan struct{}),
	}
	for l := range s.lanes {
		s.lanes[l] = flow.NewQueue[job](o.Catalog, Lane(l).spec(o.Producers[Lane(l)]))
	}
	o.Catalog.Declare(flow.Spec{
		Service: ownService, Name: "heartbeat", Kind: flow.KindTicker, Policy: flow.Merge,
		Consumers: []string{"committer"}, Doc: "lets a slow store probe itself, every " + probeEvery.String(),
	})
	o.Catalog.DeclareTask(s.Tasks()...)
	s.metrics = newMetrics(o.Metrics, s)
	return s
}

// Declare names the buckets of a service; its commands may touch no others. Before Open.
func (s *Store) Declare(service string, b ...*Bucket) {
	if s.db != nil {
		panic("store: Declare after Open")
	}
	s.schema.add(service, b...)
}

// RegisterGroup adds an engine's state in memory, which lives through groups as the file does. Before Open.
func (s *Store) RegisterGroup(g Group) {
	if s.db != nil {
		panic("store: RegisterGroup after Open")
	}
	s.groups = append(s.groups, g)
}

// Tasks lists the committer. It must run from Open on, and is never restarted: what it read cannot be trusted once it has failed.
func (s *Store) Tasks() []flow.Task {
	return []flow.Task{{
		Service: ownService, Name: "committer", Count: 1, Restart: flow.Never, Run: s.runCommitter,
		Doc: "groups commands into transactions; the only writer",
	}}
}

// Open locks, checks and opens the file that Create made, makes the declared buckets that are missing, and marks the file as in use.
// A LockedError names the process that has it; ErrCorrupt, ErrSchema and ErrNetwork refuse the file; ErrFull is a disk without room.
func (s *Store) Open(ctx context.Context) error {
	if s.db != nil {
		panic("store: opened twice")
	}
	if !s.cfg.AllowNetwork {
		if err := refuseNetwork(s.opt.Path); err != nil {
			return err
		}
	}
	if err := s.inspect(ctx); err != nil {
		return err
	}
	db, err := openBolt(s.opt.Path, opening{maxBytes: s.cfg.MaxBytes.Bytes(), wait: s.cfg.LockTimeout.D()})
	if err != nil {
		return err
	}
	db.StrictMode = s.opt.Strict
	var info Info
	err = guarded(func() (err error) {
		info, err = boot(db, s.schema)
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("open %s: %w", s.opt.Path, err), db.Close())
	}
	s.db = db
	s.restored.Store(info.Restored)
	s.info.Store(&info)
	return nil
}

// inspect reads the file once before it is opened for writing. After an unclean stop the page cache is dropped and, if the size allows,
// every page checked.
func (s *Store) inspect(ctx context.Context) error {
	r, err := openReader(s.opt.Path, s.cfg.LockTimeout.D())
	if err != nil {
		return err
	}
	if r.Info().Clean {
		return r.Close()
	}
	s.log.Warn("unclean_boot", "reason", "the last stop was not orderly")
	if err := errors.Join(r.Close(), forget(s.opt.Path)); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !s.cfg.CheckOnCrash || r.Size() > s.cfg.CheckMaxBytes.Bytes() {
		return nil
	}
	if r, err = openReader(s.opt.Path, s.cfg.LockTimeout.D()); err != nil {
		return err
	}
	return errors.Join(r.checkPages(), r.Close())
}

// boot is the first transaction of a boot. The Info it gives says how the last stop was.
func boot(db *bolt.DB, s schema) (info Info, err error) {
	err = db.Update(func(tx *bolt.Tx) error {
		if info, err = readInfo(tx); err != nil {
			return err
		}
		if err := makeBuckets(tx, s); err != nil {
			return err
		}
		return tx.Bucket([]byte(metaBucket.Name)).Put(keyClean, cleanFlag(false))
	})
	if err != nil && clean(err) {
		err = fullError(err)
	}
	return info, err
}

// Info is what the file says of itself, as of the last commit. It is nil before Open.
func (s *Store) Info() *Info { return s.info.Load() }

// Path is the file.
func (s *Store) Path() string { return s.opt.Path }

// CloseLanes ends the intake: once the last producer has returned, the committer drains the lanes and returns nil.
func (s *Store) CloseLanes() {
	for _, q := range s.lanes {
		q.Close()
	}
}

// Close marks the file clean and lets it go; it blocks until open views and a running snapshot have ended. While the committer still runs
// it is an error. A poisoned store is left open: the process ends, and the next boot decides what is on the disk.
func (s *Store) Close() error {
	s.CloseLanes()
	if s.running.Load() {
		return errors.New("store: close while the committer runs")
	}
	s.turnAway(nil, "closed")
	if err := s.Err(); err != nil {
		return err
	}
	if s.db == nil || s.closed.Swap(true) {
		return nil
	}
	err := guarded(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte(metaBucket.Name)).Put(keyClean, cleanFlag(true))
		})
	})
	if err != nil && !clean(err) {
		s.poison(fmt.Errorf("mark clean: %w", err), false)
		return s.Err()
	}
	return errors.Join(err, s.db.Close())
}
