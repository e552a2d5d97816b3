package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
)

// document describes the table to whoever writes a client. The bytes are made once, when the server is.
type document struct {
	*openapi.Document
	tag string // of the document's bytes
}

func newDocument(version string, routes []Route) (*document, error) {
	rows := make([]openapi.Route, len(routes))
	for i := range routes {
		rows[i] = describe(&routes[i])
	}
	d, err := openapi.Build(openapi.Info{
		Title: "ronbox", Version: version, License: "Apache-2.0", Problem: wire.Problem{},
		Description: "A node of the RustyOnions network. Every refusal is one problem+json form; every answer carries X-Corr-ID.",
	}, rows)
	if err != nil {
		return nil, err
	}
	return &document{Document: d, tag: tagOf(d.JSON())}, nil
}

// describe is what the document tells of a row.
func describe(r *Route) openapi.Route {
	out := openapi.Route{
		Method: r.Method, Pattern: r.Pattern, Service: r.Service, Scope: r.Scope, Scopes: r.AnyOf, Summary: r.Summary,
		Socket: r.Socket, Admin: r.Admin, Optional: r.Class == ClassBypass, Deprecated: r.Deprecated != nil,
		Path: pathParams(r.Pattern), Query: r.Query, Headers: slices.Concat(r.Headers, requestParams(r)),
		In: r.In, InOptional: r.Body == OptionJSON, Answers: r.Answers, Problems: problems(r),
	}
	if r.Body == EitherBody {
		out.InTypes = []string{typeCBOR}
	}
	if r.Deprecated != nil {
		out.Answers = slices.Clone(r.Answers)
		for i := range out.Answers {
			out.Answers[i].Headers = slices.Concat(out.Answers[i].Headers, deprecationParams())
		}
	}
	return out
}

func deprecationParams() []openapi.Param {
	return []openapi.Param{
		{Name: "Deprecation", Doc: "since when, RFC 9745"}, {Name: "Sunset", Doc: "until when, RFC 8594"},
		{Name: "Link", Doc: "what to read"},
	}
}

// requestParams are the request headers that the stages of a row read.
func requestParams(r *Route) []openapi.Param {
	var out []openapi.Param
	if guarded(r) && r.Class != ClassStream {
		out = append(out,
			openapi.Param{Name: timeoutHeader, Doc: "seconds that the caller waits, fractions allowed"},
			openapi.Param{Name: deadlineHeader, Doc: "RFC 3339 time until which the caller waits"})
	}
	if takesBody(r) {
		out = append(out, openapi.Param{Name: "Content-Encoding", Doc: "how the body is compressed, once", Enum: []string{"gzip", "zstd"}})
	}
	return out
}

// pathParams are the kinds of values that stand in a pattern.
func pathParams(pattern string) []openapi.Param {
	var out []openapi.Param
	for part := range strings.SplitSeq(pattern, "/") {
		name, ok := strings.CutPrefix(part, ":")
		if !ok {
			continue
		}
		p := openapi.Param{Name: name, Required: true}
		switch name {
		case paramVersion, paramEpoch:
			p.Doc, p.Sample, p.Min, p.Max = "a number from 1", uint64(0), 1, maxVersion
		case paramProposal:
			p.Doc, p.Pattern = "of a proposal", "^p_[0-9A-HJKMNP-TV-Z]{26}$"
		case paramTx:
			p.Doc, p.Pattern = "of a receipt", "^tx_[0-7][0-9A-HJKMNP-TV-Z]{25}$"
		case paramKid:
			p.Doc, p.Pattern = "of a root key", namePattern
		case paramSchema:
			p.Doc, p.Pattern = "of a schema in this document's components", namePattern
		case paramProfile:
			p.Doc, p.Enum = "what to take", profileNames()
		}
		out = append(out, p)
	}
	return out
}

// problems lists every status of refusal that a row can answer: those of the listeners and of its stages, and its own.
func problems(r *Route) []int {
	out := []int{http.StatusBadRequest, http.StatusTooManyRequests, http.StatusInternalServerError}
	out = append(out, // of the listeners
		http.StatusRequestTimeout, http.StatusRequestURITooLong, http.StatusExpectationFailed,
		http.StatusRequestHeaderFieldsTooLarge, http.StatusNotImplemented)
	if guarded(r) {
		out = append(out, http.StatusServiceUnavailable)
	}
	if guarded(r) && r.Service != serviceWallet { // which says 503
		out = append(out, http.StatusGatewayTimeout)
	}
	if protected(r) {
		out = append(out, http.StatusUnauthorized, http.StatusForbidden)
	}
	if r.Admin || strings.Contains(r.Pattern, ":") {
		out = append(out, http.StatusNotFound)
	}
	if takesBody(r) {
		out = append(out, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if r.Body == SizedJSON {
		out = append(out, http.StatusLengthRequired)
	}
	out = append(out, r.Problems...)
	slices.Sort(out)
	return slices.Compact(out)
}

// getDocument serves GET /openapi.json.
func (s *Server) getDocument(c *call) error { return c.sendTagged(cacheAsk, s.doc.tag, s.doc.JSON()) }

var errNoSchema = errors.New("no such schema; " + patternDocument + " lists them")

// getSchema serves GET /schema/:name.
func (s *Server) getSchema(c *call) error {
	raw, known := s.doc.Schema(c.param(paramSchema))
	if !known {
		return errNoSchema
	}
	return c.sendTagged(cacheAsk, tagOf(raw), raw)
}

// frontProblem words what the listeners refuse before there is a call.
func (s *Server) frontProblem(status int, reason, detail string) (http.Header, []byte) {
	id := newCorrID(s.now())
	p := &wire.Problem{
		Type: problemType(serviceNode, reason), Title: http.StatusText(status), Status: status, Detail: detail,
		Instance: instance(id), Code: frontCode(reason), Reason: reason, Service: serviceNode, CorrID: id,
	}
	switch status {
	case http.StatusRequestTimeout:
		p.Retryable = true
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		p.Retryable, p.RetryAfter = true, s.retryAfter(s.live.Load(), serviceNode, waitBusy, nil)
	}
	body, _ := encode(p) // plain strings and numbers only: cannot fail
	h := http.Header{corrHeader: one(id)}
	for _, f := range hardHeaders() {
		h[f.name] = f.value
	}
	problemHeaders(h, p, len(body))
	return h, body
}

func frontCode(reason string) string {
	switch reason {
	case reasonStreams:
		return "Busy"
	case reasonTimeout:
		return "Timeout"
	}
	return "Malformed"
}
