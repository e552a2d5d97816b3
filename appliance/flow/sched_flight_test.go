//go:build flowsched

package flow

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// joint is the part of a Flight that the scenarios with Do use.
type joint interface {
	Do(ctx context.Context, key, fence int, within time.Duration, run func(context.Context) (int, error)) (int, error)
}

// traveller is what became of the calls of one flight.
type traveller struct {
	*world
	joint
	running map[int]int // by key
	runs    int         // that have begun
	fences  map[int]int // that a run began with, by its number
	cause   error       // of the contexts that are made to end
}

func newTraveller(w *world, j joint) *traveller {
	return &traveller{world: w, joint: j, running: map[int]int{}, fences: map[int]int{}, cause: errLeft}
}

// fly makes a call and returns its answer, the number of the run that gave it.
func (f *traveller) fly(ctx context.Context, key, fence int) (int, error) {
	return f.Do(ctx, key, fence, time.Minute, func(context.Context) (int, error) {
		f.runs++
		n := f.runs
		f.fences[n] = fence
		f.running[key]++
		f.check(f.running[key] == 1, "two runs of key %d at once", key)
		point("run")
		f.running[key]--
		return n, nil
	})
}

// calls adds a caller that asks n times, each time for news.
func (f *traveller) calls(ctx context.Context, name string, n, key, fence int, may ...error) {
	f.thread(name, func() {
		last := 0
		for range n {
			v, err := f.fly(ctx, key, fence)
			if err != nil {
				f.check(isAny(err, may), "Do = %v", err)
				continue
			}
			f.check(v > last, "run %d answered again after %d", v, last)
			f.check(f.fences[v] == fence, "run %d began with fence %d and answers one with %d", v, f.fences[v], fence)
			last = v
		}
	})
}

func isAny(err error, of []error) bool {
	for _, e := range of {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// landed: no call is in progress, and Close returns at once.
func landed(w *world, f *Flight[int, int, int]) error {
	w.check(f.Len() == 0, "%d calls are still under way", f.Len())
	over, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	cancel()
	w.check(f.Close(over) == nil, "it does not close")
	w.check(f.owed.Load() == shut && len(f.shards[0].keys) == 0, "owed %d, keys %v", f.owed.Load()-shut,
		f.shards[0].keys)
	return w.err
}

func schedFlight(waiters, calls int) *Flight[int, int, int] {
	return NewFlight[int, int, int](
		NewCatalog(nil, nil),
		FlightSpec{Service: "t", Name: "call", Waiters: waiters, Calls: calls},
	)
}

// flown: callers of one key ask again and again.
func flown(make func() joint, callers, times int) scenario {
	return func(w *world) func() error {
		f := newTraveller(w, make())
		for range callers {
			f.calls(w.ctx, "caller", times, 1, 1)
		}
		return func() error {
			if real, ok := f.joint.(*Flight[int, int, int]); ok {
				return landed(w, real)
			}
			return w.err
		}
	}
}

// fenced: callers with two fences meet at one key.
func fenced(w *world) func() error {
	real := schedFlight(4, 4)
	f := newTraveller(w, real)
	f.calls(w.ctx, "caller", 1, 1, 1, ErrFenceMoved)
	f.calls(w.ctx, "caller", 1, 1, 1, ErrFenceMoved)
	f.calls(w.ctx, "caller with another fence", 1, 1, 2, ErrFenceMoved)
	return func() error { return landed(w, real) }
}

// full: there is room for one call and one waiter.
func full(w *world) func() error {
	real := schedFlight(1, 1)
	f := newTraveller(w, real)
	f.calls(w.ctx, "caller", 1, 1, 1, ErrFlightFull, ErrBusy)
	f.calls(w.ctx, "caller", 1, 1, 1, ErrFlightFull, ErrBusy)
	f.calls(w.ctx, "caller of another key", 1, 2, 1, ErrBusy)
	return func() error { return landed(w, real) }
}

// left: a caller leaves while its call is made; the other still gets the answer.
func left(w *world) func() error {
	real := schedFlight(4, 4)
	f := newTraveller(w, real)
	ctx, cancel := context.WithCancelCause(w.ctx)
	f.calls(ctx, "caller who leaves", 1, 1, 1, errLeft)
	f.calls(w.ctx, "caller", 1, 1, 1)
	w.thread("leaver", func() { point("leaves"); cancel(errLeft) })
	return func() error { return landed(w, real) }
}

// grounded: the flight is closed while calls are made: those that began end first.
func grounded(w *world) func() error {
	real := schedFlight(4, 4)
	f := newTraveller(w, real)
	f.calls(w.ctx, "caller", 1, 1, 1, ErrClosed)
	f.calls(w.ctx, "caller", 1, 1, 1, ErrClosed)
	w.thread("closer", func() {
		w.check(real.Close(w.ctx) == nil, "it does not close")
		w.check(f.running[1] == 0 && real.Len() == 0, "closed, with %d calls under way", real.Len())
		_, err := f.fly(w.ctx, 1, 1)
		w.check(err == ErrClosed, "Do after Close = %v", err)
	})
	return func() error { return landed(w, real) }
}

// served: callers join a call that a worker claims and answers, and their contexts may end before.
func served(w *world) func() error {
	f := schedFlight(4, 4)
	work := make(chan *Call[int, int, int], 4)
	claimed := map[*Call[int, int, int]]bool{}
	ctx, cancel := context.WithCancelCause(w.ctx)
	type outcome struct {
		call *Call[int, int, int]
		v    int
		err  error
	}
	var outcomes []outcome
	for range 2 {
		w.thread("caller", func() {
			c, first, err := f.Join(1, 1)
			if err != nil {
				w.breach(fmt.Errorf("Join = %w", err))
				return
			}
			if first {
				work <- c
			}
			v, err := c.Wait(ctx)
			outcomes = append(outcomes, outcome{c, v, err})
		})
	}
	w.thread("worker", func() {
		for range 2 {
			calls, over := either2("worker", work, ctx.Done())
			select {
			case c := <-calls:
				woken("worker")
				if c.Claim() {
					claimed[c] = true
					w.check(c.Answer(c.Key()), "a claimed call was settled by another")
				}
			case <-over:
				woken("worker")
				return
			}
		}
	})
	w.thread("leaver", func() { point("leaves"); cancel(errLeft) })
	w.clock(2 * replyGrace)
	return func() error {
		for _, o := range outcomes {
			switch {
			case o.err == nil:
				w.check(claimed[o.call] && o.v == 1, "%d without a claim", o.v)
			case o.err == errLeft:
				w.check(!claimed[o.call] || !o.call.Canceled(), "cancelled and claimed")
			default:
				w.check(o.err == ErrUnknown && claimed[o.call], "Wait = %v, claimed %v", o.err, claimed[o.call])
			}
		}
		for len(work) > 0 {
			c := <-work
			w.check(c.Canceled() && !c.Claim(), "all have left, but the call is there")
		}
		return landed(w, f)
	}
}

func TestScheduleFlight(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sc    scenario
		least int
		limit int
	}{
		{"two callers twice", flown(func() joint { return schedFlight(4, 4) }, 2, 2), 1000, 5_000},
		{"three callers", flown(func() joint { return schedFlight(4, 4) }, 3, 1), 1000, 5_000},
		{"fences", fenced, 1000, 5_000},
		{"full", full, 1000, 5_000},
		{"left", left, 1000, 5_000},
		{"closed", grounded, 1000, 5_000},
		{"claimed and answered", served, 1000, 5_000},
	} {
		t.Run(tt.name, func(t *testing.T) { holds(t, tt.sc, tt.least, tt.limit) })
	}
}

// lazyFlight answers before it frees the key; blindFlight looks for a call and enters its own under
// two locks.
type lazyFlight struct {
	mu    lock
	keys  map[int]*lazyCall
	blind bool
}

type lazyCall struct {
	done  chan struct{}
	value int
}

func (f *lazyFlight) Do(
	ctx context.Context,
	key, _ int,
	_ time.Duration,
	run func(context.Context) (int, error),
) (v int, err error) {
	f.mu.Lock()
	c := f.keys[key]
	if c != nil {
		f.mu.Unlock()
		point("lazy wait")
		<-c.done
		woken("lazy answer")
		return c.value, nil
	}
	if f.blind {
		f.mu.Unlock()
		f.mu.Lock()
	}
	c = &lazyCall{done: make(chan struct{})}
	f.keys[key] = c
	f.mu.Unlock()
	point("lazy run")
	c.value, err = run(ctx)
	close(c.done)
	f.mu.Lock()
	delete(f.keys, key)
	f.mu.Unlock()
	return c.value, err
}

func TestScheduleFlightTwins(t *testing.T) {
	lazy := func() joint { return &lazyFlight{keys: map[int]*lazyCall{}} }
	blind := func() joint { return &lazyFlight{keys: map[int]*lazyCall{}, blind: true} }
	t.Run("answers before it frees the key", func(t *testing.T) { breaks(t, flown(lazy, 2, 2), "answered again") })
	t.Run("two runs", func(t *testing.T) { breaks(t, flown(blind, 2, 1), "two runs of key 1") })
}
