//go:build flowsched

package flow

import (
	"fmt"
	"testing"
	"time"
)

// gate is the part of a Breaker that the scenarios use.
type gate interface {
	Permit() (Pass, bool)
	Record(pass Pass, r CallResult, n int)
	Step(now time.Time) BreakerState
}

// schedRule opens at the first failure and closes after two probes, neither of which may fail.
func schedRule(failures int) BreakerRule {
	return BreakerRule{Failures: failures, Window: time.Minute, Cooldown: time.Second, Probes: 2}
}

// halfOpened returns a breaker in its first half-open era, and when that began.
func halfOpened(r BreakerRule) (*Breaker, time.Time) {
	b, now := NewBreaker(r), time.Now()
	pass, _ := b.Permit()
	b.Record(pass, Failed, r.Failures)
	b.Step(now)
	now = now.Add(r.Cooldown)
	b.Step(now)
	return b, now
}

// probed: callers meet at a half-open breaker while another steps. No more are let through than
// probe, and their results decide.
func probed(make func(*Breaker) gate, results ...CallResult) scenario {
	return func(w *world) func() error {
		b, now := halfOpened(schedRule(1))
		g, first := make(b), b.load().no()
		through, settled := 0, map[CallResult]int{}
		for _, r := range results {
			w.thread(fmt.Sprint("caller ", r), func() {
				pass, ok := g.Permit()
				if !ok || pass.no != first {
					return
				}
				through++
				w.check(through <= 2, "%d probes at once", through)
				g.Record(pass, r, 1)
				if settled[r]++; r == Neither {
					through--
				}
			})
		}
		w.thread("stepper", func() { g.Step(now); g.Step(now) })
		return func() error {
			state := b.Step(now)
			want := BreakerHalfOpen
			switch {
			case settled[Failed] > 0:
				want = BreakerOpen
			case settled[Succeeded] >= 2:
				want = BreakerClosed
			}
			w.check(state == want, "%v after %v", state, settled)
			return w.err
		}
	}
}

// tallied: each result recorded while the breaker is closed is counted once, despite concurrent
// Steps.
func tallied(make func(*Breaker) gate) scenario {
	return func(w *world) func() error {
		b, now := NewBreaker(schedRule(100)), time.Now()
		g := make(b)
		for _, r := range []CallResult{Succeeded, Failed, Failed} {
			w.thread(fmt.Sprint("caller ", r), func() {
				pass, ok := g.Permit()
				w.check(ok, "closed, and not let through")
				g.Record(pass, r, 3)
			})
		}
		w.thread("stepper", func() { g.Step(now); g.Step(now) })
		return func() error {
			b.Step(now)
			succeeded, failed := b.window.sums()
			w.check(succeeded == 3 && failed == 6, "%d succeeded and %d failed, want 3 and 6", succeeded, failed)
			return w.err
		}
	}
}

// outlived: a call is let through, and the breaker opens and closes again before its result is
// recorded: that counts nowhere.
func outlived(w *world) func() error {
	b, now := NewBreaker(schedRule(1)), time.Now()
	var slow, last Pass
	w.thread("slow caller", func() {
		slow, _ = b.Permit()
		b.Record(slow, Failed, 1)
	})
	w.thread("others", func() {
		pass, _ := b.Permit()
		b.Record(pass, Failed, 1)
		b.Step(now)
		now = now.Add(time.Second)
		b.Step(now)
		for range 2 {
			probe, _ := b.Permit()
			b.Record(probe, Succeeded, 1)
		}
		if b.Step(now) == BreakerClosed {
			last = Pass{b.load().no()}
		}
	})
	return func() error {
		state := b.Step(now)
		w.check(last.no == 0 || slow.no == last.no || state == BreakerClosed, "%v: a result of era %d counts in era %d",
			state, slow.no, last.no)
		return w.err
	}
}

func schedBreaker(b *Breaker) gate { return b }

func TestScheduleBreaker(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sc    scenario
		least int
		limit int
	}{
		{"probes succeed", probed(schedBreaker, Succeeded, Succeeded, Succeeded), 1000, 5_000},
		{"a probe fails", probed(schedBreaker, Succeeded, Failed, Succeeded), 1000, 5_000},
		{"a probe tells nothing", probed(schedBreaker, Succeeded, Neither, Succeeded), 1000, 5_000},
		{"closed", tallied(schedBreaker), 1000, 5_000},
		{"outlived", outlived, 1000, 5_000},
	} {
		t.Run(tt.name, func(t *testing.T) { holds(t, tt.sc, tt.least, tt.limit) })
	}
}

// laxBreaker takes a permit without a look at whether another took one since it counted.
type laxBreaker struct{ *Breaker }

func (b laxBreaker) Permit() (Pass, bool) {
	e := b.load()
	if e.state() != BreakerHalfOpen || e.taken() >= 2 {
		return Pass{}, false
	}
	point("lax")
	b.era.Add(oneTaken)
	return Pass{e.no()}, true
}

// wipingBreaker reads the results and clears them in two steps.
type wipingBreaker struct{ *Breaker }

func (b wipingBreaker) Step(now time.Time) BreakerState {
	b.mu.Lock()
	r := b.results.Load()
	b.window.add(now, r.succeeded.Load(), r.failed.Load())
	point("wiping")
	r.take()
	b.mu.Unlock()
	return b.State()
}

func TestScheduleBreakerTwins(t *testing.T) {
	t.Run("too many probes", func(t *testing.T) {
		breaks(t, probed(func(b *Breaker) gate { return laxBreaker{b} }, Succeeded, Succeeded, Succeeded),
			"3 probes at once")
	})
	t.Run("lost results", func(t *testing.T) {
		breaks(t, tallied(func(b *Breaker) gate { return wipingBreaker{b} }), "want 3 and 6")
	})
}
