package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire"
)

// Audit reads one page of the node's audit chain, from seq from on; limit 0 is the node's own page size.
func (c *Client) Audit(ctx context.Context, from uint64, limit int) (wire.AuditPage, error) {
	k := call{method: http.MethodGet, path: adminPath + "audit", query: page("from", decimal(from), limit), limit: largeBody}
	return ask[wire.AuditPage](ctx, c, k)
}

// auditPage is how many rows are asked for at a time to fill a gap. A row takes half a MiB at most, six times that if all of it must be
// escaped, and mostly less than 1 KiB.
const auditPage = 100

// errResume ends a connection, not the stream: what could not be read now is asked for again.
var errResume = errors.New("read what the stream left out")

// AuditStream calls each for every new row of the audit chain, in order, and for those after StreamOptions.LastEventID
// when that is given. What the stream leaves out it reads from the chain itself, so that a gap in the numbers means rows
// that the node no longer keeps, and a number lower than the one before a node that was restored. It ends as Stream does.
func (c *Client) AuditStream(ctx context.Context, o StreamOptions, each func(wire.AuditRow) error) error {
	a := &auditFollower{c: c, each: each}
	f := feed{path: adminPath + "audit/stream", numbered: wire.EventAudit, stands: auditStands}
	return c.follow(ctx, f, o, func(e Event) error { return a.event(ctx, e) })
}

func auditStands(hello []byte) (uint64, error) {
	var h wire.AuditHello
	err := json.Unmarshal(hello, &h)
	return h.Last, err
}

// auditFollower is the state of one AuditStream call, used by its caller's goroutine alone.
type auditFollower struct {
	c    *Client
	each func(wire.AuditRow) error
	told uint64 // seq of the last row passed on
}

func (a *auditFollower) event(ctx context.Context, e Event) error {
	switch e.Name {
	case wire.EventAudit:
		var row wire.AuditRow
		if err := json.Unmarshal(e.Data, &row); err != nil {
			return fmt.Errorf("%w: %w", ErrFrame, err)
		}
		if row.Seq <= a.told { // a gap was read past it, and then the connection broke
			return nil
		}
		return a.tell(row)
	case wire.EventLagged:
		var gap wire.AuditLagged
		if err := json.Unmarshal(e.Data, &gap); err != nil {
			return fmt.Errorf("%w: %w", ErrFrame, err)
		}
		if gap.To < gap.From { // the chain ends before what was told: the node was restored
			a.told = gap.To
			return nil
		}
		if a.told < gap.To {
			return a.fill(ctx, max(gap.From, a.told+1), gap.To)
		}
	}
	return nil
}

func (a *auditFollower) tell(row wire.AuditRow) error {
	a.told = row.Seq
	return a.each(row)
}

// fill tells the rows from..to that the node still keeps.
func (a *auditFollower) fill(ctx context.Context, from, to uint64) error {
	for {
		p, err := a.c.Audit(ctx, from, auditPage)
		if err != nil {
			return fmt.Errorf("%w: %w", errResume, err)
		}
		for _, row := range p.Rows {
			if row.Seq < from || row.Seq > to {
				return nil // what comes after is the stream's to tell
			}
			if err := a.tell(row); err != nil || row.Seq == to {
				return err
			}
			from = row.Seq + 1
		}
		if len(p.Rows) == 0 {
			return nil
		}
	}
}
