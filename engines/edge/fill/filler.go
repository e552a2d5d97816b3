package fill

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/cache"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/partial"
)

// service is the name of the edge in metrics, logs, probes and the catalogue.
const service = "edge"

// TaskName is the task that fetches objects.
const TaskName = "worker"

// Deps holds the dependencies of a Filler. Metrics may be nil. The caller opens and closes Absent,
// and closes Flights.
type Deps struct {
	Catalog *flow.Catalog
	Metrics *obs.Metrics
	Content *content.Store
	Config  func() *config.Config
	Now     func() time.Time // wall clock
	Absent  *cache.Cache[string, Answer]
	Flights *flow.Flight[string, struct{}, Filled] // running fills by URL
	Owner   Owner
}

// Owner is the engine, as far as fills need it. Its methods are safe for concurrent use.
type Owner interface {
	// Event publishes an event. Draining reports whether no work may begin.
	Event(asset.Event)
	Draining() bool
	// Competing reports whether several hosts may be asked, so that none may take all workers.
	Competing() bool
	// Allows reports whether a host may be asked. Ask requests an object from it, as package origin
	// describes.
	Allows(host string) bool
	Ask(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error
}

// Source has objects by their digests, and is asked instead of a host. Its methods are safe for
// concurrent use.
type Source interface {
	Name() string
	// Ask requests an object, or the rest of it if the header of r has a Range. It calls take with
	// an answer that may be stored.
	Ask(ctx context.Context, d b3.Digest, r upstream.Request, take func(*upstream.Answer) error) error
	// Stalled tells the source how an Ask ended that got bytes. Lied tells it that all bytes of an
	// object were its own, and had another hash.
	Stalled(err error, got int64, took time.Duration)
	Lied()
}

// Filler fetches the objects of URLs and stores them. Its methods may be called from any goroutine.
type Filler struct {
	d        Deps
	count    int // workers
	work     *queue
	partials *partial.Set // interrupted fetches
	rate     bucket
	canceled func(int)

	revalidated map[string]func(int) // by result
	spared      *pauses              // hosts that were silent
	justAsked   *pauses              // URLs of stale objects

	workers  atomic.Int64 // running
	lastBusy atomic.Int64 // Unix ns of the last fill that found the queue full
}

// New returns a Filler, and declares its queues and metrics. It starts nothing.
func New(d Deps) *Filler {
	cfg := d.Config()
	s := &Filler{
		d:           d,
		count:       cfg.Fill.Workers,
		work:        newQueue(d.Catalog, d.Metrics, cfg, d.Owner.Competing),
		partials:    partial.New(cfg.Fill.PartialBytes.Bytes()),
		revalidated: map[string]func(int){},
		spared:      newPauses(),
		justAsked:   newPauses(),
		canceled:    d.Metrics.Counter("tasks_canceled_total", service, "kind", TaskName),
	}
	d.Metrics.Declare(obs.Family{
		Name: "edge_revalidations_total", Type: obs.Counter, Labels: []string{"result"},
		Help: "Stored objects that their host was asked about: unchanged, changed, gone, or the host was silent.",
	})
	for _, result := range []string{Unchanged, Changed, Gone, Silent} {
		s.revalidated[result] = d.Metrics.Counter("edge_revalidations_total", service, "result", result)
	}
	s.rate.mu = flow.NewMutex(d.Catalog, service, flow.RankCounters)
	d.Metrics.Gauge("worker_inflight", service, func() float64 { return float64(s.Load().Running) })
	return s
}

// Tasks returns the workers for the supervisor.
func (s *Filler) Tasks() []flow.Task {
	return []flow.Task{{
		Service: service,
		Name:    TaskName,
		Count:   s.count,
		Restart: flow.Always,
		Doc:     "fetches missing objects, one at a time",
		Run:     s.runWorker,
	}}
}

// Missing returns how many workers do not run.
func (s *Filler) Missing() int { return s.count - int(s.workers.Load()) }

// Get fetches the object of a URL that is not stored, and waits until ctx ends. Logs and errors
// name the object by path. Each try may last as long as try. A LongTry is that of work which no
// request waits for: it is not counted, and continues after ctx has ended. The errors are those of
// Fill.
func (s *Filler) Get(ctx context.Context, t asset.Target, path string, try time.Duration) (Filled, error) {
	return s.fill(ctx, &job{Target: t, path: path, try: try})
}

// From fetches the object t.Digest from a source, and waits until ctx ends. Each try may last as
// long as try. most is the number of bytes that the object may have; 0 is as many as any object. In
// Filled, New is set for the caller that began the fill only.
func (s *Filler) From(
	ctx context.Context,
	from Source,
	t asset.Target,
	try time.Duration,
	most int64,
) (f Filled, err error) {
	j := &job{
		Target: t,
		path:   asset.PathOf(t.Digest),
		try:    try,
		idle:   min(try/2, s.d.Config().Fill.Idle.D()),
		expect: t.Digest,
		source: from,
		most:   most,
	}
	for {
		c, first, err := s.d.Flights.Join(j.URL, struct{}{})
		if err != nil {
			return f, content.BusyIfFull(err)
		}
		if first {
			s.enqueue(ctx, j, c)
		}
		f, err = c.Await(ctx)
		if c.Canceled() {
			s.work.drop(j.Host, c)
		}
		if ctx.Err() != nil && err != nil {
			return f, &asset.FillError{Reason: asset.Timeout, URL: j.URL, Cause: context.Cause(ctx)}
		}
		f.New = f.New && first // the search that began the fill counts it for its source
		capped, _ := errors.AsType[*asset.FillError](err)
		// After ObjectCap, the limit was that of another search.
		if first || capped == nil || capped.Reason != asset.ObjectCap {
			return f, err
		}
	}
}

// Load returns how many fills wait and run.
func (s *Filler) Load() Load { return s.work.load() }

// Thresholds of shedding.
const (
	shedFor  = 500 * time.Millisecond // since the last refused fill
	shedFull = 0.9                    // of the places of the queue
)

// Shedding returns an error that describes why fills are refused, or nil.
func (s *Filler) Shedding() error {
	waiting := s.Load().Waiting
	switch since := s.d.Now().Sub(time.Unix(0, s.lastBusy.Load())); {
	case since < shedFor:
		return errors.New("fills are refused: the queue was full a moment ago")
	case float64(waiting) > shedFull*float64(s.work.cap):
		return fmt.Errorf("%d of %d places of the queue are taken", waiting, s.work.cap)
	}
	return nil
}
