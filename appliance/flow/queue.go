package flow

import (
	"context"
	"errors"
	"sync/atomic"
)

var (
	// ErrBusy is returned when a queue or flight is full. Nothing was enqueued. The same call may
	// succeed later.
	ErrBusy = errors.New("flow: queue full")
	// ErrClosed is returned for a closed queue, bus or flight. Nothing was enqueued.
	ErrClosed = errors.New("flow: closed")
	// ErrCanceled answers an item that was dropped before any work on it began. It is also the
	// cause of a context cancelled by shutdown.
	ErrCanceled = errors.New("flow: canceled")
	// ErrUnknown is returned to a waiter whose deadline passed while its item was being processed.
	// The item may or may not take effect.
	ErrUnknown = errors.New("flow: outcome unknown")
	// ErrAborted is the cause of a task's context after the drain deadline.
	ErrAborted = errors.New("flow: drain deadline over, aborted")
	// ErrEnded is reported for a task that returned nil before it was told to drain.
	ErrEnded = errors.New("flow: task returned before shutdown")
	// ErrOver is returned by a Never task that ends early, and rightly so.
	ErrOver = errors.New("flow: task is over")
)

// Queue is a bounded FIFO channel with many producers and many consumers. It may be closed while
// producers send. Requests enter with TrySend, which never waits; tasks may use Send. The items of
// each producer keep their order.
type Queue[T any] struct {
	items   chan T
	closing chan struct{} // closed first: wakes senders that wait for room
	drained chan struct{} // closed last: no sender is active and items is closed

	// state is the number of active senders, plus shut once the queue is closed. A sender that
	// finds shut does not use items. So when state equals shut, no sender uses items now or later,
	// and items may be closed.
	state    atomic.Int64
	finished atomic.Bool

	dropped tally
	note    func(n int, reason string) // logs discarded items
}

// shut marks a closed queue in state. It exceeds any number of senders.
const shut = int64(1) << 62

// NewQueue declares s in c and returns the queue. s.Cap must be at least 1.
func NewQueue[T any](c *Catalog, s Spec) *Queue[T] {
	s = s.as(KindQueue)
	q := &Queue[T]{closing: make(chan struct{}), drained: make(chan struct{})}
	c.enter(s, q.Close, func() (int, uint64) { return len(q.items), q.dropped.total.Load() })
	q.items = make(chan T, s.Cap)
	label := queueLabel(s.Name)
	q.dropped.meter = c.meter.Counter("queue_dropped_total", s.Service, "queue", label)
	c.meter.Gauge("queue_depth", s.Service, func() float64 { return float64(len(q.items)) }, "queue", label)
	c.meter.Gauge("queue_capacity", s.Service, func() float64 { return float64(cap(q.items)) }, "queue", label)
	log := c.log.Named(s.Service)
	q.note = func(n int, reason string) { log.Warn("queue discarded", "queue", s.Name, "items", n, "reason", reason) }
	return q
}

// TrySend enqueues v. It returns ErrBusy if the queue is full and ErrClosed if it is closed; both
// count as dropped. It never blocks.
func (q *Queue[T]) TrySend(v T) error {
	point("TrySend")
	if len(q.items) == cap(q.items) && q.state.Load() < shut {
		q.dropped.add(1) // overload path: refused without a write to shared memory
		return ErrBusy
	}
	if !q.enter() {
		return ErrClosed
	}
	point("TrySend, entered")
	select {
	case q.items <- v:
		q.leave()
		return nil
	default:
		q.leave()
		q.dropped.add(1)
		return ErrBusy
	}
}

// Send enqueues v. It waits for room until ctx ends or the queue closes. It returns nil, ErrClosed
// or the cause of ctx. v was enqueued if and only if it returns nil.
func (q *Queue[T]) Send(ctx context.Context, v T) error {
	assertFree("Queue.Send")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !q.enter() {
		return ErrClosed
	}
	defer q.leave()
	point("Send, entered")
	select {
	case q.items <- v: // usually there is room
		return nil
	default:
	}
	items, closing, over := either3("Send, full", (chan<- T)(q.items), q.closing, ctx.Done())
	select {
	case items <- v:
		woken("Send, made it")
		return nil
	case <-closing:
		woken("Send, closing")
		q.dropped.add(1)
		return ErrClosed
	case <-over:
		woken("Send, over")
		return context.Cause(ctx)
	}
}

// enter registers a sender. It returns false if the queue is closed.
func (q *Queue[T]) enter() bool {
	point("queue.enter")
	if q.state.Add(1) < shut {
		return true
	}
	q.leave()
	q.dropped.add(1)
	return false
}

func (q *Queue[T]) leave() {
	point("queue.leave")
	if q.state.Add(-1) == shut {
		q.finish()
	}
}

// finish is called whenever the queue is closed and has no senders. The first call closes the
// channels.
func (q *Queue[T]) finish() {
	point("queue.finish")
	if q.finished.CompareAndSwap(false, true) {
		point("queue.finish, first")
		close(q.items)
		point("queue.finish, closed")
		close(q.drained)
	}
}

// C returns the channel to receive from in a select: v, ok := <-q.C(). If ok is false, the queue is
// closed, empty and has no senders. A select picks at random among ready cases, so a task that must
// stop at once checks its context after the select.
func (q *Queue[T]) C() <-chan T {
	assertFree("Queue.C")
	return q.items
}

// Recv waits for an item. It checks ctx first and returns its cause if ctx has ended. It returns
// ErrClosed when the queue is closed and empty.
func (q *Queue[T]) Recv(ctx context.Context) (T, error) {
	assertFree("Queue.Recv")
	var zero T
	if ctx.Err() != nil {
		return zero, context.Cause(ctx)
	}
	items, over := either2("Recv", q.items, ctx.Done())
	select {
	case v, ok := <-items:
		woken("Recv, got it")
		if !ok {
			return zero, ErrClosed
		}
		return v, nil
	case <-over:
		woken("Recv, over")
		return zero, context.Cause(ctx)
	}
}

// Each calls do for every item, one at a time. It returns nil when the queue is closed and empty,
// and the cause of ctx when ctx ends.
func (q *Queue[T]) Each(ctx context.Context, do func(v T)) error {
	for {
		v, err := q.Recv(ctx)
		switch {
		case err == nil:
			do(v)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		default:
			return nil
		}
	}
}

// Close makes the queue refuse further items. Items accepted before can still be received. Close
// wakes active senders, waits for them, and returns when C is closed. It may be called again and
// concurrently.
func (q *Queue[T]) Close() {
	assertFree("Queue.Close")
	point("Close")
	if before := q.state.Or(shut); before < shut {
		point("Close, first")
		close(q.closing)
		if before == 0 {
			q.finish()
		}
	}
	point("Close, waits")
	<-q.drained
	woken("Close, drained")
}

// Discard closes the queue and returns the remaining items, so that the caller can answer every
// waiter. It counts them as dropped and logs reason. Items that a consumer receives concurrently
// are not among them.
func (q *Queue[T]) Discard(reason string) []T {
	q.Close()
	var left []T
	point("Discard")
	for v := range q.items {
		left = append(left, v)
		point("Discard, next")
	}
	if len(left) > 0 {
		q.dropped.add(len(left))
		q.note(len(left), reason)
	}
	return left
}

// Len returns the number of queued items.
func (q *Queue[T]) Len() int { return len(q.items) }

// Cap returns the capacity.
func (q *Queue[T]) Cap() int { return cap(q.items) }
