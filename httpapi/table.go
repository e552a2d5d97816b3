package httpapi

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

// Names of path parameters; each has one kind of value.
const (
	paramVersion  = "v"
	paramEpoch    = "epoch"
	paramProposal = "id"
	paramKid      = "kid"
	paramProfile  = "profile"
	paramSchema   = "name"
	paramTx       = "txid"
)

const (
	patternDrain    = "/admin/v1/drain"
	patternDocument = "/openapi.json"

	bypassDeadline   = 5 * time.Second
	defaultDeadline  = 5 * time.Second
	proposeDeadline  = 2 * time.Second
	commitDeadline   = 4 * time.Second
	reloadDeadline   = 30 * time.Second // it tries again after 1, 2, 4 and 8 s
	snapshotDeadline = time.Hour

	endpointRead = "read"
)

// table is every route of the node. A service that is off has none.
func (s *Server) table() []Route {
	out := s.bypassRoutes()
	out = append(out, s.staticRoutes()...)
	if s.d.Registry != nil {
		out = append(out, s.registryReads()...)
		out = append(out, s.registryWrites()...)
	}
	if s.d.Wallet != nil {
		out = append(out, s.walletReads()...)
		out = append(out, s.walletWrites()...)
		out = append(out, s.ledgerRoutes()...)
	}
	return append(out, s.adminRoutes()...)
}

// answers with JSON, and with nothing or with what is no JSON of ours.
func answers(status int, body any) openapi.Answer {
	return openapi.Answer{Status: status, Type: typeJSON, Body: body}
}

func answersRaw(kind, doc string) openapi.Answer {
	return openapi.Answer{Status: http.StatusOK, Type: kind, Doc: doc}
}

func answersNothing(doc string) openapi.Answer {
	return openapi.Answer{Status: http.StatusNoContent, Doc: doc}
}

// tagged are the answers of a read that has a validator.
func tagged(body any) []openapi.Answer {
	tag := openapi.Param{Name: "ETag", Doc: "of these bytes", Required: true}
	if body == nil {
		body = jsontext.Value(nil)
	}
	full := answers(http.StatusOK, body)
	full.Headers = []openapi.Param{tag}
	return []openapi.Answer{full, {Status: http.StatusNotModified, Doc: "these are the bytes of If-None-Match", Headers: full.Headers}}
}

func ifNoneMatch() []openapi.Param {
	return []openapi.Param{{Name: "If-None-Match", Doc: "tags of what the caller has"}}
}

func (s *Server) bypassRoutes() []Route {
	row := func(pattern, summary string, h handler, answer ...openapi.Answer) Route {
		return Route{
			Method: http.MethodGet, Pattern: pattern, Service: serviceNode, Class: ClassBypass, Deadline: bypassDeadline,
			Summary: summary, Answers: answer, handle: h,
		}
	}
	ready := row("/readyz", "Whether the node can take requests, and what it lacks", s.getReadyz,
		answers(http.StatusOK, wire.Ready{}), answers(http.StatusServiceUnavailable, wire.Ready{}))
	ready.Query = []openapi.Param{
		{Name: "service", Doc: "judge this service alone, over all its keys"},
		{Name: "plane", Doc: "judge reads or writes alone", Enum: []string{"read", "write"}},
	}
	metrics := row("/metrics", "All series, for Prometheus", s.getMetrics(), answersRaw("text/plain", "text exposition format"))
	metrics.Answers = append(metrics.Answers, answersRaw("application/openmetrics-text", "on request, where configured"),
		answersRaw("application/vnd.google.protobuf", "on request, where native histograms are"))
	metrics.Scope = scopeMetrics // of who is not let in by metrics_allow
	metrics.Problems = []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusServiceUnavailable}
	return []Route{
		row("/healthz", "Whether the process answers", getHealthz, answersRaw("text/plain", "ok")),
		ready,
		row("/version", "What runs here", s.getVersionInfo, answers(http.StatusOK, wire.VersionInfo{})),
		metrics,
	}
}

func (s *Server) staticRoutes() []Route {
	row := func(pattern, summary string, h handler) Route {
		return Route{
			Method: http.MethodGet, Pattern: pattern, Service: serviceNode, Class: ClassStatic, Deadline: bypassDeadline,
			Summary: summary, Headers: ifNoneMatch(), Answers: tagged(nil), handle: h,
		}
	}
	schema := row("/schema/:name", "The JSON Schema of one body", s.getSchema)
	schema.Problems = []int{http.StatusNotFound}
	return []Route{row(patternDocument, "This document", s.getDocument), schema}
}
