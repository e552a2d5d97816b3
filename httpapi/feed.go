package httpapi

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/flow"
	"ronbox/httpapi/wire"
)

const (
	lastEventHeader = "Last-Event-Id"
	sseRetry        = 3 * time.Second
	replayPage      = 100
)

// A source is what one kind of event stream tells. Its events are numbered from 1 without gaps.
type source[T any] struct {
	event, consumer string
	places          *streams
	replayMax       uint64

	subscribe func(consumer string) *flow.Subscription[T]
	tip       func(context.Context) (tip, error)
	since     func(ctx context.Context, after uint64, limit int) ([]T, error)
	id        func(T) uint64
	hello     func(tip) any
	lagged    func(missed, tip) any
}

// tip is where the log that a stream follows stands: the oldest event it has, and the newest.
type tip struct {
	first, last uint64
	value       any // of the source
}

// missed are events that a stream did not tell.
type missed struct{ count, from, to uint64 }

// feed is one client of an event stream, fed from its own cursor on the bus by the goroutine of its connection.
type feed[T any] struct {
	*source[T]
	s    *Server
	c    *call
	sub  *flow.Subscription[T]
	out  *sse
	sent uint64 // the last event told, or covered by what was told
}

// follow serves a client of src until it leaves or the node stops.
func follow[T any](s *Server, c *call, src *source[T]) error {
	after, resume, err := lastEventID(c.r)
	if err != nil {
		return err
	}
	if !src.places.enter(c.peer, c.live.sse) {
		return errStreams
	}
	defer src.places.leave(c.peer)
	sub := src.subscribe(src.consumer)
	defer sub.Close()
	now, err := src.tip(c.context()) // after subscribing: an event at or below it is in it
	if err != nil {
		return err
	}
	f := &feed[T]{source: src, s: s, c: c, sub: sub, out: openSSE(c), sent: now.last}
	if c.r.Method == http.MethodHead {
		return nil
	}
	if err = f.open(now, after, resume); err == nil {
		err = f.run()
	}
	if err != nil {
		s.d.Log.Debug("stream.end", "service", c.route.Service, "corr_id", c.corrID, "error", err)
	}
	return nil
}

// lastEventID is the event the client has seen; resume is false when it begins.
func lastEventID(r *http.Request) (after uint64, resume bool, err error) {
	v, given, err := single(r, lastEventHeader)
	if err != nil || !given || v == "" {
		return 0, false, err
	}
	if v != "0" && !canonicalInt(v) {
		return 0, false, &HeaderError{"Last-Event-ID", "must be a number that this stream gave"}
	}
	after, err = strconv.ParseUint(v, 10, 64)
	return after, true, err
}

// open sends hello and what the client has missed.
func (f *feed[T]) open(now tip, after uint64, resume bool) error {
	f.out.retry(sseRetry)
	if err := f.tell(wire.EventHello, 0, f.hello(now)); err != nil {
		return err
	}
	if err := f.out.flush(); err != nil || !resume || after == now.last {
		return err
	}
	return f.replay(now, after)
}

// replay tells what came after the client's last event, or says how much it does not.
func (f *feed[T]) replay(now tip, after uint64) error {
	if after > now.last || now.last-after > f.replayMax || after+1 < now.first {
		return f.lag(after)
	}
	for f.sent = after; f.sent < now.last; {
		page, err := f.since(f.c.context(), f.sent, replayPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return f.lag(f.sent)
		}
		for _, e := range page {
			if err := f.update(e); err != nil {
				return err
			}
		}
		if err := f.out.flush(); err != nil {
			return err
		}
	}
	return nil
}

// run sends events as they come.
func (f *feed[T]) run() error {
	ping := time.NewTicker(f.c.live.sse.Ping.D())
	defer ping.Stop()
	for {
		phase, changed := f.s.d.Lifecycle.Load()
		if ends(phase) || f.sub.Closed() {
			return f.shutdown()
		}
		select {
		case <-f.c.context().Done():
			return nil
		case <-changed:
		case <-f.s.gate.closed:
			return f.shutdown()
		case <-ping.C:
			f.out.ping()
		case <-f.sub.Ready():
			if err := f.next(); err != nil {
				return err
			}
		}
		if len(f.out.buf) > 0 {
			if err := f.out.flush(); err != nil {
				return err
			}
		}
	}
}

// ends tells the phases in which nothing more will be committed.
func ends(p flow.Phase) bool {
	switch p {
	case flow.Aborting, flow.Stopping, flow.Stopped, flow.Poisoned:
		return true
	}
	return false
}

// next takes one event off the bus; what the client has been told already is skipped.
func (f *feed[T]) next() error {
	e, lost, ok := f.sub.Next()
	if !ok {
		return nil
	}
	if lost == 0 {
		return f.update(e)
	}
	return f.lag(f.sent)
}

func (f *feed[T]) update(e T) error {
	id := f.id(e)
	if id <= f.sent {
		return nil
	}
	f.sent = id
	return f.tell(f.event, id, e)
}

// lag tells that the events after last are not coming, and drops to the newest; the client reconciles. Where it turns
// out that all of them had been told by a replay, it says nothing.
func (f *feed[T]) lag(last uint64) error {
	now, err := f.tip(f.c.context())
	if err != nil || now.last == last && f.sent == last {
		return err
	}
	m := missed{from: last + 1, to: now.last}
	if now.last > last {
		m.count = now.last - last
	}
	f.sent = now.last
	if err := f.tell(wire.EventLagged, now.last, f.lagged(m, now)); err != nil {
		return err
	}
	return f.out.flush()
}

func (f *feed[T]) tell(event string, id uint64, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f.out.event(event, id, data)
	return nil
}

func (f *feed[T]) shutdown() error {
	f.out.event(wire.EventShutdown, 0, []byte("{}"))
	return f.out.flush()
}
