package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
)

const (
	consumerExport = "export"
	exportChunk    = 64 << 10 // bytes that are sent at a time
)

var (
	// errGone ends an export whose client has left, or takes nothing.
	errGone = errors.New("the client is gone")
	// errHead ends one of which only the headers are asked for.
	errHead = errors.New("headers only")
)

// exporter is one client of the ledger's export, fed by the goroutine of its connection.
type exporter struct {
	s    *Server
	c    *call
	sub  *flow.Subscription[ledger.Committed] // nil: ends with what there is
	out  *rolling
	buf  []byte
	next uint64 // the record to give next
	to   uint64 // the last one to give, 0 for no end

	begun bool // a line was given
}

// getExport serves GET /v1/ledger/export. It reads in slices, so a slow client holds up nothing, and each chunk has a deadline
// of its own. What ends it early, be it the end of the node, is told: as any refusal before the first chunk, as the last line
// after it.
func (s *Server) getExport(c *call) error {
	e := &exporter{s: s, c: c, out: newRolling(c)}
	if err := e.read(); err != nil {
		return err
	}
	if !s.exports.enter(c.peer, c.live.sse) {
		return errStreams
	}
	defer s.exports.leave(c.peer)
	if c.query.Get("follow") == "1" {
		e.sub = s.d.Wallet.Events(consumerExport) // before the first read: what is committed meanwhile is told
		defer e.sub.Close()
	}
	switch err := e.run(); {
	case err == nil, errors.Is(err, errGone):
		return nil
	case errors.Is(err, errHead):
		e.open()
		return nil
	case c.status == 0:
		return err
	default:
		if e.flush() != nil {
			return nil
		}
		return s.endLines(&lines{c: c, out: e.out}, err, func(p *wire.Problem) any { return wire.ExportEnd{Problem: p} })
	}
}

// read takes the query.
func (e *exporter) read() (err error) {
	if v := e.c.query.Get("follow"); e.c.query.Has("follow") && v != "0" && v != "1" {
		return &QueryError{"follow", "must be 0 or 1"}
	}
	if e.next, err = e.c.number("from_seq", 1, maxVersion); err != nil {
		return err
	}
	e.to, err = e.c.number("to_seq", 0, maxVersion)
	if err == nil && e.to != 0 && e.to < e.next {
		return &QueryError{"to_seq", "must not be before from_seq"}
	}
	return err
}

// run gives what there is, and then what comes, to the end asked for.
func (e *exporter) run() error {
	for {
		if err := e.slice(); err != nil {
			return err
		}
		if e.sub == nil || e.to != 0 && e.next > e.to {
			return nil
		}
		if err := e.wait(); err != nil {
			return err
		}
	}
}

// slice gives all records from the next to the newest. The first one asks the wallet even where there are none: for the first
// line, and whether the caller may.
func (e *exporter) slice() error {
	ctx := e.c.context()
	head, err := e.s.d.Wallet.Head(ctx, e.c.actor)
	if err != nil {
		return err
	}
	to := head.Seq
	if e.to != 0 {
		to = min(to, e.to)
	}
	if e.begun && e.next > to {
		return nil
	}
	if err := e.s.d.Wallet.Export(ctx, e.c.actor, e.next, to, e.line); err != nil {
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return errGone
		}
		return err
	}
	return e.flush()
}

// open writes the headers, once.
func (e *exporter) open() {
	if e.c.status == 0 {
		e.c.set("Content-Type", typeLines)
		e.c.set("Cache-Control", cacheNone)
		e.c.WriteHeader(http.StatusOK)
	}
}

// line adds one line, and sends what has come together.
func (e *exporter) line(l record.Line) error {
	switch {
	case e.c.r.Method == http.MethodHead:
		return errHead
	case e.s.ended():
		return errDraining
	case l.Kind == record.LineFormat && e.begun:
		return nil // one is enough, however many reads it takes
	case l.Kind == record.LineRecord:
		e.next = l.Record.Seq + 1
	}
	e.begun = true
	e.buf = l.Append(e.buf)
	if len(e.buf) < exportChunk {
		return nil
	}
	return e.flush()
}

func (e *exporter) flush() error {
	if len(e.buf) == 0 {
		return nil
	}
	e.open()
	_, err := e.out.Write(e.buf)
	e.buf = e.buf[:0]
	if err != nil {
		return errGone
	}
	return nil
}

// ended tells whether streams are over.
func (s *Server) ended() bool {
	select {
	case <-s.gate.closed:
		return true
	default:
	}
	phase, _ := s.d.Lifecycle.Load()
	return ends(phase)
}

// wait returns when more was committed, or says why no more is. Events that were missed do not matter: they only say that there
// is something to read. While nothing is committed it sends an empty line as often as the event streams ping: by it the client
// knows that the node lives, and the node that the client does.
func (e *exporter) wait() error {
	ping := time.NewTicker(e.c.live.sse.Ping.D())
	defer ping.Stop()
	for {
		phase, changed := e.s.d.Lifecycle.Load()
		if ends(phase) || e.sub.Closed() {
			return errDraining
		}
		select {
		case <-e.c.context().Done():
			return errGone
		case <-e.s.gate.closed:
			return errDraining
		case <-changed:
		case <-ping.C:
			e.buf = append(e.buf, '\n')
			if err := e.flush(); err != nil {
				return err
			}
		case <-e.sub.Ready():
			if ev, lost, ok := e.sub.Next(); ok && (lost > 0 || ev.Last >= e.next) {
				return nil
			}
		}
	}
}
