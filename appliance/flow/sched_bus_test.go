//go:build flowsched

package flow

import (
	"context"
	"testing"
)

// recv is how a subscriber waits for the next value.
type recv func(s *Subscription[item], ctx context.Context) (item, uint64, error)

func truly(s *Subscription[item], ctx context.Context) (item, uint64, error) { return s.Recv(ctx) }

// audience is a bus and what its subscribers have of it.
type audience struct {
	*world
	bus        *Broadcast[item]
	meter      *fakeMeter
	publishing int
	laws       []func()
}

func newAudience(w *world, ring int) *audience {
	a := &audience{world: w, meter: newFakeMeter()}
	a.bus = NewBroadcast[item](NewCatalog(a.meter, nil), Spec{Service: "t", Name: "bus", Cap: ring, Policy: DropOldest})
	return a
}

// publish adds a publisher of n values. The last to end calls last.
func (a *audience) publish(n int, last func()) {
	a.publishing++
	by := a.publishing
	a.thread("publisher", func() {
		for i := range n {
			a.bus.Publish(item{by, i})
		}
		if a.publishing--; a.publishing == 0 {
			last()
		}
	})
}

// listen adds a subscriber from the start, which reads to the end.
func (a *audience) listen(name string, next recv, all int) {
	s := a.bus.Subscribe(name)
	var delivered, told uint64
	a.thread(name, func() {
		newest := map[int]int{}
		for {
			v, lagged, err := next(s, a.ctx)
			if err != nil {
				a.check(err == ErrClosed, "%s: Recv = %v", name, err)
				return
			}
			last, some := newest[v.by]
			a.check(!some || last < v.n, "%s: %v after no. %d", name, v, last)
			newest[v.by] = v.n
			delivered, told = delivered+1, told+lagged
		}
	})
	a.laws = append(a.laws, func() {
		st := s.Stats()
		a.check(st.Published == st.Delivered+st.Lagged+st.Pending, "%s: %+v do not add up", name, st)
		a.check(st.Delivered == delivered && st.Lagged == told, "%s: %+v, but %d values came and %d were told lost",
			name, st, delivered, told)
		a.check(st.Pending == 0, "%s: %d values were not read", name, st.Pending)
		a.check(all == 0 || st.Published == uint64(all), "%s: %d of %d values were published", name, st.Published, all)
		n := a.meter.count(series("bus_lagged_total", "t", []string{"bus", "bus", "consumer", name}))
		a.check(uint64(n) == st.Lagged, "%s: %d counted, %d lagged", name, n, st.Lagged)
	})
}

func (a *audience) law() error {
	for _, law := range a.laws {
		law()
	}
	return a.err
}

// heard: publishers overrun a ring of two, the last closes the bus, and subscribers read to the
// end.
func heard(next recv, publishers, values, subscribers int) scenario {
	return func(w *world) func() error {
		a := newAudience(w, 2)
		for range publishers {
			a.publish(values, func() { a.bus.Close() })
		}
		for i := range subscribers {
			a.listen(string(rune('a'+i)), next, publishers*values)
		}
		return a.law
	}
}

// cutShort: the bus is closed in the midst.
func cutShort(w *world) func() error {
	a := newAudience(w, 2)
	a.publish(2, nothing)
	a.listen("a", truly, 0)
	w.thread("closer", a.bus.Close)
	return a.law
}

// comeAndGone: one subscribes and another leaves while values come and the bus is closed.
func comeAndGone(w *world) func() error {
	a := newAudience(w, 2)
	a.publish(1, nothing)
	s := a.bus.Subscribe("leaver")
	w.thread("leaver", s.Close)
	w.thread("reader of the leaver", func() {
		for {
			if _, _, err := s.Recv(w.ctx); err != nil {
				w.check(err == ErrClosed, "Recv = %v", err)
				return
			}
		}
	})
	w.thread("comer", func() {
		c := a.bus.Subscribe("comer")
		for {
			if _, _, err := c.Recv(w.ctx); err != nil {
				w.check(err == ErrClosed && c.Closed(), "Recv = %v", err)
				return
			}
		}
	})
	w.thread("closer", a.bus.Close)
	return func() error {
		st := s.Stats()
		w.check(st.Published >= st.Delivered+st.Lagged+st.Pending, "%+v do not add up", st)
		return a.law()
	}
}

// tokenwise: a subscriber that reads one value for each token.
func tokenwise(s *Subscription[item], ctx context.Context) (item, uint64, error) {
	for ctx.Err() == nil {
		listen(s.Ready(), ctx)
		if v, lagged, ok := s.Next(); ok {
			return v, lagged, nil
		}
		if s.Closed() {
			return item{}, 0, ErrClosed
		}
	}
	return item{}, 0, ctx.Err()
}

// selected: a subscriber that serves a select with Ready, Next and Closed.
func selected(s *Subscription[item], ctx context.Context) (item, uint64, error) {
	for {
		if v, lagged, ok := s.Next(); ok {
			return v, lagged, nil
		}
		if s.Closed() {
			return item{}, 0, ErrClosed
		}
		listen(s.Ready(), ctx)
		if ctx.Err() != nil {
			return item{}, 0, ctx.Err()
		}
	}
}

func TestScheduleBroadcast(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sc    scenario
		least int
		limit int
	}{
		{"one of each", heard(truly, 1, 3, 1), 500, 5_000},
		{"two publishers", heard(truly, 2, 2, 1), 1000, 5_000},
		{"two subscribers", heard(truly, 1, 3, 2), 1000, 5_000},
		{"select", heard(selected, 1, 3, 1), 500, 5_000},
		{"one a token", heard(tokenwise, 1, 3, 1), 500, 5_000},
		{"closed in the midst", cutShort, 1000, 5_000},
		{"come and gone", comeAndGone, 1000, 5_000},
	} {
		t.Run(tt.name, func(t *testing.T) { holds(t, tt.sc, tt.least, tt.limit) })
	}
}

// lateLook looks whether the bus is closed after it has looked for a value.
func lateLook(s *Subscription[item], ctx context.Context) (item, uint64, error) {
	for {
		if v, lagged, ok := s.Next(); ok {
			return v, lagged, nil
		}
		if s.isGone() {
			return item{}, 0, ErrClosed
		}
		listen(s.ready, ctx)
	}
}

// tidied takes an old token out of the way before it waits for a new one.
func tidied(s *Subscription[item], ctx context.Context) (item, uint64, error) {
	for ctx.Err() == nil {
		if v, lagged, ok := s.Next(); ok {
			return v, lagged, nil
		}
		if s.Closed() {
			return item{}, 0, ErrClosed
		}
		point("tidied")
		select {
		case <-s.ready:
		default:
		}
		listen(s.ready, ctx)
	}
	return item{}, 0, ctx.Err()
}

func listen(ready <-chan struct{}, ctx context.Context) {
	ready, over := either2("listen", ready, ctx.Done())
	select {
	case <-ready:
	case <-over:
	}
	woken("listen")
}

func TestScheduleBroadcastTwins(t *testing.T) {
	t.Run("looks too late", func(t *testing.T) { breaks(t, heard(lateLook, 1, 1, 1), "values were not read") })
	t.Run("not woken", func(t *testing.T) { breaks(t, heard(tidied, 1, 1, 1), "deadlock") })
}
