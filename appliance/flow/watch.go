package flow

import "sync/atomic"

// Watch is a cell with a current value, for values that many tasks follow and of which only the last matters.
type Watch[T any] struct {
	cell atomic.Pointer[watched[T]]
}

// watched is immutable but for next, which is closed when the cell is replaced.
type watched[T any] struct {
	value T
	next  chan struct{}
}

// NewWatch declares s in c and returns the cell holding first.
func NewWatch[T any](c *Catalog, s Spec, first T) *Watch[T] {
	c.enter(s.as(KindWatch), nil, holdsOne)
	w := &Watch[T]{}
	w.cell.Store(&watched[T]{value: first, next: make(chan struct{})})
	return w
}

// Load returns the value and a channel that closes at the next Store, at once if there was one since. It never blocks. Whoever loads again
// after the channel closed sees that Store or a later one; values in between may be skipped.
func (w *Watch[T]) Load() (T, <-chan struct{}) {
	point("Load")
	cell := w.cell.Load()
	return cell.value, cell.next
}

// Store replaces the value and wakes all who hold the channel of the one before. It never blocks. Of concurrent Stores the last one wins.
func (w *Watch[T]) Store(v T) {
	point("Store")
	old := w.cell.Swap(&watched[T]{value: v, next: make(chan struct{})})
	point("Store, swapped")
	close(old.next)
}
