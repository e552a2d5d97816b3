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

	Memory   *AmnesiaConfig                        // the file is memory: no path, no lock, no snapshot; nil: a file
	Mlock    bool                                  // with Memory: it is never swapped out
	Audit    *AuditConfig                          // nil: the default
	Audited  func([]AuditRow)                      // told of audit rows once they are synced, by the committer: it must not wait; nil: nobody
	Slow     func(op string, took time.Duration)   // told of a commit over 2 s, likewise; nil: nobody
	Tracer   *obs.Tracer                           // of commits; nil: none
	Progress func(stage string, done, total int64) // of what a boot does for long: "check", "snapshot", "migrate v1 to v2"; total 0: not known; nil: nobody

	Migrations []Migration // one from each older schema up to Schema
	schema     int         // that Migrations lead to; 0: Schema. Tests have others
}

// Store is one open file. Its methods are safe for concurrent use, but for Declare, RegisterGroup, Open and Close, which its owner calls.
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

	db       *bolt.DB // set by Open; writes are the committer's
	info     atomic.Pointer[Info]
	failure  atomic.Pointer[PoisonError]
	failed   chan struct{}
	closed   atomic.Bool
	running  atomic.Bool // the committer
	restored atomic.Bool // work is refused until AcceptRestore
	copying  atomic.Bool // a snapshot is being taken
	counting atomic.Bool // Stats walks the file
	heart    heartbeat
	room     room
	unclean  bool // the last stop was
	owed     bool // the file still says that the last stop was clean: it was full at boot; owned by the committer
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
		opt: o, log: o.Log.Named(ownService), now: o.Now, born: time.Now(), schema: newSchema(), failed: make(chan struct{}),
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

// Tasks lists the committer. It must run from Prepare on, and is never restarted: what it read cannot be trusted once it has failed.
func (s *Store) Tasks() []flow.Task {
	return []flow.Task{{
		Service: ownService, Name: "committer", Count: 1, Restart: flow.Never, Run: s.runCommitter,
		Doc: "groups commands into transactions; the only writer",
	}}
}

// SetConfig changes the keys that may change while the store is open; the others keep the values of New.
func (s *Store) SetConfig(c Config) {
	old := s.config()
	c.MaxBytes, c.LockTimeout, c.AllowNetwork = old.MaxBytes, old.LockTimeout, old.AllowNetwork
	s.cfg.Store(&c)
}

// SetAudit changes whether audit rows are written and how many are kept. A shorter ring lets the old rows go with the next new ones.
func (s *Store) SetAudit(c AuditConfig) { s.audit.Store(&c) }

func (s *Store) config() *Config { return s.cfg.Load() }

// Open locks, checks and opens the file that Create made, and writes nothing; Prepare comes next. A LockedError names the process that has
// the file; ErrCorrupt, ErrSchema and ErrNetwork refuse it.
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

// openFile gives the file, or memory in its place. The page cache is dropped before anything is read or mapped, the mark of the last stop
// too: a Close whose last sync failed has left it there as clean.
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
	o := opening{maxBytes: s.maxBytes(), wait: wait}
	db, err := openBolt(s.opt.Path, &o)
	s.room.file = o.file
	return db, err
}

// Prepare makes the opened file ready for the committer: it checks every page after an unclean stop, if the size allows, brings the file to
// the program's schema, makes the declared buckets that are missing, and marks the file as in use. ErrCorrupt is a damaged file,
// ErrPoisoned a disk that failed. A file without room is taken as it is, and takes no work until there is some; ErrFull is one to which
// buckets would have to be added first, or a migration. When ctx ends the next Prepare begins the check anew, and goes on with a migration. After an error
// the store is good for Close alone.
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

// checkUnclean looks at all pages of a file that was not closed in order.
func (s *Store) checkUnclean(ctx context.Context) error {
	c := s.config()
	info, err := s.room.file.Stat()
	if err != nil || !s.unclean || !c.CheckOnCrash || info.Size() > c.CheckMaxBytes.Bytes() {
		return err
	}
	w, err := newPageWalk(s.room.file, info.Size())
	if err != nil {
		return err
	}
	total := int64(w.meta.highWater) * PageSize
	tell := func(done int64) {
		if s.opt.Progress != nil {
			s.opt.Progress("check", done, total)
		}
	}
	w.each = func(met uint64) error {
		tell(int64(met) * PageSize)
		return context.Cause(ctx)
	}
	if err = w.all(); err == nil {
		tell(total)
	}
	return err
}

// boot is the first transaction of a boot. The Info it gives says how the last stop was. A file without room is taken as it is, if it has
// every bucket: it can be read, and what is deleted from it makes room.
func (s *Store) boot(db *bolt.DB) (info Info, err error) {
	err = update(db, func(tx *bolt.Tx) error {
		if info, err = readInfo(tx); err != nil {
			return err
		}
		s.look(db, tx.Size(), true)
		if err := makeBuckets(tx, s.schema); err != nil {
			return err
		}
		meta, used := tx.Bucket([]byte(metaBucket.Name)), info
		used.Clean = false
		return errors.Join(meta.Delete(keyMigration), writeInfo(tx, used)) // a program between the two schemas ends here
	})
	if err == nil || !clean(err) {
		return info, err
	}
	s.refused(err)
	if db.View(func(tx *bolt.Tx) error { return s.schema.made(tx) }) != nil {
		return info, fullError(err)
	}
	s.owed = true
	return info, nil
}

// Info is what the file says of itself, as of the last commit. It is nil before Prepare.
func (s *Store) Info() *Info { return s.info.Load() }

// Path is the file; in memory, what is said in its place.
func (s *Store) Path() string {
	if s.opt.Memory != nil {
		return memoryName
	}
	return s.opt.Path
}

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
	if s.info.Load() == nil { // not prepared: nothing was begun that would have to be marked as ended
		return s.db.Close()
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
	if err != nil { // no room, not even for this: the next boot looks at the file as after a crash, no more
		s.log.Warn("not_marked_clean", "reason", err.Error())
	}
	return s.db.Close()
}
