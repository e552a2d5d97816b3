package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"ronbox/appliance/flow"
	"ronbox/httpapi/wire"
)

// progressEvery bounds how often a long answer reports its progress.
const progressEvery = 200 * time.Millisecond

// Lines is an answer of one JSON value a line.
type Lines struct {
	c    *Request
	last time.Time
}

// Lines begins an answer with its first line, so that an error before it is a refusal like any other. Its route is Long.
func (r *Request) Lines() *Lines { return &Lines{c: r} }

// Progress is Write for what may be left out.
func (l *Lines) Progress(v any) {
	if now := time.Now(); now.Sub(l.last) >= progressEvery {
		l.last = now
		l.Write(v)
	}
}

// Write cannot fail: a client that left ends the request by its context.
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

// End ends the answer with the problem that err is, as its last line if there were others before.
func (l *Lines) End(err error, line func(*wire.Problem) any) error {
	if l.c.status == 0 {
		return err
	}
	c := l.c
	r := c.server.classify(c.service, err)
	c.server.d.Log.Warn("http.late_failure", "corr_id", c.corrID, "route", c.route.Pattern, "reason", r.Reason, "error", err)
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

// exportChunk is how many bytes of an export are sent at a time.
const exportChunk = 64 << 10

var (
	// errGone ends an export whose client has left, or takes nothing.
	errGone = errors.New("the client is gone")
	// errHead ends one of which only the headers are asked for.
	errHead = errors.New("headers only")
)

// Export is an answer of lines that are ready, of a stream route: sent in chunks, each within its own write deadline, until all is
// given, the client leaves or the node stops. What ends it early is a refusal like any other before the first chunk, and the last line
// after it.
type Export struct {
	c   *Request
	buf []byte
}

// Export runs an export in one of the stream slots of the service. What run returns ends it.
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

// Line adds the line that appendTo appends, with its end, and sends what has come together. An error ends the export.
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

// Flush sends what was added.
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

// ended reports whether streams are over.
func (s *Server) ended() bool {
	select {
	case <-s.gate.closed:
		return true
	default:
	}
	phase, _ := s.d.Lifecycle.Load()
	return ends(phase)
}

// Await returns when an event of sub says that there is more to export, as one that was missed may have. The error says why no
// more is. While nothing comes it sends an empty line as often as the event streams ping: by it the client knows that the node
// lives, and the node that the client does.
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
