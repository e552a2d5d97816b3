package flow

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// BreakerState is where a Breaker stands.
type BreakerState int

// The states of a Breaker: closed → open → half-open, and from there to either.
const (
	BreakerClosed   BreakerState = iota // every call is let through
	BreakerOpen                         // none is
	BreakerHalfOpen                     // a few are, as probes
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

// CallResult is how a call that a Breaker let through ended.
type CallResult int

// The results of a call. Neither is a call that tells nothing about the callee, as one that was cancelled: its permit is given back.
const (
	Neither CallResult = iota
	Succeeded
	Failed
)

// BreakerRule says when a Breaker opens and how it closes again.
type BreakerRule struct {
	Failures int           // it opens at this many failures within Window; 0: Ratio decides
	Ratio    float64       // it opens when more than this share of at least Min results within Window are failures
	Min      int           // fewer results than this say nothing
	Window   time.Duration // how long a result counts, to a tenth of it
	Cooldown time.Duration // how long it stays open, and longer than a call lasts: a probe that takes longer is given up for lost
	Drawn    time.Duration // if above Cooldown, the stay is drawn between the two each time, so that not all come back at once
	Probes   int           // calls let through half-open, which close it when they have ended
	MayFail  int           // how many of them may fail; one more opens it again
}

// mostProbes is what the counts of a half-open breaker have room for.
const mostProbes = 1<<12 - 1

// check reports what makes r unfit for use.
func (r BreakerRule) check() error {
	switch {
	case r.Window <= 0 || r.Cooldown <= 0:
		return fmt.Errorf("flow: a breaker needs a window and a cooldown, not %v and %v", r.Window, r.Cooldown)
	case r.Failures < 1 && (r.Ratio <= 0 || r.Ratio >= 1 || r.Min < 1):
		return fmt.Errorf("flow: a breaker opens at 1 or more failures or at a ratio between 0 and 1 of 1 or more results, not %d, %v of %d", r.Failures, r.Ratio, r.Min)
	case r.Probes < 1 || r.Probes > mostProbes || r.MayFail < 0 || r.MayFail >= r.Probes:
		return fmt.Errorf("flow: a breaker probes 1 to %d times and fewer than all may fail, not %d of %d", mostProbes, r.MayFail, r.Probes)
	}
	return nil
}

// trips reports whether so many results within the window open the breaker.
func (r BreakerRule) trips(succeeded, failed int64) bool {
	if r.Failures > 0 {
		return failed >= int64(r.Failures)
	}
	n := succeeded + failed
	return n >= int64(r.Min) && float64(failed) > r.Ratio*float64(n)
}

// stay returns how long the breaker is open this time.
func (r BreakerRule) stay() time.Duration {
	if r.Drawn <= r.Cooldown {
		return r.Cooldown
	}
	return r.Cooldown + rand.N(r.Drawn-r.Cooldown+1)
}

// Breaker keeps calls from a callee that fails. It has no clock and no goroutine: Step alone changes its state, called by everyone before
// and after each call or by one janitor; Permit and Record only count, without a lock. Safe for concurrent use.
type Breaker struct {
	rule    atomic.Pointer[BreakerRule]
	era     atomic.Uint64              // an era; Step begins the next, Permit and Record change its counts
	results atomic.Pointer[eraResults] // of the last closed era
	opened  func(n int)

	mu       lock
	window   window    // guarded by mu, as is all below
	until    time.Time // open: when it half-opens; half-open: when permits that are out count as lost
	progress uint64    // the results of a half-open era at the last Step
}

// NewBreaker returns a closed breaker. It panics on a rule that cannot work.
func NewBreaker(r BreakerRule) *Breaker {
	b := &Breaker{opened: func(int) {}}
	b.enter(BreakerClosed)
	b.Reload(r)
	return b
}

// Counting counts each opening in circuit_open_total under svc, the callee. Call it before use.
func (b *Breaker) Counting(c *Catalog, service, svc string) *Breaker {
	b.opened = c.meter.Counter("circuit_open_total", service, "svc", svc)
	return b
}

// Reload gives the breaker another rule. Its state stays, what it has counted is forgotten. It panics on a rule that cannot work.
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

// Pass stands for one call that was let through. It ties the result to the era in which the call began: a result that comes after the
// breaker has moved on is not counted.
type Pass struct {
	no uint64 // of the era; 0 is none
}

// Permit reports whether a call may be made. If so its result must be recorded with the pass.
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

// Record tells the result of a call that was let through, once. n is its weight in the closed state, the number of operations the call
// carried; half-open a call is one probe. The state changes at the next Step.
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

// count counts a result of a closed era, which may be over by now.
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

// State returns the state the last Step has left.
func (b *Breaker) State() BreakerState {
	return b.load().state()
}

// RetryAfter returns how long the breaker lets nothing through, 0 when it is not open.
func (b *Breaker) RetryAfter(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.State() != BreakerOpen {
		return 0
	}
	return max(b.until.Sub(now), 0)
}

// Step brings the breaker to now and returns its state. What was recorded since the last Step counts as of this one, so call it after a
// Record too, or often. A now before an earlier one counts as that one.
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

// probe judges a half-open era. Called with mu held.
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
	case !now.Before(b.until): // permits are out that nobody will settle
		b.until = now.Add(rule.Cooldown)
		b.enter(BreakerHalfOpen)
	}
	return false
}

// open is called with mu held.
func (b *Breaker) open(now time.Time, rule *BreakerRule) {
	b.until = now.Add(rule.stay())
	b.enter(BreakerOpen)
}

// enter begins an era: passes of those before are worth nothing from now on. Called with mu held.
func (b *Breaker) enter(s BreakerState) {
	next := b.load().next(s)
	if s == BreakerClosed {
		point("breaker.enter, closed")
		b.results.Store(&eraResults{no: next.no()}) // first, so that no result of the era misses it
	}
	point("breaker.enter")
	b.era.Store(uint64(next))
	b.progress = 0
}
