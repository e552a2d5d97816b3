package period

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// service is the name of the ledger in metrics, logs and the catalogue.
const service = "ledger"

// Config says when periods are closed, and where their files are.
type Config struct {
	Retention unit.Duration // records stay open so long at least; 0: nothing is closed by itself
	Period    unit.Duration // time that a period covers
	Dir       string        // of files
	Make      bool          // Dir is made if it is missing; any other folder must be there
	Away      bool          // a file of Dir goes once the archive has it and it was read back from there
}

// Deps are the neighbours of a Closer. Metrics, Log and May may be nil.
type Deps struct {
	Store   *store.Store
	Ledger  Ledger
	Archive Archive // nil: there is none
	Catalog *flow.Catalog
	Metrics *obs.Metrics
	Log     hclog.Logger
	Now     func() time.Time
	// May returns why no closing may begin now: in safe mode, with a clock that may be wrong. nil:
	// always.
	May func() error
	// Settled reports whether the clock is good enough for a closing that nobody asks for. nil:
	// always.
	Settled func() bool
	// Holds returns why even a closing that has begun may not go on: in safe mode, or after a
	// restore that is not accepted. nil: always nil.
	Holds func() error
	// StandsBy reports whether another member of the cluster leads. nil: a node alone.
	StandsBy func() bool
}

// Ledger is what a Closer asks of a ledger.
type Ledger interface {
	// Closable returns the last record that a period may be closed with now, and whether an
	// idempotency key is the reason.
	Closable() (seq uint64, keys bool)
	// Flush writes behind what the records so far have made: only then can they be closed.
	Flush(ctx context.Context) error
}

// Closer closes periods: on demand, and by itself when records are older than the retention. Its
// task goes on with a closing that a stop has interrupted.
type Closer struct {
	d       Deps
	cfg     atomic.Pointer[Config]
	tick    *flow.Ticker
	asked   *flow.Watch[struct{}]
	stage   atomic.Pointer[stage]
	failed  atomic.Pointer[Failure]
	horizon atomic.Pointer[tables.Horizon]
	reclaim atomic.Int64
	used    atomic.Uint64 // references of closed periods
	due     atomic.Pointer[time.Time]
	pace    pace      // owned by the task
	keeper  keeper    // owned by the task
	slice   time.Time // when the slice at hand began; owned by the task
	looked  time.Time // when it was last looked whether a period is due; owned by the task
	began   time.Time // when that was first looked; owned by the task
	sealed  time.Time // when it was last tried to close the period; owned by the task
	wrote   uint64    // attempt whose file this process has read; owned by the task
	m       *metrics
}

// stage is the step of the closing under way.
type stage struct {
	shown       bool // by a caller: the task has not read it yet
	closing     tables.Closing
	step        tables.CloseStep
	done, total uint64 // records
}

// Failure is a closing that failed. Nothing was changed by it.
type Failure struct {
	Period uint64
	File   string
	Err    error
	At     time.Time

	drops bool   // the period is closed, and its rows were not dropped
	due   bool   // it was due by the retention, and did not begin
	waits uint64 // the attempt that has not failed, but waits; 0: none
}

const (
	lookEvery = time.Hour
	tickEvery = 100 * time.Millisecond

	retryAfter = time.Minute // after an error

	flushWithin = 2 * time.Second // less than a caller waits
)

// NewCloser returns a closer. It starts nothing.
func NewCloser(cfg Config, d Deps) *Closer {
	if d.Log == nil {
		d.Log = hclog.NewNullLogger()
	}
	c := &Closer{d: d}
	c.asked = flow.NewWatch(d.Catalog, flow.Spec{
		Service: service, Name: "close_asked", Producers: []string{flow.HTTP}, Consumers: []string{"closer"},
		Doc: "a closing was asked for, or canceled",
	}, struct{}{})
	c.tick = flow.Every(d.Catalog, flow.Spec{
		Service: service, Name: "close_tick", Consumers: []string{"closer"},
		Doc: "looks whether a period is due, and whether rows are to be dropped",
	}, tickEvery)
	c.stage.Store(&stage{})
	c.horizon.Store(&tables.Horizon{})
	c.Reload(cfg)
	c.m = newMetrics(d.Metrics, c)
	return c
}

// Reload applies new values. It does not block.
func (c *Closer) Reload(cfg Config) {
	cfg.Dir = filepath.Clean(cfg.Dir)
	c.cfg.Store(&cfg)
}

// Tasks returns the task of the closer.
func (c *Closer) Tasks() []flow.Task {
	return []flow.Task{{
		Service: service, Name: "closer", Background: true, Run: c.Run, Lanes: []string{"store.bulk", "store.control"},
		Doc: "closes periods of the ledger, and drops their rows as pages are needed",
	}}
}

// Reclaimable returns about how many bytes of the file are to be dropped: they count as free. It
// does not block.
func (c *Closer) Reclaimable() int64 { return c.reclaim.Load() }

// Run closes what is due or asked for until ctx ends.
func (c *Closer) Run(ctx context.Context) error {
	defer c.tick.Stop()
	for {
		_, asked := c.asked.Load()
		again, err := c.turn(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		tick := c.tick.C()
		if err != nil {
			c.fail(ctx, err)
			tick = time.After(retryAfter)
		} else if again {
			continue
		}
		if c.stage.Load().closing.Step == 0 {
			c.tick.Rest()
		} else {
			c.tick.Wake()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-asked:
		case <-tick:
		}
	}
}

// turn does the next step, and reports whether another one may follow at once.
func (c *Closer) turn(ctx context.Context) (again bool, err error) {
	closing, err := c.load(ctx)
	if err != nil || c.d.StandsBy != nil && c.d.StandsBy() || c.d.Holds != nil && c.d.Holds() != nil {
		return false, err
	}
	switch closing.Step {
	case 0:
		return c.idle(ctx, &closing)
	case tables.Building:
		if canceled(&closing) { // a caller or a process has not got further
			err = Cancel(ctx, c.d.Store, closing.Attempt, c.cfg.Load().Dir)
			if errors.Is(err, ErrNothing) {
				err = nil // now it has
			}
			return true, err
		}
		return true, c.build(ctx, &closing)
	case tables.Exporting, tables.Checking:
		return true, c.write(ctx, &closing)
	case tables.Copying:
		return true, c.copy(ctx, &closing)
	case tables.Sealing:
		return c.seal(ctx, &closing)
	}
	if again, err = c.drop(ctx, &closing); err != nil || again {
		return again, err
	}
	return c.idle(ctx, &closing)
}

// idle begins a closing if one is due, or else looks after the files of closed periods.
func (c *Closer) idle(ctx context.Context, closing *tables.Closing) (again bool, err error) {
	if again, err = c.begins(ctx); err != nil || again {
		return again, err
	}
	return c.keep(ctx, closing), nil
}

// load reads where the closing stands.
func (c *Closer) load(ctx context.Context) (closing tables.Closing, err error) {
	err = c.d.Store.View(ctx, func(r store.Reader) error {
		closing = tables.GetClosing(r)
		h := tables.GetHorizon(r)
		if h.Period != c.horizon.Load().Period {
			c.used.Store(references(r, h.Period))
		}
		c.horizon.Store(&h)
		return nil
	})
	if err == nil {
		closing.File.File = inDir(c.cfg.Load().Dir, closing.File.File)
		c.stage.Store(&stage{closing: closing, step: closing.Step})
		c.reclaim.Store(closing.Reclaimable())
		if closing.Step != 0 || c.horizon.Load().Period != 0 {
			c.m.closing()
		}
	}
	return closing, err
}

// Ask asks for a closing.
type Ask struct {
	Before time.Time // records older than this are closed, as far as they can be
	Dir    string    // of the file; "" is the configured one
	Fast   bool      // without rests: commits of others become slower
	By     string    // who asks
}

// Plan returns what Close would close.
func (c *Closer) Plan(ctx context.Context, a Ask) (p Plan, err error) {
	if c.d.May != nil {
		if err := c.d.May(); err != nil {
			return p, err
		}
	}
	if latest := c.d.Now().Add(1); a.Before.After(latest) {
		a.Before = latest
	}
	if err := c.flush(ctx); err != nil {
		return p, err
	}
	seq, keys := c.d.Ledger.Closable()
	base, before := int64(0), record.Statement{}
	err = c.d.Store.View(ctx, func(r store.Reader) (err error) {
		base, before = baseBytes(r), tables.StatementOf(r, tables.GetHorizon(r).Period)
		p, err = Next(r, a.Before.UnixNano(), seq, keys)
		return err
	})
	if err == nil {
		p.File = filepath.Join(c.dir(a), record.PeriodFile(p.Period))
		err = hasRoom(p.File, p.Records())
	}
	if err == nil {
		err = baseFits(c.d.Store, base)
	}
	if err == nil {
		err = mayBe(p.File, record.NewPeriodOpening(&before))
	}
	if err == nil && c.d.Archive != nil {
		err = c.d.Archive.Reach(ctx)
	}
	return p, err
}

// flush has the ledger write behind. What that does not reach, in a full store or within
// flushWithin, is left to a later closing.
func (c *Closer) flush(ctx context.Context) error {
	within, cancel := context.WithTimeout(ctx, flushWithin)
	defer cancel()
	err := c.d.Ledger.Flush(within)
	if errors.Is(err, store.ErrFull) || within.Err() != nil {
		return ctx.Err()
	}
	return err
}

func (c *Closer) dir(a Ask) string {
	if a.Dir != "" {
		return a.Dir
	}
	return c.cfg.Load().Dir
}

// Close begins a closing, which the task carries out.
func (c *Closer) Close(ctx context.Context, a Ask) (Plan, error) {
	old := c.failed.Load()
	p, err := c.begin(ctx, a)
	if err == nil {
		c.show(ctx)
		c.failed.CompareAndSwap(old, nil) // the new closing may have failed already
		c.asked.Store(struct{}{})
	}
	return p, err
}

// show shows a closing that has just begun, unless the task has seen it already.
func (c *Closer) show(ctx context.Context) {
	for at := c.stage.Load(); at.step == 0 || at.step == tables.Dropping; at = c.stage.Load() {
		now := &stage{shown: true}
		err := c.d.Store.View(ctx, func(r store.Reader) error {
			now.closing = tables.GetClosing(r)
			return nil
		})
		now.step, now.closing.File.File = now.closing.Step, inDir(c.cfg.Load().Dir, now.closing.File.File)
		if err != nil || c.stage.CompareAndSwap(at, now) {
			return
		}
	}
}

func (c *Closer) begin(ctx context.Context, a Ask) (Plan, error) {
	p, err := c.Plan(ctx, a)
	if err != nil {
		return p, err
	}
	q := Request{File: p.File, Fast: a.Fast, By: a.By}
	if a.Dir == "" {
		q.File = filepath.Base(p.File)
	}
	return p, Begin(ctx, c.d.Store, p, q)
}

// Cancel ends the closing under way, unless its period is closed. It returns ErrNothing if there is
// no closing to cancel.
func (c *Closer) Cancel(ctx context.Context) error {
	err := Cancel(ctx, c.d.Store, 0, c.cfg.Load().Dir)
	if errors.Is(err, ErrNothing) {
		return err
	}
	if err == nil {
		c.m.closed("canceled")
	}
	c.asked.Store(struct{}{})
	return err
}

// fail ends the closing under way with an error: nothing was changed. Rows of closed periods are
// dropped on with the next tick.
func (c *Closer) fail(ctx context.Context, cause error) {
	at := c.stage.Load()
	if at.shown || errors.Is(cause, errCanceled) || !c.underWay(ctx, at.closing) {
		return // a caller has canceled it
	}
	c.d.Log.Warn("ledger_close_failed", "period", at.closing.Period, "step", at.step.String(), "reason", cause.Error())
	drops := at.step == tables.Dropping
	c.failed.Store(&Failure{
		Period: at.closing.Period, File: at.closing.File.File, Err: cause, At: c.d.Now(), drops: drops,
	})
	if drops {
		c.reclaim.Store(0) // nothing is freed until it goes on
		return
	}
	c.m.closed("failed")
	if at.step == 0 {
		return
	}
	defer func() { _, _ = c.load(ctx) }() // for callers; the next turn reads it again
	if err := Cancel(ctx, c.d.Store, at.closing.Attempt, c.cfg.Load().Dir); err != nil && !errors.Is(err, ErrNothing) {
		c.d.Log.Warn("ledger_close_not_canceled", "reason", err.Error(), "next", "the closing begins its step again")
	}
}

// underWay reports whether a closing is still the one under way.
func (c *Closer) underWay(ctx context.Context, closing tables.Closing) (same bool) {
	err := c.d.Store.View(ctx, func(r store.Reader) error {
		now := tables.GetClosing(r)
		same = now.Step == closing.Step && now.Attempt == closing.Attempt
		return nil
	})
	return same || err != nil
}
