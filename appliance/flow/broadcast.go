package flow

import (
	"cmp"
	"slices"

	"github.com/hashicorp/go-hclog"
)

// Broadcast is a lossy bus: one ring shared by all subscribers, each with its own cursor. A slow subscriber loses the oldest values and is
// told how many; a publisher never waits. Values are shared and must not be changed.
type Broadcast[T any] struct {
	name    string
	label   string // in metrics
	service string
	meter   Meter
	log     hclog.Logger

	mu     lock
	ring   []T                // guarded by mu
	next   uint64             // number of values published, also the place of the next; guarded by mu
	subs   []*Subscription[T] // guarded by mu; replaced, never changed
	closed bool               // guarded by mu
	lost   uint64             // overrun values of all subscribers so far; guarded by mu
}

// NewBroadcast declares s in c and returns the bus. s.Cap is the length of the ring.
func NewBroadcast[T any](c *Catalog, s Spec) *Broadcast[T] {
	s = s.as(KindBroadcast)
	b := &Broadcast[T]{name: s.Name, label: cmp.Or(s.Label, busLabel(s.Name)), service: s.Service, meter: c.meter, log: c.log.Named(s.Service)}
	c.enter(s, b.Close, b.state)
	b.ring = make([]T, s.Cap)
	return b
}

// Publish hands v to every subscriber. It takes one short lock and never waits for anyone. After Close it does nothing.
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

// Subscribe returns a subscription that sees everything published from now on. consumer names it in metrics and logs and comes from a
// closed set. The caller closes it.
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
	if closed { // nobody else knows s yet
		close(s.gone)
		s.wake()
	}
	return s
}

// state is how far the slowest subscriber is behind, and what all have missed.
func (b *Broadcast[T]) state() (behind int, lost uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, s := range b.subs {
		behind = max(behind, int(b.next-s.cursor))
	}
	return behind, b.lost
}

// Close ends the bus: subscribers get what is pending and then ErrClosed. Safe to call again.
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
