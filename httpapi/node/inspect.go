package node

import (
	"context"
	"net/http"

	"ronbox/httpapi"
)

// Inspection examines the node for the operator.
type Inspection interface {
	// Series reads only memory.
	Series() SeriesList
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
	)
}

// getSeries serves GET /admin/v1/series.
func (h handlers) getSeries(c *httpapi.Request) error {
	return c.Respond(http.StatusOK, h.node.Series())
}

// Series returns the node's series of the last hour.
func (c Client) Series(ctx context.Context) (SeriesList, error) {
	return adminGet[SeriesList](ctx, c.Client, "series")
}
