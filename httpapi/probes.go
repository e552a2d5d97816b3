package httpapi

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"ronbox/appliance/obs"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

// ownRoutes returns the routes of the probes and of the document.
func (s *Server) ownRoutes() []Route {
	own := func(r *Route) { r.Method, r.Service, r.Deadline = http.MethodGet, serviceNode, DefaultDeadline }
	return Routes(own,
		Route{Pattern: "/healthz", Class: ClassBypass, Handle: getHealthz,
			ID: "getHealth", Summary: "Liveness of the process", Answers: AnswersRaw("text/plain", "ok")},
		Route{
			Pattern: "/readyz",
			Class:   ClassBypass,
			Handle:  s.getReadyz,
			Query: []openapi.Param{
				{Name: "service", Doc: "readiness of this service only, from all its keys"},
				{Name: "plane", Doc: "readiness for reads or for writes only", Enum: []string{"read", "write"}},
			},
			ID:      "getReadiness",
			Summary: "Readiness of the node, and its failing keys",
			Answers: slices.Concat(
				Answers(http.StatusOK, wire.Ready{}),
				Answers(http.StatusServiceUnavailable, wire.Ready{}),
			),
		},
		Route{Pattern: "/version", Class: ClassBypass, Handle: s.getVersionInfo,
			ID: "getVersion", Summary: "Version of the node", Answers: Answers(http.StatusOK, wire.VersionInfo{})},
		Route{
			Pattern: "/metrics",
			Class:   ClassBypass,
			Handle:  s.getMetrics(),
			Scope:   ScopeMetrics, // for peers outside metrics_allow
			ID:      "getMetrics",
			Summary: "Metrics for Prometheus",
			Answers: slices.Concat(AnswersRaw("text/plain", "text exposition format"),
				AnswersRaw("application/openmetrics-text", "on request, where configured"),
				AnswersRaw("application/vnd.google.protobuf", "on request, where native histograms are")),
			Problems: []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable},
		},
		Route{Pattern: patternDocument, Class: ClassStatic, Handle: s.getDocument,
			ID: "getDocument", Summary: "This document", Headers: IfNoneMatch(), Answers: Tagged(nil)},
		Route{Pattern: "/schema/:name", Class: ClassStatic, Handle: s.getSchema, Problems: []int{http.StatusNotFound},
			ID: "getSchema", Summary: "The JSON Schema of one body", Headers: IfNoneMatch(), Answers: Tagged(nil)},
	)
}

// getHealthz serves GET /healthz.
func getHealthz(c *Request) error {
	c.Set("Content-Type", typeText)
	c.Set("Cache-Control", CacheNone)
	_, _ = c.Write([]byte("ok\n"))
	return nil
}

// getReadyz serves GET /readyz?service=&plane=.
func (s *Server) getReadyz(c *Request) error {
	service, plane := c.Query().Get("service"), c.Query().Get("plane")
	if c.Query().Has("plane") && plane != "read" && plane != "write" {
		return &QueryError{"plane", "must be read or write"}
	}
	r := s.Report(service, plane)
	if service != "" && len(r.Services) == 0 {
		return &QueryError{"service", "is not a service of this node"}
	}
	s.applyGate(c, &r, plane)
	body := readyBody(r)
	body.Incarnation = s.d.Info().Incarnation
	for _, sv := range s.services {
		if sv.Ready != nil && !s.standsBy() {
			sv.Ready(&body)
		}
	}
	if r.Ready {
		return c.Respond(http.StatusOK, body)
	}
	c.Header().Set("Retry-After", strconv.Itoa(r.RetryAfter))
	return c.Respond(http.StatusServiceUnavailable, body)
}

// standsBy reports whether this node forwards requests.
func (s *Server) standsBy() bool { return s.d.Cluster != nil && !s.d.Cluster.Leads() }

// Report returns the readiness of the node. A node that does not lead is as ready as the cluster:
// it forwards every request, if a leader is known.
func (s *Server) Report(service, plane string) obs.Report {
	r := s.d.Board.Report(service, plane)
	if !s.standsBy() {
		return r
	}
	id, _, known := s.d.Cluster.Leader()
	removed := s.d.Cluster.Removed()
	known = known && id != s.d.Cluster.Self() && !removed
	out := obs.Report{
		Ready: known, WriteReady: known, ReadReady: known,
		Missing: []string{}, Causes: map[string]string{}, Services: map[string]obs.ServiceReport{},
	}
	for name := range r.Services {
		out.Services[name] = obs.ServiceReport{Ready: known, WriteReady: known, Missing: []string{}}
	}
	if !known {
		missing, cause := "cluster.leader", "this node knows no node that leads"
		if removed {
			missing = "cluster.membership"
			cause = "removed from the cluster; see `ronbox cluster rejoin --wipe`, or erase it"
		}
		out.Missing, out.RetryAfter = append(out.Missing, missing), nodeRetry
		out.Causes[missing] = cause
	}
	return out
}

// applyGate makes a report agree with the gate, whatever the probes say.
func (s *Server) applyGate(c *Request, r *obs.Report, plane string) {
	g := s.gate.load()
	if g == GateOpen {
		return
	}
	r.WriteReady = false
	r.Missing = append(r.Missing, serviceNode+"."+g.String())
	r.ReadReady = r.ReadReady && g == GateDraining
	r.Ready = r.Ready && plane == "read" && g == GateDraining
	if g != GateStarting {
		r.RetryAfter = s.retryAfter(c.settings, s.services[serviceNode], WaitDrain, nil)
	} else if r.RetryAfter == 0 {
		r.RetryAfter = nodeRetry
	}
}

func readyBody(r obs.Report) wire.Ready {
	out := wire.Ready{
		Ready:      r.Ready,
		WriteReady: r.WriteReady,
		Degraded:   r.Degraded,
		Missing:    slices.Sorted(slices.Values(r.Missing)),
		RetryAfter: r.RetryAfter,
		Services:   make(map[string]wire.ServiceReady, len(r.Services)),
	}
	for name, sr := range maps.All(r.Services) {
		out.Services[name] = wire.ServiceReady(sr)
	}
	return out
}

// getVersionInfo serves GET /version.
func (s *Server) getVersionInfo(c *Request) error {
	return c.Respond(http.StatusOK, s.d.Info())
}

// maxScrapes bounds concurrent scrapes, because each walks all series.
const maxScrapes = 4

var errScrape = errors.New("the series could not be collected in time")

// getMetrics serves GET /metrics to peers that may scrape. Others take no slot.
func (s *Server) getMetrics() Handler {
	all := s.d.Metrics.Handler()
	scrape := s.scrapes.around(func(c *Request) error {
		w := &failureFilter{Request: c}
		if all.ServeHTTP(w, c.r); w.failed != 0 {
			return errScrape
		}
		return nil
	})
	return func(c *Request) error {
		if err := s.mayScrape(c); err != nil {
			return err
		}
		return scrape(c)
	}
}
