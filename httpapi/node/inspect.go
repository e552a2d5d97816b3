package node

import (
	"context"
	"net/http"

	"ronbox/engines"
	"ronbox/httpapi"
	nodeapi "ronbox/httpapi/wire/node"
)

// Inspection examines the node for the operator.
type Inspection interface {
	// Series reads only memory.
	Series() nodeapi.SeriesList
	// Doctor reads files of the machine, which takes milliseconds.
	Doctor(ctx context.Context) (nodeapi.Checkup, error)
	// Clock reads the holds that may expire, if the wall clock is ahead, else only memory.
	Clock(ctx context.Context) nodeapi.Clock
	// AcceptClock returns clock.ErrForward or clock.ErrBeforeBuild if the wall clock cannot be
	// believed.
	AcceptClock(ctx context.Context, by engines.Actor, corrID string) (nodeapi.ClockAccepted, error)
	Snapshots(ctx context.Context) (nodeapi.SnapshotList, error)
	Sessions() (nodeapi.SessionList, error)
	EndSession(ctx context.Context, by engines.Actor, corrID, id string) error
}

func (h handlers) inspectionRoutes() []httpapi.Route {
	return httpapi.Routes(
		own,
		httpapi.Route{
			Method:  get,
			Pattern: "series",
			Handle:  h.getSeries,
			ID:      "listSeries",
			Summary: "Series of the last hour",
			Answers: ok(nodeapi.SeriesList{}),
		},
		httpapi.Route{
			Method:  get,
			Pattern: "doctor",
			Handle:  h.getDoctor,
			ID:      "checkNode",
			Summary: "Checks of the machine and the running node",
			Answers: ok(nodeapi.Checkup{}),
		},
		httpapi.Route{
			Method:  get,
			Pattern: "clock",
			Handle:  h.getClock,
			ID:      "getClock",
			Summary: "The node's clock and the clock of its machine",
			Answers: ok(nodeapi.Clock{}),
		},
		httpapi.Route{
			Method:  post,
			Pattern: "clock/accept",
			Handle:  h.postClockAccept,
			ID:      "acceptClock",
			Summary: "Believe a clock of the machine that is ahead",
			Doc: "Moves the clock of the node forward to the wall clock and records it in the audit chain. A " +
				"repetition is refused as conflict, because the wall clock is no longer ahead.",
			Answers: ok(nodeapi.ClockAccepted{}),
		},
		httpapi.Route{
			Method:  get,
			Pattern: "snapshots",
			Handle:  h.getSnapshots,
			ID:      "listSnapshots",
			Summary: "Snapshots in the folder of scheduled snapshots",
			Answers: ok(nodeapi.SnapshotList{}),
		},
		httpapi.Route{
			Method:   get,
			Pattern:  "sessions",
			Handle:   h.getSessions,
			ID:       "listSessions",
			Summary:  "Sessions of the console",
			Answers:  ok(nodeapi.SessionList{}),
			Problems: []int{http.StatusConflict},
		},
		httpapi.Route{
			Method:  http.MethodDelete,
			Pattern: "sessions/:" + paramSession,
			Handle:  h.deleteSession,
			ID:      "endSession",
			Summary: "End a session of the console",
			Doc: "Ends a session of the console at once; its cookie is refused from then on. A repetition is " +
				"refused as not_found.",
			Answers:  httpapi.AnswersNothing("the session has ended"),
			Problems: []int{http.StatusNotFound},
		},
	)
}

// getSeries serves GET /admin/v1/series.
func (h handlers) getSeries(c *httpapi.Request) error {
	return c.Respond(http.StatusOK, h.node.Series())
}

// getDoctor serves GET /admin/v1/doctor.
func (h handlers) getDoctor(c *httpapi.Request) error {
	found, err := h.node.Doctor(c.Context())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, found)
}

// getClock serves GET /admin/v1/clock.
func (h handlers) getClock(c *httpapi.Request) error {
	return c.Respond(http.StatusOK, h.node.Clock(c.Context()))
}

// postClockAccept serves POST /admin/v1/clock/accept.
func (h handlers) postClockAccept(c *httpapi.Request) error {
	done, err := h.node.AcceptClock(c.Context(), c.Actor(), c.CorrID())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, done)
}

// getSnapshots serves GET /admin/v1/snapshots.
func (h handlers) getSnapshots(c *httpapi.Request) error {
	list, err := h.node.Snapshots(c.Context())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, list)
}

// getSessions serves GET /admin/v1/sessions.
func (h handlers) getSessions(c *httpapi.Request) error {
	list, err := h.node.Sessions()
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, list)
}

// deleteSession serves DELETE /admin/v1/sessions/:session.
func (h handlers) deleteSession(c *httpapi.Request) error {
	if err := h.node.EndSession(c.Context(), c.Actor(), c.CorrID(), c.Param(paramSession)); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}
