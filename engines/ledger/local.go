package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// service is the ledger's name in metrics, logs, probes and the catalogue.
const service = "ledger"

// Task names.
const (
	taskFlusher = "flusher"
	taskSealer  = "sealer"
	taskExpirer = "expirer"
)

// How often the tasks look, where the configuration does not say.
const (
	sealEvery   = time.Second
	expireEvery = time.Second
)

// Deps are the dependencies of a Local. Metrics, Log and Board may be nil.
type Deps struct {
	Catalog *flow.Catalog
	Store   *store.Store
	Metrics *obs.Metrics
	Log     hclog.Logger
	Board   *obs.Board
	Now     func() time.Time // the clock of the store's stamps; nil: time.Now
	// Settled reports whether idempotency keys may be forgotten: for some time after a boot or a
	// step of the clock they are kept, since the clock may be wrong. nil: always.
	Settled func() bool
	// Elected says that Recover follows an election of this node. Payments wait for it, so
	// VerifyTail checks less.
	Elected bool
	// Progress is called at each step of a long Recover. A total of 0 is unknown. It must not wait;
	// it may be nil.
	Progress func(stage string, done, total int64)
}

// Local is the ledger over the node's store. New builds it, Recover reads the file; then its
// methods may be called from any goroutine.
type Local struct {
	boot     Config                 // what only a restart changes is read from here
	reloaded atomic.Pointer[Config] // what Reload changes
	store    *store.Store
	board    *obs.Board
	log      hclog.Logger
	now      func() time.Time
	settled  func() bool
	elected  bool
	progress func(stage string, done, total int64)
	m        *metrics

	books        *books
	keyed        atomic.Pointer[hashKey] // of dedupe keys; nil until the ledger has begun
	names        *nameCache
	strays       *strays
	calls        calls
	expiring     chan struct{} // holds a token while overdue holds are being ended
	cannotExpire atomic.Bool   // the last attempt to end them failed

	safe  atomic.Pointer[string] // reason for safe mode; nil: not in safe mode
	noted atomic.Bool            // the file says so too
	doubt string                 // the note as of the boot, "" for none; set by Recover
	bus   *flow.Broadcast[Committed]

	reached   *flow.Watch[uint64] // the newest record, as of the last look of a waiting reader
	following atomic.Bool         // one of them stores it

	// slices in a row for which there were only rows at rest: commits that write nothing are spared
	rested     atomic.Int32
	unflushed  *flow.Watch[struct{}] // stored after a change, if the flusher is asleep
	asleep     atomic.Bool           // the flusher waits for a change
	ripe       atomic.Bool           // the next payment should write behind what waits
	flushTick  *flow.Ticker
	sealTick   *flow.Ticker
	expireTick *flow.Ticker
}

var _ Client = (*Local)(nil)

// hashKey is the ledger's own key with the hash that it makes.
type hashKey struct {
	tables.StoreKey
	mode *b3.Mode
}

// New wires a ledger and declares its buckets, its bus, metrics and probes. It does no I/O and
// starts nothing.
func New(cfg Config, d Deps) *Local {
	l := &Local{
		boot:     cfg,
		store:    d.Store,
		board:    d.Board,
		log:      d.Log,
		now:      d.Now,
		settled:  d.Settled,
		elected:  d.Elected,
		strays:   newStrays(),
		expiring: make(chan struct{}, 1),
	}
	l.reloaded.Store(&cfg)
	if l.now == nil {
		l.now = time.Now
	}
	if l.settled == nil {
		l.settled = func() bool { return true }
	}
	if l.progress = d.Progress; l.progress == nil {
		l.progress = func(string, int64, int64) {}
	}
	if l.log == nil {
		l.log = hclog.NewNullLogger()
	}
	l.log = l.log.Named(service)
	l.books = newBooks(idem.New(layerShards, cfg.cut()), l)
	l.names = newNameCache()
	l.books.named = &l.names.bytes
	l.setBudget(cfg)
	d.Store.Declare(service, tables.Buckets()...)
	d.Store.RegisterGroup(l.books)
	l.declareChannels(d.Catalog, cfg)
	l.m = newMetrics(d.Metrics, l)
	d.Board.Add(l.probes()...)
	return l
}

func (l *Local) declareChannels(c *flow.Catalog, cfg Config) {
	l.bus = flow.NewBroadcast[Committed](c, flow.Spec{
		Service:   service,
		Name:      "ledger_bus",
		Cap:       1024,
		Policy:    flow.DropOldest,
		Producers: []string{"store.committer"},
		Consumers: []string{"*"},
		Doc: "one event a batch of the ledger, after its sync; " +
			"a reader that is overrun takes everything for changed",
	})
	l.reached = flow.NewWatch(c, flow.Spec{
		Service: service, Name: "reached", Producers: []string{flow.HTTP}, Consumers: []string{flow.HTTP},
		Doc: "the newest record, for readers who wait for one: of those one follows ledger_bus",
	}, uint64(0))
	l.unflushed = flow.NewWatch(c, flow.Spec{
		Service: service, Name: "unflushed", Producers: []string{"store.committer"}, Consumers: []string{taskFlusher},
		Doc: "a change after the flusher had nothing to do",
	}, struct{}{})
	every := func(name, task, doc string, d time.Duration) *flow.Ticker {
		return flow.Every(c, flow.Spec{Service: service, Name: name, Consumers: []string{task}, Doc: doc}, d)
	}
	l.flushTick = every("flush_tick", taskFlusher, "one slice of changed rows", cfg.FlushEvery.D())
	l.sealTick = every("seal_tick", taskSealer, "closed slots of the idempotency index are sealed, old ones dropped",
		sealEvery)
	l.expireTick = every("expire_tick", taskExpirer, "holds whose time is over", expireEvery)
}

// Tasks lists the ledger's tasks for the supervisor.
func (l *Local) Tasks() []flow.Task {
	task := func(name, doc string, run func(context.Context) error) flow.Task {
		return flow.Task{
			Service:    service,
			Name:       name,
			Count:      1,
			Restart:    flow.Always,
			Background: true,
			Lanes:      []string{"store.bulk"},
			Doc:        doc,
			Run:        run,
		}
	}
	return []flow.Task{
		task(taskFlusher, "writes changed rows behind, in key order", l.runFlusher),
		task(taskSealer, "seals and drops slots of the idempotency index", l.runSealer),
		task(taskExpirer, "ends holds whose time is over", l.runExpirer),
	}
}

// Reload puts a valid configuration in force. Keys that need a restart keep the value they had. It
// does not wait.
func (l *Local) Reload(cfg Config) {
	l.reloaded.Store(&cfg)
	l.books.idem.Reload(cfg.cut())
	l.setBudget(cfg)
	l.flushTick.Set(cfg.FlushEvery.D())
}

// Events subscribes to the batches committed from now on.
func (l *Local) Events(consumer string) *flow.Subscription[Committed] {
	return l.bus.Subscribe(consumer)
}

// committed publishes the batches of a group. The committer calls it.
func (l *Local) committed(events []Committed) {
	l.wakeFlusher()
	for _, e := range events {
		l.bus.Publish(e)
	}
	l.m.commits(len(events))
	l.m.roots(len(events))
}

// Decimals returns the decimals of an asset, and reports whether it is declared.
func (l *Local) Decimals(asset string) (decimals int, declared bool) {
	a := l.books.view.Load().assets.byName[asset]
	if a == nil {
		return 0, false
	}
	return a.scale.Decimals, true
}

// Declare commits those of ops, each an OpAsset or an OpScale, that have an effect: an asset that
// is declared or has decimals, even other ones, stays as it is.
func (l *Local) Declare(ctx context.Context, ops ...Op) error {
	known := l.books.view.Load().assets.byName
	var todo []Op
	for _, op := range ops {
		if a := known[op.Asset]; a == nil || op.Code == record.OpScale && a.scale.Seq == 0 {
			todo = append(todo, op)
		}
	}
	_, err := l.Commit(ctx, todo)
	return err
}

// probe is a command that changes nothing.
type probe struct{}

func (probe) Kind() string { return "ledger.probe/1" }

func (probe) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) {
	return struct{}{}, nil
}

// Probe passes through the committer and one sync.
func (l *Local) Probe(ctx context.Context) error {
	if err := l.ready(); err != nil {
		return err
	}
	if _, err := store.Commit(ctx, l.store, store.Work, probe{}); err != nil {
		return l.unavailable(err)
	}
	return nil
}

// Closable returns the last record that a period may be closed with now: rows of all records up to
// it are flushed, and no idempotency key that counts leads to one of them. keys reports whether a
// key is the reason.
func (l *Local) Closable() (seq uint64, keys bool) {
	v := l.books.view.Load()
	seq = v.hand.low.Seq
	if first := l.books.idem.First(max(v.At, l.now().UnixNano()) - l.keyLife()); first != 0 && first <= seq {
		return first - 1, true
	}
	return seq, false
}

// keyLife returns how long an idempotency key counts after its record, in ns.
func (l *Local) keyLife() int64 {
	if !l.settled() {
		return keyForever
	}
	return int64(l.reloaded.Load().KeyTTL)
}

// Close ends the intake and waits for the calls under way until ctx ends.
func (l *Local) Close(ctx context.Context) error { return l.calls.close(ctx) }

// Values of Config.VerifyOnOpen.
const (
	VerifyNone = "none"
	VerifyTail = "tail" // the newest 1024 batches, of 16,384 records together at most
	VerifyFull = "full"
)

// Config is the section [ledger].
type Config struct {
	// a call that takes longer makes the wallet unready
	StallAfter unit.Duration `toml:"stall_after" reload:"r"`
	// between two slices of changed states, while there are some
	FlushEvery unit.Duration `toml:"flush_every" reload:"r"`
	// a change waits so long before a pass of slices begins, unless many rows wait
	FlushAfter unit.Duration `toml:"flush_after" reload:"r"`
	FlushSlice int           `toml:"flush_slice" reload:"r"` // states a slice writes
	// changed states above which bursts write slices too
	DirtyMaxAccounts int `toml:"dirty_max_accounts" reload:"r"`
	// memory of rows and names that are as in the file or changed; 0: the program that runs the
	// ledger sets it
	CacheBytes   unit.Size     `toml:"cache_bytes" reload:"r"`
	SlotWidth    unit.Duration `toml:"slot_width" reload:"r"`     // time a slot of the idempotency index covers
	SlotMax      int           `toml:"slot_max" reload:"r"`       // keys after which a slot ends early
	VerifyOnOpen string        `toml:"verify_on_open" reload:"x"` // none, tail, full

	// records stay open so long at least; 0: no period is closed by itself
	Retention  unit.Duration `toml:"retention" reload:"r"`
	Period     unit.Duration `toml:"period" reload:"r"`      // time that a period covers
	PeriodsDir string        `toml:"periods_dir" reload:"r"` // folder of the files of periods; "" is <data_dir>/periods
	// false: a file of PeriodsDir goes once the archive has it and it was read back from there
	PeriodsLocal bool `toml:"periods_local" reload:"r"`

	// KeyTTL is the lifetime of idempotency keys. A slot is dropped when all its keys are older. It
	// is not a key of this section: it comes from the service that sets the TTL of ops.
	KeyTTL unit.Duration `toml:"-" reload:"-"`
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		StallAfter:       unit.Duration(time.Second),
		FlushEvery:       unit.Duration(50 * time.Millisecond),
		FlushAfter:       unit.Duration(5 * time.Second),
		FlushSlice:       512,
		DirtyMaxAccounts: 262_144,
		CacheBytes:       0,
		SlotWidth:        unit.Duration(15 * time.Minute),
		SlotMax:          524_288,
		VerifyOnOpen:     VerifyTail,
		Period:           unit.Duration(30 * day),
		PeriodsLocal:     true,
		KeyTTL:           unit.Duration(day),
	}
}

func (c *Config) cut() idem.Cut { return idem.Cut{Width: c.SlotWidth.D(), Max: c.SlotMax} }

// Validate joins every fault of c.
func (c Config) Validate() error {
	return errors.Join(unit.Between("stall_after", c.StallAfter, 50*time.Millisecond, 2*time.Second),
		unit.Between("flush_every", c.FlushEvery, time.Millisecond, 10*time.Second),
		unit.Between("flush_after", c.FlushAfter, 0, time.Minute),
		unit.Within("flush_slice", c.FlushSlice, 1, 65_536),
		unit.Within("dirty_max_accounts", c.DirtyMaxAccounts, 1, 16<<20),
		unit.Between("slot_width", c.SlotWidth, time.Minute, time.Hour), unit.Within("slot_max", c.SlotMax, 1, 4<<20),
		c.validateVerify(), c.validateCache(), c.validatePeriods())
}

const day = 24 * time.Hour

func (c Config) validatePeriods() error {
	err := unit.Between("period", c.Period, day, 366*day)
	if c.Retention != 0 {
		err = errors.Join(err, unit.Between("retention", c.Retention, 7*day, 3650*day))
	}
	return err
}

// Bounds of Config.CacheBytes.
const (
	MinCache = 32 << 20
	MaxCache = 64 << 30
)

func (c Config) validateCache() error {
	if c.CacheBytes == 0 {
		return nil
	}
	return unit.Within("cache_bytes", c.CacheBytes, MinCache, MaxCache)
}

func (c Config) validateVerify() error {
	switch c.VerifyOnOpen {
	case VerifyNone, VerifyTail, VerifyFull:
		return nil
	}
	return fmt.Errorf("verify_on_open = %q: must be none, tail or full", c.VerifyOnOpen)
}
