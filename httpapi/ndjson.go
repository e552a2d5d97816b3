package httpapi

import (
	"errors"
	"net/http"
	"time"

	"ronbox/httpapi/wire"
)

// progressEvery bounds how often a long answer tells how far it is.
const progressEvery = 200 * time.Millisecond

// lines writes one JSON value a line, each within its own write deadline.
type lines struct {
	c    *call
	out  *rolling
	last time.Time
}

func newLines(c *call) *lines { return &lines{c: c, out: newRolling(c)} }

// progress is write for what may be left out.
func (l *lines) progress(v any) {
	if now := time.Now(); now.Sub(l.last) >= progressEvery {
		l.last = now
		l.write(v)
	}
}

// write cannot fail: a client that left ends the call by its context.
func (l *lines) write(v any) {
	if l.c.status == 0 {
		l.c.set("Content-Type", typeLines)
		l.c.set("Cache-Control", cacheNone)
		l.c.WriteHeader(http.StatusOK)
	}
	raw, err := encode(v)
	if err != nil {
		return
	}
	_, _ = l.out.Write(raw)
}

// endLines ends an answer with the problem that err is, as its last line if there were others before.
func (s *Server) endLines(l *lines, err error, line func(*wire.Problem) any) error {
	if l.c.status == 0 {
		return err
	}
	r := s.classify(l.c.route.Service, err)
	s.d.Log.Warn("http.late_failure", "corr_id", l.c.corrID, "route", l.c.route.Pattern, "reason", r.reason, "error", err)
	l.write(line(s.problem(l.c, r, err)))
	return nil
}

// rolling writes to a client that must take each chunk within the write timeout.
type rolling struct {
	c       *call
	control *http.ResponseController
}

func newRolling(c *call) *rolling { return &rolling{c: c, control: c.control()} }

// Write sends p on.
func (r *rolling) Write(p []byte) (int, error) {
	err := r.control.SetWriteDeadline(time.Now().Add(r.c.live.write))
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := r.c.Write(p)
	if err != nil {
		return n, err
	}
	return n, r.control.Flush()
}
