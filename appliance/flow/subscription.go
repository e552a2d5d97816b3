package flow

import (
	"context"
	"slices"
	"sync/atomic"
	"time"
)

// lagWarnEvery is the least time between two warnings about one slow subscriber.
const lagWarnEvery = 5 * time.Second

// Subscription is one reader of a Broadcast. Its methods but Stats and Close belong to one goroutine at a time.
type Subscription[T any] struct {
	bus      *Broadcast[T]
	consumer string
	ready    chan struct{} // holds a token when there may be something to read
	gone     chan struct{} // closed with the bus or the subscription
	count    func(n int)
	lost     atomic.Uint64 // lagged values not yet counted in the metric

	start     uint64 // guarded by bus.mu, as are the next four
	cursor    uint64 // place of the next value to read
	delivered uint64
	lagged    uint64
	told      uint64 // part of lagged that Next has returned
	left      bool   // Close was called; guarded by bus.mu

	warned   time.Time // last warning; owned by the reader
	unwarned uint64    // lag since then; owned by the reader
}

// SubscriptionStats are the counts of one subscription: Published = Delivered + Lagged + Pending.
type SubscriptionStats struct {
	Published, Delivered, Lagged, Pending uint64
}

// wake leaves a token in ready and reports new lag to the metric. It never blocks.
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

// Ready is for a select: it yields when Next may have something, or when the bus has closed, which Closed tells after a Next in vain. A
// spare wake-up is possible, a lost one is not: while values are pending after a Next it yields again.
func (s *Subscription[T]) Ready() <-chan struct{} {
	assertFree("Subscription.Ready")
	return s.ready
}

// Next returns the oldest value not yet read, if there is one, and how many were lost just before it. It never blocks.
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
	more := s.cursor < b.next || b.closed // a closed bus wakes once more, to be noticed
	b.mu.Unlock()
	if more {
		s.wake()
	}
	if lagged > 0 {
		s.warn(lagged)
	}
	return v, lagged, true
}

// warn logs lag, at most once in lagWarnEvery and then with all of it.
func (s *Subscription[T]) warn(lagged uint64) {
	s.unwarned += lagged
	if now := time.Now(); s.warned.IsZero() || now.Sub(s.warned) >= lagWarnEvery {
		s.bus.log.Warn("bus subscriber lags", "bus", s.bus.name, "consumer", s.consumer, "lagged", s.unwarned)
		s.warned, s.unwarned = now, 0
	}
}

// Recv waits for the next value. It returns how many were lost just before it, the cause of ctx, or ErrClosed when the bus or the
// subscription is closed and nothing is pending.
func (s *Subscription[T]) Recv(ctx context.Context) (v T, lagged uint64, err error) {
	assertFree("Subscription.Recv")
	for {
		if ctx.Err() != nil {
			return v, 0, context.Cause(ctx)
		}
		closed := s.isGone() // before Next: what was published before the bus closed is read first
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

// Closed reports whether nothing more will ever come out of Next.
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

// Close ends the subscription; what is pending is lost to it. Safe to call again.
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
