package node

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/period"
	"ronbox/httpapi"
	nodeapi "ronbox/httpapi/wire/node"
)

// Closings closes periods of the ledger.
type Closings interface {
	LedgerClosing() nodeapi.LedgerClosing
	// PlanLedgerClose returns what CloseLedger would close.
	PlanLedgerClose(ctx context.Context, r nodeapi.LedgerCloseRequest) (nodeapi.LedgerClosing, error)
	// CloseLedger begins a closing, which goes on after the call.
	CloseLedger(
		ctx context.Context, by engines.Actor, corrID string, r nodeapi.LedgerCloseRequest,
	) (nodeapi.LedgerClosing, error)
	CancelLedgerClose(ctx context.Context, by engines.Actor, corrID string) (nodeapi.LedgerClosing, error)
}

func (h handlers) closingRoutes() []httpapi.Route {
	return httpapi.Routes(
		complete,
		httpapi.Route{Method: http.MethodGet, Pattern: "ledger/close", Handle: h.getClosing,
			ID: "getLedgerClosing", Summary: "State of the closing of a period of the ledger",
			Answers: ok(nodeapi.LedgerClosing{})},
		httpapi.Route{Method: http.MethodPost, Pattern: "ledger/close", Handle: h.postClose,
			ID: "closeLedger", Summary: "Close a period of the ledger",
			Doc: "Begins to close all records that are older than a time: they leave the database into a file of the " +
				"node. Repeated references of closed payments are refused for ever. A repetition while a closing is " +
				"under way is refused.",
			In: nodeapi.LedgerCloseRequest{}, Answers: ok(nodeapi.LedgerClosing{})},
		httpapi.Route{Method: http.MethodPost, Pattern: "ledger/close/cancel", Handle: h.postCancelClose,
			ID: "endLedgerClosing", Summary: "Cancel the closing of a period",
			Doc: "Ends the closing under way and changes nothing else. A period that is closed stays closed: then " +
				"the call has no effect.",
			Answers: ok(nodeapi.LedgerClosing{})},
	)
}

// getClosing serves GET /admin/v1/ledger/close.
func (h handlers) getClosing(c *httpapi.Request) error {
	return c.Respond(http.StatusOK, h.node.LedgerClosing())
}

// postClose serves POST /admin/v1/ledger/close.
func (h handlers) postClose(c *httpapi.Request) error {
	var in nodeapi.LedgerCloseRequest
	if err := c.Decode(&in); err != nil {
		return err
	}
	if in.OutDir != "" && !filepath.IsAbs(in.OutDir) {
		return httpapi.BadBody("out_dir", "must be an absolute path on the node")
	}
	if _, field, fault := in.Time(time.Time{}); field != "" {
		return httpapi.BadBody(field, fault)
	}
	var out nodeapi.LedgerClosing
	var err error
	if in.DryRun {
		out, err = h.node.PlanLedgerClose(c.Context(), in)
	} else {
		out, err = h.node.CloseLedger(c.Context(), c.Actor(), c.CorrID(), in)
	}
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, out)
}

// postCancelClose serves POST /admin/v1/ledger/close/cancel.
func (h handlers) postCancelClose(c *httpapi.Request) error {
	out, err := h.node.CancelLedgerClose(c.Context(), c.Actor(), c.CorrID())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, out)
}

// closingErrors maps the errors of closings.
func closingErrors() []httpapi.Map {
	return []httpapi.Map{
		{Is: httpapi.Is(period.ErrRunning), Reason: nodeapi.ReasonCloseRunning},
		{Is: httpapi.Is(ledger.ErrSafeMode), Reason: httpapi.ReasonConflict, Text: httpapi.Said},
		{Is: httpapi.IsA[*period.AgeError], Reason: nodeapi.ReasonCloseTooRecent, Cause: nodeapi.CauseAge,
			Text: httpapi.Said,
			Details: httpapi.Detail(func(e *period.AgeError) httpapi.Details {
				return recent(nodeapi.CauseAge, e.Before)
			})},
		{Is: httpapi.IsA[*period.RecentError], Reason: nodeapi.ReasonCloseTooRecent, Cause: nodeapi.CauseKeys,
			Text: httpapi.Said,
			Details: httpapi.Detail(func(e *period.RecentError) httpapi.Details {
				return recent(nodeapi.CauseKeys, e.Before)
			})},
		{Is: httpapi.Is(period.ErrNothing), Reason: nodeapi.ReasonCloseTooRecent, Text: httpapi.Said,
			Details: httpapi.Told(httpapi.Details{"reason": nodeapi.CauseAge})},
		{Is: httpapi.Is(period.ErrClock), Reason: nodeapi.ReasonCloseTooRecent, Cause: nodeapi.CauseClock,
			Text: httpapi.Said, Details: httpapi.Told(httpapi.Details{"reason": nodeapi.CauseClock})},
		{Is: httpapi.IsA[*period.DiffersError], Reason: nodeapi.ReasonCloseFileDiffers, Text: httpapi.Said,
			Details: httpapi.Detail(func(e *period.DiffersError) httpapi.Details {
				return httpapi.Details{"path": e.Path}
			})},
		{Is: httpapi.IsA[*period.NoRoomError], Reason: nodeapi.ReasonCloseNoRoom, Text: httpapi.Said,
			Details: httpapi.Detail(func(e *period.NoRoomError) httpapi.Details {
				return httpapi.Details{"need_bytes": e.Need, "have_bytes": e.Have, "path": e.Path}
			})},
	}
}

// recent returns the details of a refusal because of what is too recent, with the latest time that
// counts.
func recent(reason string, before int64) httpapi.Details {
	return httpapi.Details{"reason": reason, "before": time.Unix(0, before).UTC().Format(time.RFC3339Nano)}
}
