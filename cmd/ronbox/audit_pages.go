package main

import (
	"context"
	"io"
	"time"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

const auditPage = 1000 // rows of one answer of the node

// auditLines reads a whole audit chain as NDJSON, page by page, from the row next on.
type auditLines struct {
	fetch func(from uint64) (lines []byte, next uint64, err error) // next is 0 behind the last page
	next  uint64
	left  []byte
	done  bool
	count uint64                  // rows handed out
	seen  func(done, total int64) // progress, after each page; a total of 0 is not known
}

// Read implements io.Reader.
func (l *auditLines) Read(p []byte) (int, error) {
	for len(l.left) == 0 {
		if l.done {
			return 0, io.EOF
		}
		lines, next, err := l.fetch(l.next)
		if err != nil {
			return 0, err
		}
		l.left, l.next, l.done = lines, next, next == 0
	}
	n := copy(p, l.left)
	l.left = l.left[n:]
	return n, nil
}

// chainHead is where a chain stands by what its keeper says of it.
type chainHead struct {
	last uint64
	head string
}

// nodeAudit reads the rows of a running node; at tells, after the last page, where its chain stood.
func nodeAudit(ctx context.Context, c *client.Client, first uint64, at *chainHead) *auditLines {
	l := &auditLines{next: first}
	l.fetch = func(from uint64) ([]byte, uint64, error) {
		page, err := c.Audit(ctx, from, auditPage)
		if err != nil {
			return nil, 0, err
		}
		*at = chainHead{page.Last, page.Head}
		l.count += uint64(len(page.Rows))
		l.seen(int64(l.count), int64(page.Last-min(page.Last, max(first, page.First)-1)))
		lines, err := ndjson(page.Rows)
		return lines, page.Next, err
	}
	return l
}

// fileAudit reads the rows of a database file that nobody writes.
func fileAudit(ctx context.Context, r *store.ReadOnly, from uint64) *auditLines {
	l := &auditLines{next: from}
	l.fetch = func(from uint64) (lines []byte, next uint64, err error) {
		err = r.View(ctx, func(rd store.Reader) error {
			rows, err := store.Audit(rd, from, auditPage)
			if err != nil {
				return err
			}
			if len(rows) == auditPage {
				next = rows[len(rows)-1].Seq + 1
			}
			l.count += uint64(len(rows))
			l.seen(int64(l.count), 0)
			lines, err = ndjson(wireRows(rows))
			return err
		})
		return lines, next, err
	}
	return l
}

// wireRows gives rows the form in which the node sends them: an export is the same bytes wherever it was made.
func wireRows(rows []store.AuditRow) []wire.AuditRow {
	out := make([]wire.AuditRow, len(rows))
	for i, r := range rows {
		out[i] = wire.AuditRow{
			Seq: r.Seq, At: time.Unix(0, r.At).UTC(), Event: r.Event.Event, Decision: r.Decision, Reason: r.Reason, CorrID: r.CorrID,
			CapID: r.CapID, Principal: r.Principal, UID: r.UID, Detail: r.Detail, Prev: r.Prev.String(), Hash: r.Hash.String(),
		}
	}
	return out
}

func ndjson[R any](rows []R) ([]byte, error) {
	var out []byte
	for _, r := range rows {
		line, err := encode(r)
		if err != nil {
			return nil, err
		}
		out = append(out, line...)
	}
	return out, nil
}
