//go:build flowsched

package flow

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
)

// item is no. n of producer by.
type item struct{ by, n int }

// lane is the part of a queue that the scenarios use, so that a faulty twin can replace it.
type lane interface {
	Send(ctx context.Context, v item) error
	TrySend(v item) error
	Recv(ctx context.Context) (item, error)
	Close()
	Discard(reason string) []item
}

// traffic is what went through a lane.
type traffic struct {
	*world
	lane
	sent, got []item // accepted, and what came out
	sending   int    // producers that are not done
	ended     int    // consumers that saw the end
	consumers int
}

func newTraffic(w *world, l lane) *traffic {
	return &traffic{world: w, lane: l}
}

// produce adds a producer of n items by way of send, which ends early when the lane is closed.
func (c *traffic) produce(name string, n int, send func(item) error, last func()) {
	c.sending++
	by := c.sending
	c.thread(name, func() {
		for i := range n {
			err := send(item{by, i})
			if err != nil {
				c.check(err == ErrClosed || err == ErrBusy, "send = %v", err)
				continue
			}
			c.sent = append(c.sent, item{by, i})
		}
		if c.sending--; c.sending == 0 {
			last()
		}
	})
}

func (c *traffic) send(v item) error { return c.lane.Send(c.ctx, v) }

// consume adds a consumer, which takes until the lane is closed and empty.
func (c *traffic) consume() {
	c.consumers++
	c.thread("consumer", func() {
		newest := map[int]int{}
		for {
			v, err := c.Recv(c.ctx)
			if err != nil {
				c.check(err == ErrClosed, "Recv = %v", err)
				c.ended++
				return
			}
			c.take(v, newest)
		}
	})
}

// take notes that v came out, where the newest that came out before is known by producer.
func (c *traffic) take(v item, newest map[int]int) {
	last, some := newest[v.by]
	c.check(!some || last < v.n, "%v came out after no. %d", v, last)
	newest[v.by] = v.n
	c.got = append(c.got, v)
}

// law: accepted items came out once, and every thread saw the end.
func (c *traffic) law() error {
	for _, v := range c.got {
		c.check(slices.Contains(c.sent, v), "%v came out but was not accepted", v)
	}
	for _, v := range c.sent {
		n := 0
		for _, o := range c.got {
			if o == v {
				n++
			}
		}
		c.check(n == 1, "%v was accepted and came out %d times", v, n)
	}
	c.check(c.ended == c.consumers, "%d of %d consumers saw the end", c.ended, c.consumers)
	return c.err
}

func nothing() {}

// schedQueue returns a fresh queue.
func schedQueue(capacity int) lane { return newQueue[item](capacity) }

// closedWhile: producers and consumers work while another thread closes the lane.
func closedWhile(make func(int) lane, capacity, producers, items, consumers int) scenario {
	return func(w *world) func() error {
		c := newTraffic(w, make(capacity))
		for range producers {
			c.produce("producer", items, c.send, nothing)
		}
		for range consumers {
			c.consume()
		}
		w.thread("closer", c.Close)
		return c.law
	}
}

// drained: the last producer closes the lane; all that was sent must come out.
func drained(make func(int) lane, capacity, producers, items, consumers int) scenario {
	return func(w *world) func() error {
		c := newTraffic(w, make(capacity))
		for range producers {
			c.produce("producer", items, c.send, c.Close)
		}
		for range consumers {
			c.consume()
		}
		return func() error {
			c.check(len(c.got) == producers*items, "%d of %d items came out", len(c.got), producers*items)
			return c.law()
		}
	}
}

// closedAgainstPut: a queue without a reader is closed while a producer waits for room.
func closedAgainstPut(make func(int) lane) scenario {
	return func(w *world) func() error {
		c := newTraffic(w, make(1))
		c.produce("producer", 2, c.send, nothing)
		for range 2 {
			w.thread("closer", c.Close)
		}
		return func() error {
			newest := map[int]int{}
			for _, v := range c.Discard("test") {
				c.take(v, newest)
			}
			return c.law()
		}
	}
}

// discarded: the remaining items are discarded while producers send and consumers take.
func discarded(make func(int) lane, consumers int) scenario {
	return func(w *world) func() error {
		c := newTraffic(w, make(2))
		c.produce("producer", 2, c.send, nothing)
		c.produce("trying producer", 1, c.TrySend, nothing)
		for range consumers {
			c.consume()
		}
		w.thread("discarder", func() {
			newest := map[int]int{}
			for _, v := range c.Discard("test") {
				c.take(v, newest)
			}
		})
		return c.law
	}
}

func TestScheduleQueue(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sc    scenario
		least int
		limit int
	}{
		{"1x1 cap 1 closed", closedWhile(schedQueue, 1, 1, 2, 1), 1000, 10_000},
		{"1x1 cap 2 closed", closedWhile(schedQueue, 2, 1, 3, 1), 1000, 10_000},
		{"2x2 cap 2 closed", closedWhile(schedQueue, 2, 2, 2, 2), 1000, 12_000},
		{"1x1 cap 1 drained", drained(schedQueue, 1, 1, 3, 1), 100, 20_000},
		{"2x2 cap 2 drained", drained(schedQueue, 2, 2, 2, 2), 1000, 12_000},
		{"close against put", closedAgainstPut(schedQueue), 1000, 10_000},
		{"discard", discarded(schedQueue, 1), 1000, 8_000},
	} {
		t.Run(tt.name, func(t *testing.T) { holds(t, tt.sc, tt.least, tt.limit) })
	}
}

// hastyQueue has senders that look whether it is closed but are not counted in.
type hastyQueue struct {
	*Queue[item]
	closed atomic.Bool
}

func (q *hastyQueue) Send(ctx context.Context, v item) error {
	point("hasty look")
	if q.closed.Load() {
		return ErrClosed
	}
	point("hasty Send")
	q.items <- v
	woken("hasty Send")
	return nil
}

func (q *hastyQueue) Close() {
	point("hasty Close")
	if q.closed.Swap(true) {
		return
	}
	close(q.items)
}

// deafQueue does not wake those who wait for room when it closes.
type deafQueue struct{ *Queue[item] }

func (q *deafQueue) Close() {
	point("deaf Close")
	if q.state.Or(shut) == 0 {
		q.finish()
	}
	<-q.drained
	woken("deaf Close")
}

// curtQueue discards the remaining items before it is closed.
type curtQueue struct{ *Queue[item] }

func (q *curtQueue) Discard(string) (left []item) {
	point("curt Discard")
	for range q.Len() {
		v, err := q.Recv(context.Background())
		if err == nil {
			left = append(left, v)
		}
	}
	q.Close()
	return left
}

func TestScheduleQueueTwins(t *testing.T) {
	hasty := func(n int) lane { return &hastyQueue{Queue: newQueue[item](n)} }
	deaf := func(n int) lane { return &deafQueue{newQueue[item](n)} }
	curt := func(n int) lane { return &curtQueue{newQueue[item](n)} }
	t.Run("not counted in", func(t *testing.T) { breaks(t, closedWhile(hasty, 1, 1, 2, 1), "send on closed channel") })
	t.Run("not woken", func(t *testing.T) { breaks(t, closedAgainstPut(deaf), "deadlock") })
	t.Run("lost", func(t *testing.T) { breaks(t, discarded(curt, 0), "came out 0 times") })
}
