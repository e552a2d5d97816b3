package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/flow"
	"ronbox/httpapi/front"
	"ronbox/httpapi/limit"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

const (
	lastEventHeader = "Last-Event-Id"
	sseRetry        = 3 * time.Second
	replayPage      = 100
)

// A Source describes an event stream. Its events are numbered from 1 without gaps.
type Source[T any] struct {
	Event, Consumer string // name of its events, and its label on the bus
	ReplayMax       uint64 // replaces StreamLimits.Replay unless 0

	Subscribe func(consumer string) *flow.Subscription[T]
	Head      func(context.Context) (LogHead, error)
	Since     func(ctx context.Context, after uint64, limit int) ([]T, error)
	ID        func(T) uint64
	Hello     func(LogHead) any // data of the first frame
	Lagged    func(Missed, LogHead) any
}

// LogHead is the state of the log behind a stream: its oldest and its newest event.
type LogHead struct {
	First, Last uint64
	Value       any // defined by the source
}

// Missed describes events that a stream leaves out.
type Missed struct{ Count, From, To uint64 }

// LastEvent describes the request header that resumes a stream.
func LastEvent(what string) openapi.Param {
	return openapi.Param{
		Name: "Last-Event-ID",
		Doc:  "the last " + what + " that the caller has seen; later ones are sent first",
	}
}

// feed is one client of an event stream. The goroutine of its connection reads the bus with its own
// cursor.
type feed[T any] struct {
	*Source[T]
	c    *Request
	sub  *flow.Subscription[T]
	out  []byte // unsent frames
	sent uint64 // the last event that was sent or is covered by one that was
}

// Follow serves a client of src until it leaves or the node stops.
func Follow[T any](c *Request, src *Source[T]) error {
	after, resume, err := c.LastEventID()
	if err != nil {
		return err
	}
	if !c.acquireStream() {
		return errStreams
	}
	defer c.releaseStream()
	sub := src.Subscribe(src.Consumer)
	defer sub.Close()
	now, err := src.Head(c.Context()) // after subscribing: it covers all events up to it
	if err != nil {
		return err
	}
	c.openStream(TypeEvents)
	if c.Head() {
		return nil
	}
	f := &feed[T]{Source: src, c: c, sub: sub, sent: now.Last}
	if err = f.open(now, after, resume); err == nil {
		err = f.run()
	}
	if err != nil {
		c.server.d.Log.Debug("stream.end", "service", c.service.Name, "corr_id", c.corrID, "error", err)
	}
	return nil
}

// LastEventID returns the last event that the client has seen. resume is false without one.
func (r *Request) LastEventID() (after uint64, resume bool, err error) {
	v, given, err := r.Single(lastEventHeader)
	if err != nil || !given || v == "" {
		return 0, false, err
	}
	if v != "0" && !CanonicalNumber(v) {
		return 0, false, &HeaderError{"Last-Event-ID", "must be a number that this stream gave"}
	}
	after, err = strconv.ParseUint(v, 10, 64)
	return after, true, err
}

// open sends hello and the events that the client has missed.
func (f *feed[T]) open(now LogHead, after uint64, resume bool) error {
	f.out = append(strconv.AppendInt(append(f.out, "retry: "...), sseRetry.Milliseconds(), 10), "\n\n"...)
	if err := f.event(wire.EventHello, 0, f.Hello(now)); err != nil {
		return err
	}
	if err := f.flush(); err != nil || !resume || after == now.Last {
		return err
	}
	return f.replay(now, after)
}

// replay sends the events after the client's last one, or a lagged event if there are too many.
func (f *feed[T]) replay(now LogHead, after uint64) error {
	most := cmp.Or(f.ReplayMax, uint64(f.c.service.limits.Load().Streams.Replay))
	if after > now.Last || now.Last-after > most || after+1 < now.First {
		return f.lag(after)
	}
	for f.sent = after; f.sent < now.Last; {
		page, err := f.Since(f.c.Context(), f.sent, replayPage)
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
		if err := f.flush(); err != nil {
			return err
		}
	}
	return nil
}

// run sends events as they arrive.
func (f *feed[T]) run() error {
	ping := f.c.pings()
	defer ping.Stop()
	again := time.NewTicker(recheckEvery) //rawchan: one per stream, stopped at its end
	defer again.Stop()
	for {
		phase, changed := f.c.server.d.Lifecycle.Load()
		if ends(phase) || f.sub.Closed() {
			return f.shutdown()
		}
		select {
		case <-f.c.Context().Done():
			return nil
		case <-changed:
		case <-f.c.server.gate.closed:
			return f.shutdown()
		case <-ping.C:
			f.out = append(f.out, ": ping\n\n"...) // a comment, which clients skip
		case <-again.C:
			if err := f.c.recheck(); err != nil {
				return err
			}
		case <-f.sub.Ready():
			if err := f.next(); err != nil {
				return err
			}
		}
		if err := f.flush(); err != nil {
			return err
		}
	}
}

// next reads one event from the bus.
func (f *feed[T]) next() error {
	e, lost, ok := f.sub.Next()
	if !ok {
		return nil
	}
	if lost == 0 && f.ID(e) <= f.sent+1 {
		return f.update(e)
	}
	return f.lag(f.sent) // a gap without a loss was left by the producer
}

// update sends an event unless the client has it.
func (f *feed[T]) update(e T) error {
	id := f.ID(e)
	if id <= f.sent {
		return nil
	}
	f.sent = id
	return f.event(f.Event, id, e)
}

// lag sends lagged for the events after last, and continues with the newest; the client must
// reconcile. It sends nothing if a replay has covered all of them.
func (f *feed[T]) lag(last uint64) error {
	now, err := f.Head(f.c.Context())
	if err != nil || now.Last == last && f.sent == last {
		return err
	}
	m := Missed{From: last + 1, To: now.Last}
	if now.Last > last {
		m.Count = now.Last - last
	}
	f.sent = now.Last
	if err := f.event(wire.EventLagged, now.Last, f.Lagged(m, now)); err != nil {
		return err
	}
	return f.flush()
}

// event adds a frame. JSON data has no newline. An id of 0 is omitted.
func (f *feed[T]) event(name string, id uint64, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if id > 0 {
		f.out = append(strconv.AppendUint(append(f.out, "id: "...), id, 10), '\n')
	}
	f.out = append(append(append(f.out, "event: "...), name...), '\n')
	f.out = append(append(append(f.out, "data: "...), data...), '\n', '\n')
	return nil
}

func (f *feed[T]) shutdown() error {
	if err := f.event(wire.EventShutdown, 0, struct{}{}); err != nil {
		return err
	}
	return f.flush()
}

// flush sends all frames. A client that stalls is disconnected.
func (f *feed[T]) flush() error {
	if len(f.out) == 0 {
		return nil
	}
	_, err := f.c.Write(f.out)
	f.out = f.out[:0]
	if err != nil {
		return err
	}
	return f.c.Flush()
}

// ends reports whether no more commits will happen in phase p.
func ends(p flow.Phase) bool {
	switch p {
	case flow.Aborting, flow.Stopping, flow.Stopped, flow.Poisoned:
		return true
	}
	return false
}

var errStreams = errors.New("too many open streams")

// streams bounds open streams or running requests, in total and per network. It never waits.
type streams struct {
	mu   *flow.Mutex
	n    int                // guarded by mu
	byIP map[netip.Addr]int // by network, only those with a stream; guarded by mu
}

func newStreams(c *flow.Catalog) *streams {
	return &streams{mu: flow.NewMutex(c, serviceNode, flow.RankCounters), byIP: map[netip.Addr]int{}}
}

// acquire takes a slot for the peer. Only the total bound applies to peers of the socket.
func (s *streams) acquire(p *front.Peer, l StreamLimits) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= l.Max {
		return false
	}
	if !p.Socket {
		from := limit.Network(p.Addr)
		if s.byIP[from] >= l.PerNetwork {
			return false
		}
		s.byIP[from]++
	}
	s.n++
	return true
}

func (s *streams) release(p *front.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	if p.Socket {
		return
	}
	from := limit.Network(p.Addr)
	if s.byIP[from]--; s.byIP[from] == 0 {
		delete(s.byIP, from)
	}
}

func (s *streams) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.n)
}

func (r *Request) acquireStream() bool {
	return r.service.streams.acquire(r.peer, r.service.limits.Load().Streams)
}

func (r *Request) releaseStream() { r.service.streams.release(r.peer) }

// pings returns a ticker with the ping interval.
func (r *Request) pings() *time.Ticker {
	//rawchan: one per request, stopped at its end
	return time.NewTicker(r.service.limits.Load().Streams.Ping)
}
