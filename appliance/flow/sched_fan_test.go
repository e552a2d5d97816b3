//go:build flowsched

package flow

import (
	"context"
	"errors"
	"testing"
	"time"
)

// fanned runs two legs that fail and a third that reads the cause of its cancellation. Fan returns
// that cause after all legs have ended.
func fanned(fan func(context.Context, int, func(context.Context, int) error) error) scenario {
	return func(w *world) func() error {
		legs := []error{errors.New("first leg"), errors.New("second leg"), nil}
		var cause, err error
		ended := 0
		w.thread("caller", func() {
			err = fan(w.ctx, len(legs), func(ctx context.Context, i int) error {
				defer func() { ended++ }()
				if point("leg"); legs[i] == nil {
					<-ctx.Done()
					woken("leg, stopped")
					cause = context.Cause(ctx)
				}
				return legs[i]
			})
			w.check(ended == len(legs), "%d legs have ended", ended)
		})
		return func() error {
			w.check(err != nil && err == cause, "Fan = %v, and the cause was %v", err, cause)
			return w.err
		}
	}
}

func TestScheduleFan(t *testing.T) {
	t.Run("two fail", func(t *testing.T) { holds(t, fanned(Fan), 50, 5_000) })
	t.Run("twin", func(t *testing.T) { breaks(t, fanned(hastyFan), "legs have ended") })
}

// hastyFan does not join the others when one leg has failed.
func hastyFan(ctx context.Context, n int, leg func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	over := make(chan error, n)
	for i := range n {
		go func() {
			begin("leg")
			err := leg(ctx, i)
			point("hasty leg")
			over <- err
		}()
		point("hasty fan")
	}
	for range n {
		err := <-over
		woken("hasty fan")
		if err != nil {
			cancel(err)
			return err
		}
	}
	return nil
}

// deadline is the part of a Late that the scenario uses.
type deadline interface {
	context.Context
	Release()
}

// awaited: several wait for one Late: they all have the same channel, and when the moment has come
// all agree.
func awaited(make func(context.Context, time.Time) deadline) scenario {
	return func(w *world) func() error {
		l := make(w.ctx, time.Now().Add(time.Second))
		var seen []<-chan struct{}
		for range 2 {
			w.thread("waiter", func() {
				done := l.Done()
				seen = append(seen, done)
				over := l.Err() != nil
				select {
				case <-done:
				default:
					w.check(!over, "Err tells of an end that Done does not show")
				}
			})
		}
		w.thread("asker", func() { _ = l.Err(); _ = l.Err() })
		w.clock(time.Second)
		return func() error {
			w.check(seen[0] == seen[1], "two channels for one end")
			w.check(l.Err() == context.DeadlineExceeded, "Err = %v", l.Err())
			l.Release()
			return w.err
		}
	}
}

// wastefulLate keeps the timer that was created last.
type wastefulLate struct{ *Late }

func (l wastefulLate) Done() <-chan struct{} {
	point("wasteful")
	t := l.made.Load()
	if t == nil {
		t = new(lateTimer)
		t.Context, t.stop = context.WithDeadline(l.Context, l.end)
		point("wasteful, new")
		l.made.Store(t)
	}
	return t.Done()
}

func TestScheduleLate(t *testing.T) {
	late := func(ctx context.Context, end time.Time) deadline { return LateBy(ctx, end) }
	wasteful := func(ctx context.Context, end time.Time) deadline { return wastefulLate{LateBy(ctx, end)} }
	t.Run("awaited", func(t *testing.T) { holds(t, awaited(late), 1000, 5_000) })
	t.Run("twin", func(t *testing.T) { breaks(t, awaited(wasteful), "two channels") })
}
