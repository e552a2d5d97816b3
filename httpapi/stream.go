package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/flow"
	"ronbox/engines/registry"
	"ronbox/httpapi/wire"
)

const (
	lastEventHeader = "Last-Event-Id"
	sseRetry        = 3 * time.Second
	replayPage      = 100
	consumerSSE     = "sse"
)

// stream is one client of /registry/stream, fed from its own cursor on the bus by the goroutine of its connection.
type stream struct {
	s    *Server
	c    *call
	sub  *flow.Subscription[registry.Event]
	out  *sse
	sent uint64 // the last version told, or covered by what was told
}

// getStream serves GET /registry/stream.
func (s *Server) getStream(c *call) error {
	after, resume, err := lastEventID(c.r)
	if err != nil {
		return err
	}
	if !s.streams.enter(c.peer) {
		return errStreams
	}
	defer s.streams.leave(c.peer)
	sub := s.d.Registry.Subscribe(consumerSSE)
	defer sub.Close()
	head := s.d.Registry.Head() // after subscribing: an event at or below it is in it
	st := &stream{s: s, c: c, sub: sub, out: openSSE(c, s.cfg.WriteTimeout.D()), sent: head.Head.Version}
	if c.r.Method == http.MethodHead {
		return nil
	}
	if err := st.open(head, after, resume); err != nil {
		s.d.Log.Debug("stream.end", "corr_id", c.corrID, "error", err)
		return nil
	}
	if err := st.follow(); err != nil {
		s.d.Log.Debug("stream.end", "corr_id", c.corrID, "error", err)
	}
	return nil
}

// lastEventID is the version the client has seen; resume is false when it begins.
func lastEventID(r *http.Request) (after uint64, resume bool, err error) {
	v, given, err := single(r, lastEventHeader)
	if err != nil || !given || v == "" {
		return 0, false, err
	}
	if v != "0" && !canonicalInt(v) {
		return 0, false, &HeaderError{"Last-Event-ID", "must be a version"}
	}
	after, err = strconv.ParseUint(v, 10, 64)
	return after, true, err
}

// open sends hello and what the client has missed.
func (st *stream) open(head *registry.HeadView, after uint64, resume bool) error {
	hello, err := json.Marshal(struct {
		Incarnation string         `json:"incarnation"`
		Head        jsontext.Value `json:"head"`
	}{head.Incarnation, head.JSON})
	if err != nil {
		return err
	}
	st.out.retry(sseRetry)
	st.out.event(wire.EventHello, 0, hello)
	if err := st.out.flush(); err != nil || !resume || after == head.Head.Version {
		return err
	}
	return st.resume(head, after)
}

// resume replays from the store what came after the client's last event, or says how much it does not.
func (st *stream) resume(head *registry.HeadView, after uint64) error {
	now := head.Head.Version
	if after > now || now-after > uint64(st.s.d.SSE.ReplayMax) || after+1 < head.MinVersion {
		return st.lagged(after)
	}
	for st.sent = after; st.sent < now; {
		page, err := st.s.d.Registry.Since(st.c.context(), st.sent, replayPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			return st.lagged(st.sent)
		}
		for _, e := range page {
			if err := st.update(e); err != nil {
				return err
			}
		}
		if err := st.out.flush(); err != nil {
			return err
		}
	}
	return nil
}

// follow sends events as they are committed, until the client leaves or the node stops.
func (st *stream) follow() error {
	ping := time.NewTicker(st.s.d.SSE.Ping.D())
	defer ping.Stop()
	for {
		phase, changed := st.s.d.Lifecycle.Load()
		if ends(phase) || st.sub.Closed() {
			return st.shutdown()
		}
		select {
		case <-st.c.context().Done():
			return nil
		case <-changed:
		case <-st.s.gate.closed:
			return st.shutdown()
		case <-ping.C:
			st.out.ping()
		case <-st.sub.Ready():
			if err := st.next(); err != nil {
				return err
			}
		}
		if len(st.out.buf) > 0 {
			if err := st.out.flush(); err != nil {
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
func (st *stream) next() error {
	e, lost, ok := st.sub.Next()
	switch {
	case !ok:
		return nil
	case lost > 0 && st.s.d.Registry.Head().Head.Version == st.sent:
		return nil // what was lost had been told by a replay
	case lost > 0:
		return st.lagged(st.sent)
	}
	return st.update(e)
}

func (st *stream) update(e registry.Event) error {
	if e.Version <= st.sent {
		return nil
	}
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	st.out.event(wire.EventUpdate, e.Version, data)
	st.sent = e.Version
	return nil
}

// lagged tells that the versions after last are not coming, and drops to HEAD; the client reconciles.
func (st *stream) lagged(last uint64) error {
	head := st.s.d.Registry.Head()
	now := head.Head.Version
	missed := uint64(0)
	if now > last {
		missed = now - last
	}
	data, err := json.Marshal(struct {
		Missed uint64         `json:"missed"`
		From   uint64         `json:"from"`
		To     uint64         `json:"to"`
		Head   jsontext.Value `json:"head"`
	}{missed, last + 1, now, head.JSON})
	if err != nil {
		return err
	}
	st.out.event(wire.EventLagged, now, data)
	st.sent = now
	return st.out.flush()
}

func (st *stream) shutdown() error {
	st.out.event(wire.EventShutdown, 0, []byte("{}"))
	return st.out.flush()
}
