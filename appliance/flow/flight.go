package flow

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

var (
	// ErrFlightFull is returned to a caller if the call already has the most waiters. It did not
	// join.
	ErrFlightFull = errors.New("flow: too many waiters for this call")
	// ErrFenceMoved is returned to a caller whose fence differs from that of the call in progress:
	// the result may not be valid for this caller.
	ErrFenceMoved = errors.New("flow: the call in progress has another fence")
)

// FlightSpec declares a Flight.
type FlightSpec struct {
	Service string
	Name    string // of the call; the value of the label kind
	Shards  int    // locks over the keys, a power of two; 0 means 1
	Waiters int    // callers that may wait for a call, besides the one that began it
	Calls   int    // calls in progress at once; more get ErrBusy
}

// Flight merges concurrent calls with the same key: at most one call per key is in progress, and
// every caller that waits for it gets its result. F is the type of the fence: a caller with another
// fence than that of the call in progress is refused. A Flight is safe for concurrent use.
type Flight[K, F comparable, V any] struct {
	spec     FlightSpec
	seed     maphash.Seed
	shards   []flightShard[K, F, V]
	calls    atomic.Int64 // keys in progress
	panicked func(n int)
	log      hclog.Logger

	// owed is the number of calls and goroutines that Close waits for, plus shut once the flight is
	// closed. As in a Queue: when owed equals shut, nothing is in progress now or later.
	owed atomic.Int64
	idle chan struct{} // closed when owed equals shut
	once sync.Once     // closes idle
}

type flightShard[K, F comparable, V any] struct {
	mu   *Mutex
	keys map[K]*Call[K, F, V] // guarded by mu
}

// NewFlight returns a flight and declares its locks in c. It panics if s lacks names, calls or
// waiters.
func NewFlight[K, F comparable, V any](c *Catalog, s FlightSpec) *Flight[K, F, V] {
	s.Shards = max(s.Shards, 1)
	if s.Service == "" || s.Name == "" || s.Waiters < 0 || s.Calls < 1 || s.Shards&(s.Shards-1) != 0 {
		panic(
			fmt.Sprintf("flow: flight %s.%s needs both names, calls, and a power of two of shards", s.Service, s.Name),
		)
	}
	f := &Flight[K, F, V]{
		spec:     s,
		seed:     maphash.MakeSeed(),
		shards:   make([]flightShard[K, F, V], s.Shards),
		panicked: c.meter.Counter("tasks_panicked_total", s.Service, "kind", s.Name),
		log:      c.log.Named(s.Service),
		idle:     make(chan struct{}),
	}
	for i := range f.shards {
		f.shards[i] = flightShard[K, F, V]{mu: NewMutex(c, s.Service, RankFlights), keys: map[K]*Call[K, F, V]{}}
	}
	return f
}

// Join joins the call in progress for key, or begins one. If first is true, the caller must settle
// the call with Answer or Fail. Every caller that joined must call Wait once. ErrFlightFull and
// ErrFenceMoved refuse to join, ErrBusy refuses to begin, ErrClosed either. Join never waits.
func (f *Flight[K, F, V]) Join(key K, fence F) (c *Call[K, F, V], first bool, err error) {
	if err := f.enter(); err != nil {
		return nil, false, err
	}
	if c, first, err = f.join(key, fence); !first {
		f.leave()
	}
	return c, first, err
}

func (f *Flight[K, F, V]) join(key K, fence F) (c *Call[K, F, V], first bool, err error) {
	s := f.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = s.keys[key]; c != nil {
		switch {
		case c.fence != fence:
			return nil, false, ErrFenceMoved
		case c.waiting > f.spec.Waiters:
			return nil, false, ErrFlightFull
		}
		c.waiting++
		return c, false, nil
	}
	if f.calls.Add(1) > int64(f.spec.Calls) {
		point("join, too many")
		f.calls.Add(-1)
		return nil, false, ErrBusy
	}
	c = &Call[K, F, V]{flight: f, shard: s, key: key, fence: fence, waiting: 1, done: make(chan struct{})}
	s.keys[key] = c
	return c, true, nil
}

func (f *Flight[K, F, V]) shard(key K) *flightShard[K, F, V] {
	if len(f.shards) == 1 {
		return &f.shards[0]
	}
	return &f.shards[maphash.Comparable(f.seed, key)&uint64(len(f.shards)-1)]
}

// Do joins the call in progress for key, or makes it by calling run on a goroutine of its own. The
// context of run has the values of ctx and ends after within, even if all callers have left. Do
// waits for the result. If ctx ends first, it returns the cause of ctx and the call continues. If
// run panics, every waiter gets a *PanicError. An error of Join is returned before anything is
// done.
func (f *Flight[K, F, V]) Do(
	ctx context.Context,
	key K,
	fence F,
	within time.Duration,
	run func(context.Context) (V, error),
) (V, error) {
	assertFree("Flight.Do")
	c, first, err := f.Join(key, fence)
	if err != nil {
		var zero V
		return zero, err
	}
	if first {
		f.start(ctx, c, within, run)
	}
	return c.Await(ctx)
}

// start runs c on a goroutine that Close waits for.
func (f *Flight[K, F, V]) start(
	ctx context.Context,
	c *Call[K, F, V],
	within time.Duration,
	run func(context.Context) (V, error),
) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), within)
	ctx, cancel := context.WithCancelCause(ctx)
	c.hold(cancel)
	f.owed.Add(1)
	go func() {
		begin("run of a flight")
		defer f.leave()
		defer stop()
		defer cancel(nil)
		guard(func() error {
			v, err := run(ctx)
			if err == nil {
				c.Answer(v)
			}
			return err
		}, func(err error) { f.fail(c, err) })
	}()
}

// fail fails c if its run returned an error, and logs a panic.
func (f *Flight[K, F, V]) fail(c *Call[K, F, V], err error) {
	if err == nil {
		return
	}
	var p *PanicError
	if errors.As(err, &p) {
		f.panicked(1)
		f.log.Error("call panicked", "call", f.spec.Name, "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
	}
	c.Fail(err)
}

// Len returns the number of calls in progress.
func (f *Flight[K, F, V]) Len() int {
	return int(f.calls.Load())
}

// enter adds to the calls that Close waits for.
func (f *Flight[K, F, V]) enter() error {
	point("flight.enter")
	if f.owed.Add(1) > shut {
		f.leave()
		return ErrClosed
	}
	return nil
}

func (f *Flight[K, F, V]) leave() {
	point("flight.leave")
	if f.owed.Add(-1) == shut {
		f.finish()
	}
}

func (f *Flight[K, F, V]) finish() {
	f.once.Do(func() { close(f.idle) })
}

// Close refuses new calls and waits until those in progress are settled and their goroutines have
// returned. If ctx ends first, Close ends the contexts of the runs with ErrAborted, waits a moment
// more, and returns an error if some are left. It may be called again.
func (f *Flight[K, F, V]) Close(ctx context.Context) error {
	assertFree("Flight.Close")
	point("Flight.Close")
	if f.owed.Or(shut) == 0 {
		f.finish()
	}
	idle, over := either2("Flight.Close, waits", f.idle, ctx.Done())
	select {
	case <-idle:
		woken("Flight.Close, idle")
		return nil
	case <-over:
		woken("Flight.Close, over")
	}
	f.abort()
	grace := time.NewTimer(replyGrace)
	defer grace.Stop()
	select {
	case <-f.idle:
		woken("Flight.Close, idle late")
		return nil
	case <-grace.C:
		woken("Flight.Close, too late")
		return fmt.Errorf("flow: flight %s.%s: %d calls have not ended: %w", f.spec.Service, f.spec.Name, f.Len(),
			context.Cause(ctx))
	}
}

// abort ends the contexts of all runs.
func (f *Flight[K, F, V]) abort() {
	var runs []context.CancelCauseFunc
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		for _, c := range s.keys {
			if c.cancel != nil {
				runs = append(runs, c.cancel)
			}
		}
		s.mu.Unlock()
	}
	for _, cancel := range runs {
		cancel(ErrAborted)
	}
}
