package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/refusal"
	"ronbox/httpapi/wire"
)

const patternDocument = "/openapi.json"

// schemaParam returns the path parameter with the name of a body.
func schemaParam() PathParam {
	return PathParam{
		Param: openapi.Param{
			Name:    "name",
			Doc:     "name of a schema in the components of this document",
			Pattern: NamePattern,
		},
		Check: IsName,
	}
}

// document is the OpenAPI document of the route table. It is built for the first request for it,
// since it takes most of the time of New.
type document struct {
	*openapi.Document
	tag string // entity tag of the document
}

func (s *Server) newDocument(routes []Route) (*document, error) {
	rows := make([]openapi.Route, 0, len(routes))
	for i := range routes {
		if !routes[i].Page {
			rows = append(rows, s.describe(&routes[i]))
		}
	}
	d, err := openapi.Build(openapi.Info{
		Title:   "ronbox",
		Version: s.d.Version,
		License: "Apache-2.0",
		Problem: wire.Problem{},
		Enums:   s.words(),
		Description: "A node of the RustyOnions network. Refusals have the type application/problem+json. " +
			"Every answer carries X-Corr-ID. A path that answers GET also answers HEAD.",
	}, rows)
	if err != nil {
		return nil, err
	}
	return &document{Document: d, tag: TagOf(d.JSON())}, nil
}

// words returns the reasons of all refusals.
func (s *Server) words() map[string][]string {
	reasons := map[string]bool{}
	for _, r := range s.Refusals() {
		reasons[r.Reason] = true
	}
	return map[string][]string{"Problem.reason": slices.Sorted(maps.Keys(reasons))}
}

// TagOf returns a strong entity tag of raw.
func TagOf(raw []byte) string { return `"` + b3.Sum(raw).String() + `"` }

// describeWork returns the text about what a route changes, and its bounds.
func describeWork(r *Route) string {
	var text []string
	if r.Doc != "" {
		text = append(text, r.Doc)
	}
	if !r.Writes() {
		text = append(text, "It changes nothing.")
	}
	if r.Shared != nil {
		text = append(text, "Pages of any origin may read the answer, unless the configuration forbids it.")
	}
	if r.MaxBody > 0 {
		text = append(text, fmt.Sprintf("The body has at most %d bytes.", r.MaxBody))
	} else if readsBody(r) {
		text = append(text, "The body has at most server.max_body_bytes.")
	}
	switch {
	case r.Class == ClassStream:
		text = append(text, "The answer stays open until the caller leaves or the node stops.")
	case r.Deadline > 0 && !r.Reloads:
		text = append(text, fmt.Sprintf("The work has at most %d s.", int(r.Deadline.Seconds())))
	}
	return strings.Join(text, " ")
}

// describe returns the description of a route for the document.
func (s *Server) describe(r *Route) openapi.Route {
	sv := s.services[r.Service]
	out := openapi.Route{
		Method: r.Method, Pattern: r.Pattern, Service: r.Service, Scope: cmp.Or(r.Scope, r.More), Scopes: r.AnyOf,
		ID: r.ID, Summary: r.Summary, Doc: describeWork(r),
		Socket: r.Socket, Admin: r.Admin, Optional: r.Class == ClassBypass || r.Scope == "" && r.More != "",
		Path: sv.pathParams(r.Pattern), Query: r.Query, Headers: slices.Concat(r.Headers, requestParams(r)),
		In: r.In, InOptional: r.Body == OptionJSON, Answers: r.Answers, Problems: sv.problems(r),
	}
	switch r.Body {
	case EitherBody, SizedEither:
		out.InTypes = []string{TypeCBOR}
	case StreamBody:
		out.InMedia = r.Media
	case NoBody, JSONBody, SizedJSON, OptionJSON:
	}
	if sv.RateHeader && countsCaller(r) {
		out.Answers = slices.Clone(r.Answers)
		for i := range out.Answers {
			out.Answers[i].Headers = slices.Concat([]openapi.Param{rateParam()}, out.Answers[i].Headers)
		}
	}
	if r.Copy == CopyOutage {
		out.Answers = slices.Clone(out.Answers)
		for i := range out.Answers {
			out.Answers[i].Headers = slices.Concat(out.Answers[i].Headers, []openapi.Param{ageParam()})
		}
	}
	return out
}

func rateParam() openapi.Param {
	return openapi.Param{
		Name:    rateHeader,
		Doc:     "limit: burst of requests; remaining: requests left; reset: seconds until remaining is limit",
		Pattern: `^limit=\d+, remaining=\d+, reset=\d+$`,
	}
}

// requestParams returns the request headers that the stages of a route read.
func requestParams(r *Route) []openapi.Param {
	var out []openapi.Param
	if guarded(r) && r.Class != ClassStream {
		out = append(out,
			openapi.Param{Name: timeoutHeader, Doc: "seconds that the caller waits, fractions allowed"},
			openapi.Param{Name: deadlineHeader, Doc: "RFC 3339 time until which the caller waits"})
	}
	if readsBody(r) {
		out = append(
			out,
			openapi.Param{
				Name: "Content-Encoding",
				Doc:  "compression of the body, one layer",
				Enum: []string{"gzip", "zstd"},
			},
		)
	}
	return out
}

// pathParams returns the parameters of a pattern.
func (s *service) pathParams(pattern string) []openapi.Param {
	var out []openapi.Param
	for part := range strings.SplitSeq(pattern, "/") {
		if part == "" || part[0] != ':' && part[0] != '*' {
			continue
		}
		if p, known := s.param(part[1:]); known {
			p.Required = true
			out = append(out, p.Param)
		}
	}
	return out
}

// problems lists all statuses of refusals that a route may answer: those of the listeners, of its
// stages, and its own.
func (s *service) problems(r *Route) []int {
	out := []int{http.StatusBadRequest, http.StatusTooManyRequests, http.StatusInternalServerError}
	out = append(out, // by the listeners
		http.StatusRequestTimeout, http.StatusRequestURITooLong, http.StatusExpectationFailed,
		http.StatusRequestHeaderFieldsTooLarge, http.StatusNotImplemented)
	if guarded(r) {
		out = append(out, http.StatusServiceUnavailable,
			s.spell(refusal.Row{Status: http.StatusGatewayTimeout}).Status)
	}
	if protected(r) {
		out = append(out, http.StatusUnauthorized, http.StatusForbidden)
	}
	if r.Admin || strings.ContainsAny(r.Pattern, ":*") {
		out = append(out, http.StatusNotFound)
	}
	if takesBody(r) {
		out = append(out, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType)
	}
	if r.Body.sized() {
		out = append(out, http.StatusLengthRequired)
	}
	out = append(out, r.Problems...)
	slices.Sort(out)
	return slices.Compact(out)
}

// getDocument serves GET /openapi.json.
func (s *Server) getDocument(c *Request) error {
	doc, err := s.doc()
	if err != nil {
		return err
	}
	return c.SendTagged(CacheAsk, doc.tag, doc.JSON())
}

var errNoSchema = errors.New("no such schema; " + patternDocument + " lists them")

// getSchema serves GET /schema/:name.
func (s *Server) getSchema(c *Request) error {
	doc, err := s.doc()
	if err != nil {
		return err
	}
	raw, known := doc.Schema(c.Param("name"))
	if !known {
		return errNoSchema
	}
	return c.SendTagged(CacheAsk, TagOf(raw), raw)
}

// frontProblem returns a problem for a refusal by the listeners.
func (s *Server) frontProblem(status int, reason, detail string) (http.Header, []byte) {
	id := newCorrID(s.now())
	p := &wire.Problem{
		Type: problemType(serviceNode, reason), Title: http.StatusText(status), Status: status, Detail: detail,
		Instance: instance(id), Reason: reason, Service: serviceNode, CorrID: id,
	}
	switch status {
	case http.StatusRequestTimeout:
		p.Retryable = true
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		p.Retryable, p.RetryAfter = true, s.retryAfter(s.current.Load(), s.services[serviceNode], refusal.WaitBusy, nil)
	}
	body, _ := encode(p) // plain strings and numbers: cannot fail
	h := http.Header{corrHeader: one(id)}
	for _, f := range hardHeaders("") {
		h[f.name] = f.value
	}
	problemHeaders(h, p, len(body))
	return h, body
}
