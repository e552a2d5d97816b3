package httpapi

import (
	"net/http"
	"strconv"
	"time"
)

// Deprecation says that a route will go.
type Deprecation struct {
	Since  time.Time // announced then
	Sunset time.Time // gone from then on; zero: not yet decided
	Link   string    // of what to read, or to use instead
}

// String is a line of GET /version.
func (d *Deprecation) String() string {
	s := "deprecated since " + d.Since.UTC().Format(time.DateOnly)
	if !d.Sunset.IsZero() {
		s += ", gone after " + d.Sunset.UTC().Format(time.DateOnly)
	}
	if d.Link != "" {
		s += ", see " + d.Link
	}
	return s
}

// announce puts the deprecation into every answer of the route (RFC 9745, RFC 8594).
func announce(_ *Server, b *bound, next handler) handler {
	d := b.route.Deprecated
	return func(c *call) error {
		h := c.Header()
		h.Set("Deprecation", "@"+strconv.FormatInt(d.Since.Unix(), 10))
		if !d.Sunset.IsZero() {
			h.Set("Sunset", d.Sunset.UTC().Format(http.TimeFormat))
		}
		if d.Link != "" {
			h.Add("Link", "<"+d.Link+`>; rel="deprecation"`)
		}
		return next(c)
	}
}

// deprecations lists what will go, for GET /version.
func deprecations(routes []Route) []string {
	out := []string{}
	for _, r := range routes {
		if r.Deprecated != nil {
			out = append(out, r.Method+" "+r.Pattern+": "+r.Deprecated.String())
		}
	}
	return out
}
