package node

import (
	"context"
	"net/http"
	"time"

	"ronbox/httpapi"
)

// Inspection examines the node for the operator.
type Inspection interface {
	// Series reads only memory.
	Series() SeriesList
	// Doctor reads files of the machine, which takes milliseconds.
	Doctor(ctx context.Context) (Checkup, error)
}

// SeriesList is the body of GET /admin/v1/series: the last hour. All series have the same number of
// values, up to 720.
type SeriesList struct {
	StepS  int      `json:"step_s" doc:"seconds between two values"`
	End    int64    `json:"end" doc:"Unix seconds of the newest value; 0: there are no values yet"`
	Series []Series `json:"series"`
}

// Series is one series of SeriesList.
type Series struct {
	Name   string     `json:"name"`
	Unit   string     `json:"unit" enum:"1|1/s|ms|bytes"`
	Values []*float64 `json:"values" doc:"oldest first; null: unknown"`
}

// Checkup is the body of GET /admin/v1/doctor.
type Checkup struct {
	CheckedAt time.Time     `json:"checked_at"`
	Findings  []NodeFinding `json:"findings"`
}

// NodeFinding is the result of one check of the machine or the node.
type NodeFinding struct {
	Check   string `json:"check"`
	State   string `json:"state" enum:"ok|warn|fail" doc:"fail: the node cannot keep its guarantees"`
	Message string `json:"message"`
	Next    string `json:"next,omitzero" doc:"what to do; empty if the state is ok"`
}

func (h handlers) inspectionRoutes() []httpapi.Route {
	return httpapi.Routes(
		complete,
		httpapi.Route{
			Method:  get,
			Pattern: "series",
			Handle:  h.getSeries,
			Summary: "Series of the last hour",
			Answers: ok(SeriesList{}),
		},
		httpapi.Route{
			Method:  get,
			Pattern: "doctor",
			Handle:  h.getDoctor,
			Summary: "Checks of the machine and the running node",
			Answers: ok(Checkup{}),
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

// Series returns the node's series of the last hour.
func (c Client) Series(ctx context.Context) (SeriesList, error) {
	return adminGet[SeriesList](ctx, c.Client, "series")
}

// Doctor returns the findings of the node about itself and its machine.
func (c Client) Doctor(ctx context.Context) (Checkup, error) {
	return adminGet[Checkup](ctx, c.Client, "doctor")
}
