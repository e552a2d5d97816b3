package flow

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Broadcast is a lossy bus: all subscribers share one ring, and each has its own cursor. A slow
// subscriber loses the oldest values and learns how many. A publisher never waits. Values are
// shared and must not be modified.
type Broadcast[T any] struct {
	name    string
	label   string // value of the label bus
	service string
	meter   Meter
	log     hclog.Logger

	mu     lock
	ring   []T                // guarded by mu
	next   uint64             // number of values published, and the position of the next one; guarded by mu
	subs   []*Subscription[T] // guarded by mu; copied on write
	closed bool               // guarded by mu
	lost   uint64             // values overrun so far, of all subscribers; guarded by mu
}

// NewBroadcast declares s in c and returns the bus. s.Cap is the length of the ring.
func NewBroadcast[T any](c *Catalog, s Spec) *Broadcast[T] {
	s = s.as(KindBroadcast)
	b := &Broadcast[T]{
		name:    s.Name,
		label:   cmp.Or(s.Label, busLabel(s.Name)),
		service: s.Service,
		meter:   c.meter,
		log:     c.log.Named(s.Service),
	}
	c.enter(s, b.Close, b.state)
	b.ring = make([]T, s.Cap)
	return b
}

// Publish sends v to every subscriber. It takes one short lock and never waits for a subscriber.
// After Close it is a no-op.
func (b *Broadcast[T]) Publish(v T) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.ring[b.next%uint64(len(b.ring))] = v
	b.next++
	subs := b.subs
	for _, s := range subs {
		if b.next-s.cursor > uint64(len(b.ring)) {
			s.cursor++
			s.lagged++
			b.lost++
			s.lost.Add(1)
		}
	}
	b.mu.Unlock()
	for _, s := range subs {
		s.wake()
	}
}

// Subscribe returns a subscription to everything published from now on. consumer is a label of
// metrics and logs and must come from a closed set. The caller must close the subscription.
func (b *Broadcast[T]) Subscribe(consumer string) *Subscription[T] {
	s := &Subscription[T]{
		bus:      b,
		consumer: consumer,
		ready:    make(chan struct{}, 1),
		gone:     make(chan struct{}),
		count:    b.meter.Counter("bus_lagged_total", b.service, "bus", b.label, "consumer", consumer),
	}
	b.mu.Lock()
	s.start, s.cursor = b.next, b.next
	closed := b.closed
	if !closed {
		b.subs = append(slices.Clone(b.subs), s)
	}
	b.mu.Unlock()
	if closed { // s is not shared yet
		close(s.gone)
		s.wake()
	}
	return s
}

// state returns the lag of the slowest subscriber and the number of values lost by all.
func (b *Broadcast[T]) state() (lag int, lost uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.subs {
		lag = max(lag, int(b.next-s.cursor))
	}
	return lag, b.lost
}

// Close closes the bus. Subscribers get the pending values and then ErrClosed. It may be called
// again.
func (b *Broadcast[T]) Close() {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return
	}
	b.closed = true
	subs := b.subs
	b.subs = nil
	b.mu.Unlock()
	for _, s := range subs {
		point("Broadcast.Close")
		close(s.gone)
		s.wake()
	}
}

// lagWarnEvery is the least time between two warnings about one slow subscriber.
const lagWarnEvery = 5 * time.Second

// Subscription is one reader of a Broadcast. Only one goroutine at a time may call its methods,
// except Stats and Close.
type Subscription[T any] struct {
	bus      *Broadcast[T]
	consumer string
	ready    chan struct{} // holds a token if there may be something to read
	gone     chan struct{} // closed with the bus or the subscription
	count    func(n int)
	lost     atomic.Uint64 // lagged values not yet counted in the metric

	start     uint64 // guarded by bus.mu, as are the next four
	cursor    uint64 // position of the next value to read
	delivered uint64
	lagged    uint64
	told      uint64 // part of lagged that Next has reported
	left      bool   // Close was called; guarded by bus.mu

	warned   time.Time // last warning; owned by the reader
	unwarned uint64    // lag since then; owned by the reader
}

// SubscriptionStats are the counts of one subscription: Published = Delivered + Lagged + Pending.
type SubscriptionStats struct {
	Published, Delivered, Lagged, Pending uint64
}

// wake puts a token into ready and adds new lag to the metric. It never blocks.
func (s *Subscription[T]) wake() {
	point("wake")
	select {
	case s.ready <- struct{}{}:
	default:
	}
	point("wake, woken")
	if s.lost.Load() > 0 {
		s.count(int(s.lost.Swap(0)))
	}
}

// Ready returns a channel for a select. It yields when Next may return a value, and once more after
// the bus has closed; if Next then returns false, Closed returns true. It may yield without need,
// but it always yields while values are pending after a Next.
func (s *Subscription[T]) Ready() <-chan struct{} {
	assertFree("Subscription.Ready")
	return s.ready
}

// Next returns the oldest unread value, if there is one, and the number of values lost just before
// it. It never blocks.
func (s *Subscription[T]) Next() (v T, lagged uint64, ok bool) {
	b := s.bus
	b.mu.Lock()
	if s.left || s.cursor == b.next {
		b.mu.Unlock()
		return v, 0, false
	}
	v = b.ring[s.cursor%uint64(len(b.ring))]
	s.cursor++
	s.delivered++
	lagged, s.told = s.lagged-s.told, s.lagged
	more := s.cursor < b.next || b.closed // a closed bus wakes the reader once more
	b.mu.Unlock()
	if more {
		s.wake()
	}
	if lagged > 0 {
		s.warn(lagged)
	}
	return v, lagged, true
}

// warn logs lag, at most once in lagWarnEvery, with the sum since the last warning.
func (s *Subscription[T]) warn(lagged uint64) {
	s.unwarned += lagged
	if now := time.Now(); s.warned.IsZero() || now.Sub(s.warned) >= lagWarnEvery {
		s.bus.log.Warn("bus subscriber lags", "bus", s.bus.name, "consumer", s.consumer, "lagged", s.unwarned)
		s.warned, s.unwarned = now, 0
	}
}

// Recv waits for the next value and returns it with the number of values lost just before it. It
// returns the cause of ctx if ctx ends, and ErrClosed if the bus or the subscription is closed and
// nothing is pending.
func (s *Subscription[T]) Recv(ctx context.Context) (v T, lagged uint64, err error) {
	assertFree("Subscription.Recv")
	for {
		if ctx.Err() != nil {
			return v, 0, context.Cause(ctx)
		}
		closed := s.isGone() // before Next: values published before the close are read first
		if v, lagged, ok := s.Next(); ok {
			return v, lagged, nil
		}
		if closed {
			return v, 0, ErrClosed
		}
		ready, gone, over := either3("Recv", s.ready, s.gone, ctx.Done())
		select {
		case <-ready:
		case <-gone:
		case <-over:
		}
		woken("Recv, woken")
	}
}

// Closed reports whether Next will never return another value.
func (s *Subscription[T]) Closed() bool {
	if !s.isGone() {
		return false
	}
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	return s.left || s.cursor == s.bus.next
}

func (s *Subscription[T]) isGone() bool {
	point("isGone")
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// Stats returns the counts of the subscription at one moment.
func (s *Subscription[T]) Stats() SubscriptionStats {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	st := SubscriptionStats{Published: s.cursor - s.start, Delivered: s.delivered, Lagged: s.lagged}
	if !s.left {
		st.Pending = s.bus.next - s.cursor
		st.Published += st.Pending
	}
	return st
}

// Close ends the subscription. Pending values are lost to it. It may be called again.
func (s *Subscription[T]) Close() {
	b := s.bus
	b.mu.Lock()
	if s.left {
		b.mu.Unlock()
		return
	}
	s.left = true
	wasOpen := !b.closed
	b.subs = slices.DeleteFunc(slices.Clone(b.subs), func(o *Subscription[T]) bool { return o == s })
	b.mu.Unlock()
	if wasOpen {
		point("Subscription.Close")
		close(s.gone)
	}
	s.wake()
}
