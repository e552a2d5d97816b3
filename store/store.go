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
	"ronbox/store/page"
)

// Options are the dependencies and fixed settings of a Store.
type Options struct {
	Path      string
	Catalog   *flow.Catalog
	Metrics   *obs.Metrics      // nil: none
	Log       hclog.Logger      // nil: none
	Now       func() time.Time  // stamps; nil: time.Now
	Strict    bool              // check all pages after every commit; for tests
	Producers map[Lane][]string // producers of each lane for the catalogue, such as "registry.pipeline"

	Memory *AmnesiaConfig // keep the file in memory: no path, lock or snapshot; nil: a file on disk
	Mlock  bool           // with Memory: lock the pages
	Audit  *AuditConfig   // nil: the default
	// called by the committer with audit rows that are synced; must not block; may be nil
	Audited func([]AuditRow)
	Slow    func(op string, took time.Duration) // called by the committer after a commit of more than 2 s; may be nil
	Tracer  *obs.Tracer                         // traces commits; may be nil
	// called during long steps of a boot: "check", "snapshot", "migrate v1 to v2"; a total of 0 is
	// unknown; may be nil
	Progress func(stage string, done, total int64)

	// called by Open with the newest stamp in the file, before anything is stamped; may be nil
	Opened func(newest time.Time)

	Replicator Replicator // the log of the cluster; nil: a node alone
	Tap        Tap        // is given every change of the file; may be nil

	Migrations []Migration // one from each older schema
	schema     int         // the schema that Migrations lead to; 0: Schema; set by tests
}

// Store is one open file. Its methods are safe for concurrent use, except Declare, RegisterGroup,
// Open, Prepare and Close.
type Store struct {
	cfg    atomic.Pointer[Config]
	audit  atomic.Pointer[AuditConfig]
	opt    Options
	log    hclog.Logger
	now    func() time.Time
	born   time.Time
	schema schema  // fixed by Open
	groups []Group // fixed by Open
	lanes  [lanes]*flow.Queue[job]

	db         *bolt.DB // set by Open; only the committer writes
	info       atomic.Pointer[Info]
	failure    atomic.Pointer[PoisonError]
	failed     chan struct{}
	applied    atomic.Pointer[Applied]   // of the last commit; nil: a node alone
	members    atomic.Pointer[memberRow] // the latest configuration; nil: a node alone
	membersAt  uint64                    // index of the configuration in the file; owned by the committer
	closed     atomic.Bool
	running    atomic.Bool // the committer runs
	restored   atomic.Bool // Work and Bulk are refused until AcceptRestore
	copying    atomic.Bool // a snapshot is being taken
	counting   atomic.Bool // Stats is reading the file
	heart      heartbeat
	room       room
	reclaim    func() int64 // bytes of rows that are being deleted; nil: none
	unclean    bool         // the last stop was not orderly
	inUseUnset bool         // the clean flag is still set because the file was full at boot; owned by the committer
	views      viewGauge
	metrics    *metrics
	replica    replica
}

// New declares the lanes and the committer. It opens no file and starts nothing.
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
		opt:    o,
		log:    o.Log.Named(ownService),
		now:    o.Now,
		born:   time.Now(),
		schema: newSchema(),
		failed: make(chan struct{}),
	}
	s.cfg.Store(&cfg)
	audit := DefaultAuditConfig()
	if o.Audit != nil {
		audit = *o.Audit
	}
	s.audit.Store(&audit)
	for l := range s.lanes {
		s.lanes[l] = flow.NewQueue[job](o.Catalog, Lane(l).spec(o.Producers[Lane(l)]))
	}
	o.Catalog.Declare(flow.Spec{
		Service: ownService, Name: "heartbeat", Kind: flow.KindTicker, Policy: flow.Merge,
		Consumers: []string{"committer"}, Doc: "lets a slow store probe itself, every " + probeEvery.String(),
	})
	o.Catalog.DeclareTask(s.Tasks()...)
	s.metrics = newMetrics(o.Metrics, s)
	if o.Replicator != nil {
		s.declareReplica()
	}
	return s
}

// Declare registers the buckets of a service. The commands of the service write no other buckets,
// and read others only with [Foreign].
// It must be called before Open.
func (s *Store) Declare(service string, b ...*Bucket) {
	if s.db != nil {
		panic("store: Declare after Open")
	}
	s.schema.add(service, b...)
}

// RegisterGroup adds an in-memory state of an engine that follows the groups of the committer. It
// must be called before Open.
func (s *Store) RegisterGroup(g Group) {
	if s.db != nil {
		panic("store: RegisterGroup after Open")
	}
	s.groups = append(s.groups, g)
}

// Tasks returns the committer task. It must be started after Prepare and is never restarted: after
// it has failed, its reads cannot be trusted.
func (s *Store) Tasks() []flow.Task {
	return []flow.Task{{
		Service: ownService, Name: "committer", Count: 1, Restart: flow.Never, Run: s.runCommitter,
		Doc: "groups commands into transactions; the only writer",
	}}
}

// SetConfig changes the keys that can change while the store is open. The other keys keep the
// values given to New.
func (s *Store) SetConfig(c Config) {
	old := s.config()
	c.MaxBytes, c.LockTimeout, c.AllowNetwork = old.MaxBytes, old.LockTimeout, old.AllowNetwork
	s.cfg.Store(&c)
}

// SetAudit changes whether audit rows are written and how many are kept. If fewer are kept, the
// surplus is deleted as new rows are written.
func (s *Store) SetAudit(c AuditConfig) { s.audit.Store(&c) }

func (s *Store) config() *Config { return s.cfg.Load() }

// Open locks, checks and opens the file that Create made. It writes nothing; call Prepare next. It
// returns a LockedError if another process has the file open, ErrClustered if the file belongs to a
// cluster and there is no Replicator, and ErrCorrupt, ErrSchema or ErrNetwork if the file cannot be
// used.
func (s *Store) Open(ctx context.Context) error {
	if s.db != nil {
		panic("store: opened twice")
	}
	db, err := s.openFile(ctx)
	if err != nil {
		return err
	}
	db.StrictMode = s.opt.Strict
	s.db = db
	return nil
}

// openFile opens the file, or creates it in memory. The page cache is dropped before anything is
// read, including the flag of a clean stop: a Close with a failed last sync leaves that flag set in
// the page cache.
func (s *Store) openFile(ctx context.Context) (*bolt.DB, error) {
	if s.opt.Memory != nil {
		return s.openMemory()
	}
	if err := s.checkDisk(); err != nil {
		return nil, err
	}
	wait := s.config().LockTimeout.D()
	r, err := openReader(s.opt.Path, opening{wait: wait, uncached: true}, s.target())
	if err != nil {
		return nil, err
	}
	s.unclean = !r.Info().Clean
	if err = r.Close(); err == nil && s.unclean {
		s.log.Warn("unclean_boot", "reason", "the last stop was not orderly")
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, err
	}
	o := opening{maxBytes: s.mostBytes(), wait: wait}
	db, err := openBolt(s.opt.Path, &o)
	if err != nil {
		return nil, err
	}
	if err := guarded(func() error { return db.View(s.mayWrite) }); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.room.file = o.file
	return db, nil
}

// mayWrite returns ErrClustered if the file belongs to a cluster and this store has no log to write
// through, or would have to migrate the file.
func (s *Store) mayWrite(tx *bolt.Tx) error {
	info, err := readInfo(tx)
	if err != nil {
		return err
	}
	if s.opt.Opened != nil {
		s.opt.Opened(time.Unix(0, max(info.At, info.CreatedAt)))
	}
	m, err := readMembership(tx)
	switch {
	case err != nil || m == nil:
		return err
	case s.opt.Replicator == nil:
		return fmt.Errorf("%w: %s is written through the log of the cluster alone", ErrClustered, s.opt.Path)
	case info.Schema != s.target():
		return fmt.Errorf("%w: %s has schema %d, the program %d, and such a file is not migrated", ErrClustered,
			s.opt.Path, info.Schema, s.target())
	}
	s.applied.Store(&m.Applied)
	s.membersAt = m.Index
	s.KeepMembers(m.Index, m.Raw) // unless there is a newer one
	return nil
}

// Prepare makes the opened file ready for the committer. It checks all pages after an unclean stop
// (if CheckOnCrash and CheckMaxBytes allow it), migrates the file to the schema of the program,
// creates missing buckets and marks the file as in use. It returns ErrCorrupt if the file is
// damaged and ErrPoisoned if the disk failed. A file without space is accepted, and refuses work
// until there is space; ErrFull is returned if a bucket must be created or a migration is needed.
// If ctx ends, the next Prepare restarts the check and resumes the migration. After an error only
// Close may be called.
func (s *Store) Prepare(ctx context.Context) error {
	if s.db == nil || s.info.Load() != nil {
		panic("store: Prepare comes once, after Open")
	}
	err := s.checkUnclean(ctx)
	if err == nil {
		err = s.migrate(ctx, s.db)
	}
	var info Info
	if err == nil {
		err = guarded(func() (err error) {
			info, err = s.boot(s.db)
			return err
		})
	}
	if failed := (*PoisonError)(nil); errors.As(err, &failed) {
		s.poison(failed.Cause, false)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", s.Path(), err)
	}
	s.restored.Store(info.Restored)
	s.info.Store(&info)
	return nil
}

// checkUnclean checks all pages of a file that was not closed in order.
func (s *Store) checkUnclean(ctx context.Context) error {
	c := s.config()
	info, err := s.room.file.Stat()
	if err != nil || !s.unclean || !c.CheckOnCrash || info.Size() > c.CheckMaxBytes.Bytes() {
		return err
	}
	w, err := page.NewWalk(s.room.file, info.Size())
	if err != nil {
		return err
	}
	total := int64(w.Meta.HighWater) * PageSize
	tell := func(done int64) {
		if s.opt.Progress != nil {
			s.opt.Progress("check", done, total)
		}
	}
	w.Each = func(met uint64) error {
		tell(int64(met) * PageSize)
		return context.Cause(ctx)
	}
	if err = w.All(); err == nil {
		tell(total)
	}
	return err
}

// boot runs the first transaction of a boot. The returned Info describes the last stop. A file
// without space is accepted if it has every bucket: it can be read, and deletes free space in it.
func (s *Store) boot(db *bolt.DB) (info Info, err error) {
	err = update(db, func(tx *bolt.Tx) error {
		if info, err = readInfo(tx); err != nil {
			return err
		}
		s.look(db, tx.Size(), true)
		if err := makeBuckets(tx, s.schema); err != nil {
			return err
		}
		if err := checkAuditEnd(newTxReader(tx, s.schema), info.position()); err != nil {
			return err
		}
		used := info
		used.Clean = false
		// left by a migration to a newer schema of which no step was made
		return errors.Join(localRows(tx).Delete(keyMigration), writeInfo(tx, used), s.putKept(tx))
	})
	if err == nil || !clean(err) {
		return info, err
	}
	s.refused(err)
	if db.View(func(tx *bolt.Tx) error { return s.schema.made(tx) }) != nil {
		return info, fullError(err)
	}
	s.inUseUnset = true
	return info, nil
}

// Buckets returns the declared buckets, in the order of their names.
func (s *Store) Buckets() (out []*Bucket) {
	for _, d := range s.schema.sorted() {
		out = append(out, d.Bucket)
	}
	return out
}

// Info returns the state of the file as of the last commit, or nil before Prepare.
func (s *Store) Info() *Info { return s.info.Load() }

// Path returns the path of the file, or a fixed name for a store in memory.
func (s *Store) Path() string {
	if s.opt.Memory != nil {
		return memoryName
	}
	return s.opt.Path
}

// CloseLanes ends the intake. The committer drains the lanes and returns nil.
func (s *Store) CloseLanes() {
	for _, q := range s.lanes {
		q.Close()
	}
	if s.replica.follows != nil {
		s.replica.follows.Close()
	}
}

// Close marks the file as clean and closes it. It blocks until open views and a running snapshot
// have ended. It returns an error if the committer still runs. A poisoned store is left open: the
// process must end, and the next boot reads the disk.
func (s *Store) Close() error {
	s.CloseLanes()
	if s.running.Load() {
		return errors.New("store: close while the committer runs")
	}
	s.rejectQueued(nil, "closed")
	if err := s.Err(); err != nil {
		return err
	}
	if s.db == nil || s.closed.Swap(true) {
		return nil
	}
	if s.info.Load() == nil { // not prepared: the file is not marked as in use
		return s.db.Close()
	}
	err := guarded(func() error {
		return s.db.Update(func(tx *bolt.Tx) error {
			return errors.Join(s.putKept(tx), putClean(tx, true))
		})
	})
	if err != nil && !clean(err) {
		s.poison(fmt.Errorf("mark clean: %w", err), false)
		return s.Err()
	}
	if err != nil { // no space for the flag: the next boot only checks the file as after a crash
		s.log.Warn("not_marked_clean", "reason", err.Error())
	}
	return s.db.Close()
}
