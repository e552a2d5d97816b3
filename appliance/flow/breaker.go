package flow

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// BreakerState is the state of a Breaker.
type BreakerState int

// The states of a Breaker: closed → open → half-open, and from there to either.
const (
	BreakerClosed   BreakerState = iota // every call is permitted
	BreakerOpen                         // no call is permitted
	BreakerHalfOpen                     // a few calls are permitted as probes
)

// String returns the state as metrics and status pages name it.
func (s BreakerState) String() string {
	switch s {
	case BreakerClosed:
		return "closed"
	case BreakerOpen:
		return "open"
	case BreakerHalfOpen:
		return "half_open"
	}
	return fmt.Sprintf("breaker(%d)", int(s))
}

// CallResult is the result of a call that a Breaker permitted.
type CallResult int

// The results of a call. Neither is for a call that says nothing about the callee, such as one that
// was cancelled: its permit is returned.
const (
	Neither CallResult = iota
	Succeeded
	Failed
)

// BreakerRule configures when a Breaker opens and how it closes again.
type BreakerRule struct {
	Failures int           // failures within Window that open it; 0: Ratio decides
	Ratio    float64       // it opens if a larger share of at least Min results within Window failed
	Min      int           // the least number of results for Ratio
	Window   time.Duration // how long a result counts, to a tenth of it
	// how long it stays open. It must exceed the duration of a call: a probe that takes longer
	// counts as lost.
	Cooldown time.Duration
	// if above Cooldown, each stay is drawn between the two, so that many breakers do not half-open
	// together
	Drawn   time.Duration
	Probes  int // permitted calls half-open; their results close it
	MayFail int // probes that may fail; one more opens it again
}

// mostProbes is the largest count that an era can hold.
const mostProbes = 1<<12 - 1

// check returns an error if r is not usable.
func (r BreakerRule) check() error {
	switch {
	case r.Window <= 0 || r.Cooldown <= 0:
		return fmt.Errorf("flow: a breaker needs a window and a cooldown, not %v and %v", r.Window, r.Cooldown)
	case r.Failures < 1 && (r.Ratio <= 0 || r.Ratio >= 1 || r.Min < 1):
		return fmt.Errorf("flow: a breaker needs failures >= 1, or 0 < ratio < 1 and a minimum >= 1; not %d, %v, %d",
			r.Failures, r.Ratio, r.Min)
	case r.Probes < 1 || r.Probes > mostProbes || r.MayFail < 0 || r.MayFail >= r.Probes:
		return fmt.Errorf("flow: a breaker needs 1 to %d probes, of which fewer may fail; not %d of %d",
			mostProbes, r.MayFail, r.Probes)
	}
	return nil
}

// trips reports whether these results within the window open the breaker.
func (r BreakerRule) trips(succeeded, failed int64) bool {
	if r.Failures > 0 {
		return failed >= int64(r.Failures)
	}
	n := succeeded + failed
	return n >= int64(r.Min) && float64(failed) > r.Ratio*float64(n)
}

// stay returns how long the breaker stays open this time.
func (r BreakerRule) stay() time.Duration {
	if r.Drawn <= r.Cooldown {
		return r.Cooldown
	}
	return r.Cooldown + rand.N(r.Drawn-r.Cooldown+1)
}

// Breaker stops calls to a callee that fails. It has no clock and no goroutine: only Step changes
// its state. Step is called by every caller before and after a call, or by a janitor. Permit and
// Record only count, without a lock. A Breaker is safe for concurrent use.
type Breaker struct {
	rule    atomic.Pointer[BreakerRule]
	era     atomic.Uint64              // an era; Step begins the next one, Permit and Record change its counts
	results atomic.Pointer[eraResults] // of the last closed era
	opened  func(n int)

	mu       lock
	window   window    // guarded by mu, as are the next two
	until    time.Time // open: when it half-opens; half-open: when unsettled permits count as lost
	progress uint64    // results of a half-open era at the last Step
}

// NewBreaker returns a closed breaker. It panics if r is not usable.
func NewBreaker(r BreakerRule) *Breaker {
	b := &Breaker{opened: func(int) {}}
	b.enter(BreakerClosed)
	b.Reload(r)
	return b
}

// Counting makes each opening count in circuit_open_total, with svc naming the callee. Call it
// before first use.
func (b *Breaker) Counting(c *Catalog, service, svc string) *Breaker {
	b.opened = c.meter.Counter("circuit_open_total", service, "svc", svc)
	return b
}

// Reload replaces the rule. The breaker keeps its state and forgets its counts. It panics if r is
// not usable.
func (b *Breaker) Reload(r BreakerRule) {
	if err := r.check(); err != nil {
		panic(err.Error())
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rule.Store(&r)
	b.window = window{slot: max(r.Window/windowSlots, 1)}
	if e := b.load(); e.state() == BreakerHalfOpen {
		b.enter(BreakerHalfOpen)
	}
}

// Pass identifies a permitted call. It ties the result to the era of the permit: a result is not
// counted after the breaker has entered another era.
type Pass struct {
	no uint64 // of the era; 0: none
}

// Permit reports whether a call may be made. If so, the caller must pass its result to Record.
func (b *Breaker) Permit() (Pass, bool) {
	for {
		e := b.load()
		pass := Pass{no: e.no()}
		switch e.state() {
		case BreakerClosed:
			return pass, true
		case BreakerOpen:
			return Pass{}, false
		}
		if e.taken() >= uint64(b.rule.Load().Probes) {
			return Pass{}, false
		}
		if b.swap(e, e+oneTaken) {
			return pass, true
		}
	}
}

// Record records the result of a permitted call, once. In the closed state it counts n times, the
// number of operations in the call; half-open a call is one probe. The state changes at the next
// Step.
func (b *Breaker) Record(pass Pass, r CallResult, n int) {
	for {
		e := b.load()
		if e.no() != pass.no {
			return
		}
		if e.state() == BreakerClosed {
			b.count(pass, r, n)
			return
		}
		if b.swap(e, e.settled(r)) {
			return
		}
	}
}

func (b *Breaker) load() era {
	point("breaker.load")
	return era(b.era.Load())
}

func (b *Breaker) swap(from, to era) bool {
	point("breaker.swap")
	return b.era.CompareAndSwap(uint64(from), uint64(to))
}

// count counts a result in a closed era, unless the era has ended.
func (b *Breaker) count(pass Pass, r CallResult, n int) {
	point("breaker.count")
	in := b.results.Load()
	if in.no != pass.no {
		return
	}
	point("breaker.count, found")
	switch r {
	case Succeeded:
		in.succeeded.Add(int64(n))
	case Failed:
		in.failed.Add(int64(n))
	}
}

// State returns the state that the last Step left.
func (b *Breaker) State() BreakerState {
	return b.load().state()
}

// RetryAfter returns how long the breaker will permit no call. It returns 0 if the breaker is not
// open.
func (b *Breaker) RetryAfter(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.State() != BreakerOpen {
		return 0
	}
	return max(b.until.Sub(now), 0)
}

// Step updates the breaker to now and returns its state. Results recorded since the last Step count
// from now, so call it after Record, or often. A now earlier than that of a previous Step counts as
// that one.
func (b *Breaker) Step(now time.Time) BreakerState {
	state, opened := b.step(now)
	if opened {
		b.opened(1)
	}
	return state
}

func (b *Breaker) step(now time.Time) (s BreakerState, opened bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rule := b.rule.Load()
	switch e := b.load(); e.state() {
	case BreakerClosed:
		succeeded, failed := b.results.Load().take()
		b.window.add(now, succeeded, failed)
		if opened = rule.trips(b.window.sums()); opened {
			b.open(now, rule)
		}
	case BreakerOpen:
		if !now.Before(b.until) {
			b.until = now.Add(rule.Cooldown)
			b.enter(BreakerHalfOpen)
		}
	case BreakerHalfOpen:
		opened = b.probe(now, rule, e)
	}
	return b.State(), opened
}

// probe evaluates a half-open era. Called with mu held.
func (b *Breaker) probe(now time.Time, rule *BreakerRule, e era) (opened bool) {
	switch {
	case e.failed() > uint64(rule.MayFail):
		b.open(now, rule)
		return true
	case e.succeeded()+e.failed() >= uint64(rule.Probes):
		b.window.clear()
		b.enter(BreakerClosed)
	case e.idle() || e.results() != b.progress:
		b.until, b.progress = now.Add(rule.Cooldown), e.results()
	case !now.Before(b.until): // no result will come for the permits that are out
		b.until = now.Add(rule.Cooldown)
		b.enter(BreakerHalfOpen)
	}
	return false
}

// open opens the breaker. Called with mu held.
func (b *Breaker) open(now time.Time, rule *BreakerRule) {
	b.until = now.Add(rule.stay())
	b.enter(BreakerOpen)
}

// enter begins an era, which makes all earlier passes worthless. Called with mu held.
func (b *Breaker) enter(s BreakerState) {
	next := b.load().next(s)
	if s == BreakerClosed {
		point("breaker.enter, closed")
		b.results.Store(&eraResults{no: next.no()}) // first, so that every result of the era is counted
	}
	point("breaker.enter")
	b.era.Store(uint64(next))
	b.progress = 0
}

// era is the state of a Breaker in one word: the number of the era, which passes are compared with,
// the state, and, half-open, the numbers of permits taken and of results.
//
//	26 bits number | 2 bits state | 12 bits taken | 12 bits succeeded | 12 bits failed
type era uint64

const (
	oneFailed    = 1
	oneSucceeded = 1 << 12
	oneTaken     = 1 << 24
	stateShift   = 36
	numberShift  = 38
	numberMask   = 1<<(64-numberShift) - 1
)

func (e era) no() uint64          { return uint64(e >> numberShift) }
func (e era) state() BreakerState { return BreakerState(e >> stateShift & 3) }
func (e era) taken() uint64       { return uint64(e/oneTaken) & mostProbes }
func (e era) succeeded() uint64   { return uint64(e/oneSucceeded) & mostProbes }
func (e era) failed() uint64      { return uint64(e) & mostProbes }

// results returns a value that differs between two moments of one era if their counts do.
func (e era) results() uint64 { return uint64(e) % oneTaken }

// idle reports whether every permit taken has been settled.
func (e era) idle() bool { return e.taken() == e.succeeded()+e.failed() }

// settled returns e after a probe with result r. A result without a permit changes nothing.
func (e era) settled(r CallResult) era {
	switch {
	case e.idle():
		return e
	case r == Succeeded:
		return e + oneSucceeded
	case r == Failed:
		return e + oneFailed
	}
	return e - oneTaken
}

// next returns the era after e, in state s, with all counts at zero. The number 0 is left to the
// zero Pass.
func (e era) next(s BreakerState) era {
	no := (e.no() + 1) & numberMask
	return era(max(no, 1)<<numberShift | uint64(s)<<stateShift)
}

// eraResults holds the results recorded in one closed era since the last Step. A late result finds
// a newer eraResults with another number, or is added to one that is no longer read.
type eraResults struct {
	no                uint64 // of the era
	succeeded, failed atomic.Int64
}

// take returns the counts and resets them.
func (r *eraResults) take() (succeeded, failed int64) {
	point("eraResults.take")
	succeeded = r.succeeded.Swap(0)
	point("eraResults.take, half")
	return succeeded, r.failed.Swap(0)
}

// windowSlots is the number of slots in a window. A result stops counting when between nine tenths
// of the window and all of it have passed.
const windowSlots = 10

// window counts results over a rolling span of time.
type window struct {
	slot  time.Duration // duration of a slot
	start time.Time     // when the slot at the head began; zero until the first add
	head  int
	slots [windowSlots]struct{ succeeded, failed int64 }
}

// add counts results at now, after it has dropped expired slots.
func (w *window) add(now time.Time, succeeded, failed int64) {
	switch passed := now.Sub(w.start); {
	case w.start.IsZero() || passed >= windowSlots*w.slot:
		w.clear()
		w.start = now
	case passed >= w.slot:
		n := passed / w.slot
		w.start = w.start.Add(n * w.slot)
		for range n {
			w.head = (w.head + 1) % windowSlots
			w.slots[w.head] = struct{ succeeded, failed int64 }{}
		}
	}
	w.slots[w.head].succeeded += succeeded
	w.slots[w.head].failed += failed
}

// clear forgets all results.
func (w *window) clear() {
	*w = window{slot: w.slot}
}

func (w *window) sums() (succeeded, failed int64) {
	for _, s := range w.slots {
		succeeded += s.succeeded
		failed += s.failed
	}
	return succeeded, failed
}
