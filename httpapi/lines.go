package httpapi

import (
	"context"
	"errors"
	"net/http"
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
func (r *Request) openLines() {
	if r.status == 0 {
		r.Set("Content-Type", TypeLines)
		r.Set("Cache-Control", CacheNone)
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

// Export is an answer of prepared lines on a stream route. It is sent in chunks with a write
// deadline each, until run returns, the client leaves or the node stops. An error before the first
// chunk is an ordinary refusal; a later one is the last line.
type Export struct {
	c   *Request
	buf []byte
}

// Export runs an export in one of the service's stream slots, until run returns.
func (r *Request) Export(run func(*Export) error) error {
	if !r.acquireStream() {
		return errStreams
	}
	defer r.releaseStream()
	e := &Export{c: r}
	err := run(e)
	if err == nil {
		err = e.Flush()
	}
	switch {
	case err == nil, errors.Is(err, errGone), errors.Is(context.Cause(r.Context()), context.Canceled):
		return nil
	case errors.Is(err, errHead):
		r.openLines()
		return nil
	case r.status == 0:
		return err
	case e.Flush() != nil:
		return nil
	}
	type end struct {
		Problem *wire.Problem `json:"problem,omitzero"`
	}
	return r.Lines().End(err, func(p *wire.Problem) any { return end{p} })
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
	return e.Flush()
}

// Flush sends all added lines.
func (e *Export) Flush() error {
	if len(e.buf) == 0 {
		return nil
	}
	e.c.openLines()
	_, err := e.c.Write(e.buf)
	e.buf = e.buf[:0]
	if err != nil || e.c.Flush() != nil {
		return errGone
	}
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
// missed. It returns an error if there will be no more. While it waits, it sends an empty line per
// ping interval, which shows both sides that the other is alive.
func Await[T any](e *Export, sub *flow.Subscription[T], more func(T) bool) error {
	ping := e.c.pings()
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
			e.buf = append(e.buf, '\n')
			if err := e.Flush(); err != nil {
				return err
			}
		case <-sub.Ready():
			if ev, lost, ok := sub.Next(); ok && (lost > 0 || more(ev)) {
				return nil
			}
		}
	}
}
