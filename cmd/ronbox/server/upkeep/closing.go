package upkeep

import (
	"context"
	"errors"
	"time"

	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/engines/archive/target"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/tables"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Closing serves the closings of periods of the ledger.
type Closing struct {
	Closer func() *period.Closer
	Now    func() time.Time
	Note   func(context.Context, store.Event) // appends an audit row
}

// State returns the state of the closing under way.
func (c *Closing) State() nodeapi.LedgerClosing {
	s := c.Closer().State()
	return nodeapi.LedgerClosing{
		State: s.State, Period: s.Period, ToSeq: s.ToSeq, Done: s.Done, Total: s.Total, File: s.File, Error: s.Error,
		Reason: reasonOf(s.Err), DueAt: c.Closer().Due(),
	}
}

// reasonOf returns the reason of the problem that a caller would get for an error, or "" for one
// that no caller gets.
func reasonOf(err error) string {
	if _, differs := errors.AsType[*period.DiffersError](err); differs {
		return nodeapi.ReasonCloseFileDiffers
	}
	if _, full := errors.AsType[*period.NoRoomError](err); full {
		return nodeapi.ReasonCloseNoRoom
	}
	if target.Is(err) {
		return nodeapi.ReasonArchiveTarget
	}
	return ""
}

// Plan returns what Close would close.
func (c *Closing) Plan(ctx context.Context, r nodeapi.LedgerCloseRequest) (nodeapi.LedgerClosing, error) {
	p, err := c.Closer().Plan(ctx, c.ask(r))
	return planned(p), err
}

// Close begins a closing, and appends an audit row.
func (c *Closing) Close(
	ctx context.Context, by engines.Actor, corrID string, r nodeapi.LedgerCloseRequest,
) (nodeapi.LedgerClosing, error) {
	a := c.ask(r)
	a.By = by.Principal
	p, err := c.Closer().Close(ctx, a)
	if err != nil {
		return nodeapi.LedgerClosing{}, err
	}
	c.Note(ctx, tokens.AuditEvent("ledger.close", by, corrID, map[string]string{"file": p.File}))
	out := planned(p)
	out.State = tables.Building.String()
	return out, nil
}

// Cancel cancels the closing under way, and appends an audit row.
func (c *Closing) Cancel(ctx context.Context, by engines.Actor, corrID string) (nodeapi.LedgerClosing, error) {
	err := c.Closer().Cancel(ctx)
	switch {
	case errors.Is(err, period.ErrNothing):
	case err != nil:
		return nodeapi.LedgerClosing{}, err
	default:
		c.Note(ctx, tokens.AuditEvent("ledger.close_cancel", by, corrID, nil))
	}
	return c.State(), nil
}

// statePlanned is the state of a closing that has not begun yet.
const statePlanned = "planned"

// ask returns a request that was checked.
func (c *Closing) ask(r nodeapi.LedgerCloseRequest) period.Ask {
	before, _, _ := r.Time(c.Now())
	return period.Ask{Before: before, Dir: r.OutDir, Fast: r.Fast}
}

func planned(p period.Plan) nodeapi.LedgerClosing {
	return nodeapi.LedgerClosing{
		State: statePlanned, Period: p.Period, FromSeq: p.FromSeq, ToSeq: p.ToSeq, ToAt: time.Unix(0, p.ToAt).UTC(),
		Total: p.Records(), File: p.File,
	}
}
