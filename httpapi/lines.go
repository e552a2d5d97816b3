package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"ronbox/appliance/flow"
	"ronbox/httpapi/wire"
)

// progressEvery is the least time between two progress lines.
const progressEvery = 200 * time.Millisecond

// Lines is an answer with one JSON value per line.
type Lines struct {
	c    *Request
	last time.Time
}

// Lines starts an answer of lines. The headers are sent with the first line, so an earlier error is
// an ordinary refusal. The route must be Long.
func (r *Request) Lines() *Lines { return &Lines{c: r} }

// Progress is Write for a line that may be skipped.
func (l *Lines) Progress(v any) {
	if now := time.Now(); now.Sub(l.last) >= progressEvery {
		l.last = now
		l.Write(v)
	}
}

// Write writes a line. It cannot fail: if the client has left, the context of the request ends.
func (l *Lines) Write(v any) {
	l.c.openLines()
	raw, err := encode(v)
	if err != nil {
		return
	}
	if _, err := l.c.Write(raw); err == nil {
		_ = l.c.Flush()
	}
}

// End ends the answer. If err is not nil, it becomes the last line, or an ordinary refusal if there
// was no line before.
func (l *Lines) End(err error, line func(*wire.Problem) any) error {
	if l.c.status == 0 {
		return err
	}
	c := l.c
	r := c.service.classify(err)
	c.server.d.Log.Warn("http.late_failure", "corr_id", c.corrID, "route", c.route.Pattern, "reason", r.Reason, "error",
		err)
	l.Write(line(c.server.problem(c, r, err)))
	return nil
}

// openLines writes the headers, once.
func (r *Request) openLines() { r.openStream(TypeLines) }

// openStream writes the headers of an answer that comes in parts, once.
func (r *Request) openStream(kind string) {
	if r.status == 0 {
		r.Set("Content-Type", kind)
		r.Set("Cache-Control", CacheNone)
		if kind == TypeEvents {
			r.Set("X-Accel-Buffering", "no") // so that nginx does not buffer frames
		}
		r.WriteHeader(http.StatusOK)
	}
}

// exportChunk is the size in bytes of a chunk of an export.
const exportChunk = 64 << 10

var (
	// errGone ends an export if its client has left or does not read.
	errGone = errors.New("the client is gone")
	// errHead ends an export for HEAD.
	errHead = errors.New("headers only")
)

// Export is an answer of prepared lines on a stream route, or of events. It is sent in chunks with
// a write deadline each, until run returns, the client leaves or the node stops. An error before
// the first chunk is an ordinary refusal; a later one is the last line. Events have no such line:
// they end with the event shutdown if the node stops, else without a word, and the client resumes.
type Export struct {
	c      *Request
	kind   string        // media type
	passed func() uint64 // of events: the last one that was sent or left out
	buf    []byte
	sent   time.Time // when the last chunk was sent
}

// Export runs an export in one of the service's stream slots, until run returns.
func (r *Request) Export(run func(*Export) error) error {
	return r.export(&Export{c: r, kind: TypeLines, sent: time.Now()}, run)
}

// ExportEvents is Export of events with ids. passed returns the id of the last event that was sent
// or left out. A ping has this id, and a client resumes after it.
func (r *Request) ExportEvents(passed func() uint64, run func(*Export) error) error {
	return r.export(&Export{c: r, kind: TypeEvents, passed: passed, sent: time.Now()}, run)
}

func (r *Request) export(e *Export, run func(*Export) error) error {
	if !r.acquireStream() {
		return errStreams
	}
	defer r.releaseStream()
	err := run(e)
	if err == nil {
		err = e.Flush()
	}
	switch {
	case err == nil, errors.Is(err, errGone), errors.Is(context.Cause(r.Context()), context.Canceled):
		return nil
	case errors.Is(err, errHead):
		r.openStream(e.kind)
		return nil
	case r.status == 0:
		return err
	case e.Flush() != nil:
		return nil
	case e.kind == TypeEvents:
		e.breakOff(err)
		return nil
	}
	type end struct {
		Problem *wire.Problem `json:"problem,omitzero"`
	}
	return r.Lines().End(err, func(p *wire.Problem) any { return end{p} })
}

// breakOff ends events after err.
func (e *Export) breakOff(err error) {
	switch {
	case errors.Is(err, errDraining):
		e.buf = append(e.buf, "event: "+wire.EventShutdown+"\ndata: {}\n\n"...)
		_ = e.Flush()
		return
	case errors.Is(err, errRightsEnded):
		return // the client is told when it resumes
	}
	e.c.server.d.Log.Warn("http.late_failure", "corr_id", e.c.corrID, "route", e.c.route.Pattern, "reason",
		e.c.service.classify(err).Reason, "error", err)
}

// Line adds the line that appendTo appends, and a newline. It sends a chunk when it is full. An
// error ends the export.
func (e *Export) Line(appendTo func([]byte) []byte) error {
	switch {
	case e.c.Head():
		return errHead
	case e.c.server.ended():
		return errDraining
	}
	if e.buf = appendTo(e.buf); len(e.buf) < exportChunk {
		return nil
	}
	if err := e.c.recheck(); err != nil {
		return err
	}
	return e.Flush()
}

// Event adds an event with JSON data, as Line does.
func (e *Export) Event(name string, id uint64, data []byte) error {
	return e.Line(func(b []byte) []byte {
		b = append(strconv.AppendUint(append(b, "id: "...), id, 10), "\nevent: "...)
		b = append(append(append(b, name...), "\ndata: "...), data...)
		return append(b, "\n\n"...)
	})
}

// Begin sends the headers of events, with the time after which a client is to reconnect, and the
// place at which they begin.
func (e *Export) Begin() error {
	err := e.Line(func(b []byte) []byte {
		return append(strconv.AppendInt(append(b, "retry: "...), sseRetry.Milliseconds(), 10), '\n')
	})
	if err != nil {
		return err
	}
	return e.Ping()
}

// Ping sends all that was added, and what shows both sides that the other is alive.
func (e *Export) Ping() error {
	if e.kind == TypeEvents {
		e.buf = append(strconv.AppendUint(append(e.buf, "id: "...), e.passed(), 10), '\n')
	}
	e.buf = append(e.buf, '\n')
	return e.Flush()
}

// Alive sends a ping if nothing was sent for a ping interval, and checks from time to time that the
// client may still have the export. An error ends it.
func (e *Export) Alive() error {
	if e.c.server.ended() {
		return errDraining
	}
	if err := e.c.recheck(); err != nil {
		return err
	}
	if e.silence() > 0 {
		return nil
	}
	return e.Ping()
}

// silence returns the time until a ping is due.
func (e *Export) silence() time.Duration {
	return time.Until(e.sent.Add(e.c.service.limits.Load().Streams.Ping))
}

// Flush sends all added lines.
func (e *Export) Flush() error {
	if len(e.buf) == 0 {
		return nil
	}
	e.c.openStream(e.kind)
	_, err := e.c.Write(e.buf)
	e.buf = e.buf[:0]
	if err != nil || e.c.Flush() != nil {
		return errGone
	}
	e.sent = time.Now()
	return nil
}

// ended reports whether the gate is closed.
func (s *Server) ended() bool {
	select {
	case <-s.gate.closed:
		return true
	default:
	}
	phase, _ := s.d.Lifecycle.Load()
	return ends(phase)
}

// Await waits until an event of sub shows that there may be more to export, or until one was
// missed. It returns an error if there will be no more, or if the client may have no more. While it
// waits, it sends a ping after each interval of silence.
func Await[T any](e *Export, sub *flow.Subscription[T], more func(T) bool) error {
	if err := e.Alive(); err != nil {
		return err
	}
	next := func() time.Duration { return min(e.silence(), recheckEvery) }
	ping := time.NewTimer(next())
	defer ping.Stop()
	for {
		phase, changed := e.c.server.d.Lifecycle.Load()
		if ends(phase) || sub.Closed() {
			return errDraining
		}
		select {
		case <-e.c.Context().Done():
			return errGone
		case <-e.c.server.gate.closed:
			return errDraining
		case <-changed:
		case <-ping.C:
			if err := e.Alive(); err != nil {
				return err
			}
			ping.Reset(next())
		case <-sub.Ready():
			if ev, lost, ok := sub.Next(); ok && (more(ev) || lost > 0) {
				return nil
			}
		}
	}
}
