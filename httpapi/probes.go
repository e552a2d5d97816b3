package httpapi

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"ronbox/appliance/obs"
	"ronbox/httpapi/wire"
)

// getHealthz serves GET /healthz: the process answers.
func getHealthz(c *call) error {
	c.set("Content-Type", typeText)
	c.set("Cache-Control", cacheNone)
	_, _ = c.Write([]byte("ok\n"))
	return nil
}

// getReadyz serves GET /readyz?service=&plane=.
func (s *Server) getReadyz(c *call) error {
	service, plane := c.query.Get("service"), c.query.Get("plane")
	if c.query.Has("plane") && plane != "read" && plane != "write" {
		return &QueryError{"plane", "must be read or write"}
	}
	r := s.d.Board.Report(service, plane)
	if service != "" && len(r.Services) == 0 {
		return &QueryError{"service", "is not one of this node"}
	}
	s.applyGate(c, &r, plane)
	body := readyBody(r)
	if s.d.Registry != nil {
		head := s.d.Registry.Head()
		body.Incarnation, body.Version, body.HeadB3 = head.Incarnation, head.Head.Version, head.Head.Hash.String()
	} else {
		body.Incarnation = s.d.Node.Version().Incarnation
	}
	if r.Ready {
		return respond(c, http.StatusOK, body)
	}
	c.Header().Set("Retry-After", strconv.Itoa(r.RetryAfter))
	return respond(c, http.StatusServiceUnavailable, body)
}

// applyGate makes a report say what the gate does, whatever the probes still say.
func (s *Server) applyGate(c *call, r *obs.Report, plane string) {
	g := s.gate.load()
	if g == GateOpen {
		return
	}
	r.WriteReady = false
	r.Missing = append(r.Missing, serviceNode+"."+g.String())
	r.ReadReady = r.ReadReady && g == GateDraining
	r.Ready = r.Ready && plane == "read" && g == GateDraining
	if g != GateStarting {
		r.RetryAfter = s.retryAfter(c.live, serviceNode, waitDrain, nil)
	} else if r.RetryAfter == 0 {
		r.RetryAfter = degradedRetry
	}
}

func readyBody(r obs.Report) wire.Ready {
	out := wire.Ready{
		Ready: r.Ready, WriteReady: r.WriteReady, Degraded: r.Degraded, Missing: slices.Sorted(slices.Values(r.Missing)),
		RetryAfter: r.RetryAfter, Services: make(map[string]wire.ServiceReady, len(r.Services)),
	}
	for name, sr := range maps.All(r.Services) {
		out.Services[name] = wire.ServiceReady(sr)
	}
	return out
}

// getVersionInfo serves GET /version.
func (s *Server) getVersionInfo(c *call) error {
	v := s.d.Node.Version()
	v.Deprecations = append(deprecations(s.routes), v.Deprecations...)
	return respond(c, http.StatusOK, v)
}

// maxScrapes is how many may read all series at one time: each walks every one of them.
const maxScrapes = 4

var errScrape = errors.New("the series could not be collected in time")

// getMetrics serves GET /metrics to who may scrape. Who may not takes no place.
func (s *Server) getMetrics() handler {
	all := s.d.Metrics.Handler()
	scrape := s.scrapes.around(func(c *call) error {
		w := &scrapeWriter{call: c}
		if all.ServeHTTP(w, c.r); w.failed {
			return errScrape
		}
		return nil
	})
	return func(c *call) error {
		if err := s.mayScrape(c); err != nil {
			return err
		}
		return scrape(c)
	}
}

// scrapeWriter holds back what the library says of its own failures, which are told in the one form instead.
type scrapeWriter struct {
	*call
	failed bool
}

// WriteHeader notes a failure, and passes on what is none.
func (w *scrapeWriter) WriteHeader(status int) {
	if w.failed = status >= http.StatusBadRequest; !w.failed {
		w.call.WriteHeader(status)
	}
}

// Write drops the text of a failure.
func (w *scrapeWriter) Write(b []byte) (int, error) {
	if w.failed {
		return len(b), nil
	}
	return w.call.Write(b)
}
