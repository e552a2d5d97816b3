package flow

import (
	"context"
	"sync/atomic"
)

// Queue is a bounded first-in-first-out channel from many producers to many consumers that can be closed while they send. Requests enter
// with TrySend, which never waits; tasks may Send. Items keep their order per producer.
type Queue[T any] struct {
	items   chan T
	closing chan struct{} // closed first: wakes senders that wait for room
	drained chan struct{} // closed last: no sender is inside and items is closed

	// state counts the senders inside, plus shut once the queue is closed. A sender that finds shut does not touch items, so when
	// state is exactly shut nobody does or will, and items may be closed.
	state    atomic.Int64
	finished atomic.Bool

	dropped tally
	note    func(n int, reason string) // logs a discard
}

// shut marks a closed queue in state, far above any count of senders.
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

// TrySend enqueues v, or returns ErrBusy if the queue is full or ErrClosed if it is closed; both count as dropped. It never blocks.
func (q *Queue[T]) TrySend(v T) error {
	point("TrySend")
	if len(q.items) == cap(q.items) && q.state.Load() < shut {
		q.dropped.add(1) // full and open: refused without a shared write, since this is the path of overload
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

// Send enqueues v and waits for room until ctx ends or the queue closes. It returns nil, ErrClosed or the cause of ctx, and v was enqueued
// exactly if it returns nil.
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
	case q.items <- v: // there is room, as a rule
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

// enter counts the caller in as a sender; false means the queue is closed and nothing may be sent.
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

// finish is reached by whoever finds the queue closed and without senders; the first one closes the channels.
func (q *Queue[T]) finish() {
	point("queue.finish")
	if q.finished.CompareAndSwap(false, true) {
		point("queue.finish, first")
		close(q.items)
		point("queue.finish, closed")
		close(q.drained)
	}
}

// C is the receiving end for a select: v, ok := <-q.C(), where !ok means closed, empty, and no sender inside. A select picks at random
// among ready cases, so a task that must stop at once looks at its context again after it.
func (q *Queue[T]) C() <-chan T {
	assertFree("Queue.C")
	return q.items
}

// Recv waits for an item. It looks at ctx first and returns its cause, or ErrClosed when the queue is closed and empty.
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

// Each calls do for every item, one after the other. It returns nil once the queue is closed and empty, and the cause of ctx when that ends.
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

// Close refuses further items; those accepted can still be received. It waits for the senders inside, which it wakes, and returns when C is
// closed. Safe to call again and at the same time.
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

// Discard closes the queue and returns what was left in it, counted as dropped and logged with reason, so that the caller can answer
// every waiter. Items that a consumer takes at the same time are that consumer's.
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

// Len is the number of items in the queue at this moment.
func (q *Queue[T]) Len() int { return len(q.items) }

// Cap is the number of items the queue holds.
func (q *Queue[T]) Cap() int { return cap(q.items) }
