//go:build flowsched

package flow

import "testing"

// watch is the part of a Watch that the scenarios use.
type watch interface {
	Load() (int, <-chan struct{})
	Store(v int)
}

// loaded is the result of a Load.
type loaded struct {
	value int
	next  <-chan struct{}
}

// followed: one reader follows the cell to the end of what one writer stores, another looks at it
// now and then.
func followed(make func() watch, stores int) scenario {
	return func(w *world) func() error {
		var loads []loaded
		c := make()
		look := func() loaded {
			v, next := c.Load()
			loads = append(loads, loaded{v, next})
			return loaded{v, next}
		}
		w.thread("writer", func() {
			for i := range stores {
				c.Store(i + 1)
			}
		})
		w.thread("follower", func() {
			for last := -1; last < stores; {
				l := look()
				w.check(l.value > last, "%d after %d", l.value, last)
				if last = l.value; last == stores {
					return
				}
				select {
				case <-l.next:
				case <-w.ctx.Done():
				}
				woken("next")
				if w.ctx.Err() != nil {
					return
				}
			}
		})
		w.thread("visitor", func() { look(); look() })
		return func() error { return settledLoads(w, c, loads) }
	}
}

// contended: two writers and two readers.
func contended(make func() watch) scenario {
	return func(w *world) func() error {
		var loads []loaded
		c := make()
		for i := range 2 {
			w.thread("writer", func() { c.Store(10 + i); c.Store(20 + i) })
			w.thread("reader", func() {
				for range 2 {
					v, next := c.Load()
					loads = append(loads, loaded{v, next})
				}
			})
		}
		return func() error { return settledLoads(w, c, loads) }
	}
}

// settledLoads: the channel of a Load is closed exactly if there was a Store since.
func settledLoads(w *world, c watch, loads []loaded) error {
	now, _ := c.Load()
	for _, l := range loads {
		closed := false
		select {
		case <-l.next:
			closed = true
		default:
		}
		w.check(closed == (l.value != now), "%d was loaded and its channel is closed: %v, but the value is %d", l.value,
			closed, now)
	}
	return w.err
}

func schedWatch() watch { return newWatch(0) }

// apartWatch holds its value and its channel apart.
type apartWatch struct {
	value int
	next  chan struct{}
}

func (a *apartWatch) Load() (int, <-chan struct{}) {
	point("apart Load")
	v := a.value
	point("apart Load, value")
	return v, a.next
}

func (a *apartWatch) Store(v int) {
	point("apart Store")
	a.value = v
	point("apart Store, value")
	close(a.next)
	a.next = make(chan struct{})
}

func TestScheduleWatch(t *testing.T) {
	t.Run("followed", func(t *testing.T) { holds(t, followed(schedWatch, 2), 100, 5_000) })
	t.Run("contended", func(t *testing.T) { holds(t, contended(schedWatch), 1000, 5_000) })
	t.Run("twin", func(t *testing.T) {
		breaks(t, followed(func() watch { return &apartWatch{next: make(chan struct{})} }, 2), "is closed: true")
	})
}
