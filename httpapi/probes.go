package httpapi

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"ronbox/appliance/obs"
	"ronbox/httpapi/refusal"
	"ronbox/httpapi/wire"
)

const (
	patternReady = "/readyz"
	roleLeader   = "leader" // of the query
)

// Parameters of /readyz.
var (
	readyService = Text("service", "readiness of this service only, from all its keys")
	readyPlane   = Enum("plane", "", "readiness for reads or for writes only", "read", "write")
	readyRole    = Enum("role", "", "not ready unless this node leads the cluster, or is alone", roleLeader)
)

// ownRoutes returns the routes of the probes and of the document.
func (s *Server) ownRoutes() []Route {
	own := func(r *Route) { r.Method, r.Service, r.Deadline = http.MethodGet, serviceNode, DefaultDeadline }
	return Routes(own,
		Route{Pattern: "/healthz", Class: ClassBypass, Handle: getHealthz,
			ID: "getHealth", Summary: "Liveness of the process", Answers: AnswersRaw("text/plain", "ok")},
		Route{
			Pattern: patternReady,
			Class:   ClassBypass,
			Handle:  s.getReadyz,
			Query:   Params(readyService, readyPlane, readyRole),
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

// getReadyz serves GET /readyz?service=&plane=&role=. Another node asks what this one knows itself.
func (s *Server) getReadyz(c *Request) error {
	service, err := readyService.Of(c)
	plane, errPlane := readyPlane.Of(c)
	role, errRole := readyRole.Of(c)
	if err := cmp.Or(err, errPlane, errRole); err != nil {
		return err
	}
	follows := role == roleLeader && s.standsBy()
	r := s.report(service, plane, c.peer.Relay == nil && !follows)
	if follows {
		r = unready(r, keyFollower, "this node does not lead")
	}
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

// applyGate makes a report agree with the gate, whatever the probes say. A node that is about to
// stop still serves what others forward to it.
func (s *Server) applyGate(c *Request, r *obs.Report, plane string) {
	g := s.gate.load()
	if g == GateOpen || g == GatePredrain && c.peer.Relay != nil {
		return
	}
	reads := g == GatePredrain || g == GateDraining
	r.WriteReady = false
	r.Missing = append(r.Missing, serviceNode+"."+g.String())
	r.ReadReady = r.ReadReady && reads
	r.Ready = r.Ready && plane == "read" && reads
	if g != GateStarting {
		r.RetryAfter = s.retryAfter(c.settings, s.services[serviceNode], refusal.WaitDrain, nil)
	} else if r.RetryAfter == 0 {
		r.RetryAfter = nodeRetry
	}
}

func readyBody(r obs.Report) wire.Ready {
	out := wire.Ready{
		Ready:      r.Ready,
		WriteReady: r.WriteReady,
		ReadReady:  r.ReadReady,
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
