package openapi

import (
	"net/http"
	"strconv"
	"strings"
)

const (
	responsesPrefix = "#/components/responses/"
	corrHeader      = "X-Corr-ID"
	leaderHeader    = "Ronbox-Leader"
)

// response is an answer, or a reference to one in components.
type response struct {
	Ref     string                `json:"$ref,omitzero"`
	Doc     string                `json:"description,omitzero"`
	Headers map[string]header     `json:"headers,omitempty"`
	Content map[string]*mediaType `json:"content,omitempty"`
}

type header struct {
	Ref      string  `json:"$ref,omitzero"`
	Doc      string  `json:"description,omitzero"`
	Required bool    `json:"required,omitzero"`
	Schema   *schema `json:"schema,omitzero"`
}

// responses returns all possible answers of r.
func (b *builder) responses(r Route) map[string]*response {
	out := map[string]*response{}
	for _, a := range r.Answers {
		b.answer(out, r, a)
	}
	for _, status := range r.Problems {
		b.refusal(out, status)
	}
	return out
}

// answer merges a into the answers with its status.
func (b *builder) answer(out map[string]*response, r Route, a Answer) {
	key := strconv.Itoa(a.Status)
	resp := out[key]
	if resp == nil {
		resp = &response{Headers: b.headers(nil)}
		out[key] = resp
	}
	resp.Doc = joinDoc(resp.Doc, a.Doc, a.Status)
	for name, h := range b.headers(a.Headers) {
		resp.Headers[name] = h
	}
	if a.Type == "" {
		return
	}
	if resp.Content == nil {
		resp.Content = map[string]*mediaType{}
	}
	resp.Content[a.Type] = b.media(r, a)
}

// refusal adds the problem with a status, or merges it into an answer with that status.
func (b *builder) refusal(out map[string]*response, status int) {
	if status < http.StatusBadRequest || http.StatusText(status) == "" {
		b.gen.fail("status %d is not that of a refusal", status)
		return
	}
	b.refusals[status] = true
	key := strconv.Itoa(status)
	if out[key] == nil {
		out[key] = &response{Ref: responsesPrefix + refusalName(key)}
		return
	}
	own := b.problem(status)
	for name, h := range own.Headers {
		out[key].Headers[name] = h
	}
	out[key].Doc = joinDoc(out[key].Doc, own.Doc, status)
	if out[key].Content == nil {
		out[key].Content = map[string]*mediaType{}
	}
	out[key].Content[ProblemType] = own.Content[ProblemType]
}

// refusalName returns the name of a refusal in components.
func refusalName(key string) string { return "Problem" + key }

// problem returns the refusal with status.
func (b *builder) problem(status int) response {
	return response{
		Doc: http.StatusText(status), Headers: b.headers(refusalHeaders(status)),
		Content: map[string]*mediaType{ProblemType: {Schema: b.gen.used(b.info.Problem, "every refusal")}},
	}
}

// refusalHeaders returns the headers of a refusal.
func refusalHeaders(status int) []Param {
	switch status {
	case http.StatusUnauthorized:
		return []Param{{Name: "WWW-Authenticate", Doc: "Bearer and why", Required: true}}
	case http.StatusMethodNotAllowed:
		return []Param{{Name: "Allow", Doc: "the methods of the path", Required: true}}
	case http.StatusUnsupportedMediaType:
		return []Param{{Name: "Accept-Encoding", Doc: "the supported encodings of a body"}}
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusInsufficientStorage:
		return []Param{
			{Name: "Retry-After", Doc: "seconds until it is worth another try", Sample: uint32(0), Required: true},
		}
	}
	return nil
}

// headers returns the headers of every answer, and those in ps.
func (b *builder) headers(ps []Param) map[string]header {
	out := map[string]header{}
	for _, name := range []string{corrHeader, leaderHeader} {
		out[name] = header{Ref: "#/components/headers/" + name}
	}
	for _, p := range ps {
		out[p.Name] = header{Doc: p.Doc, Required: p.Required, Schema: b.gen.param(p)}
	}
	return out
}

// joinDoc joins the descriptions of one status.
func joinDoc(have, more string, status int) string {
	switch {
	case more == "" && have == "":
		return http.StatusText(status)
	case have == "" || more == "":
		return have + more
	case strings.Contains(have, more):
		return have
	}
	return have + "; " + more
}

// components are the parts that operations refer to.
type components struct {
	Schemas    map[string]*schema        `json:"schemas,omitempty"`
	Responses  map[string]*response      `json:"responses,omitempty"`
	Parameters map[string]parameter      `json:"parameters"`
	Headers    map[string]header         `json:"headers"`
	Security   map[string]securityScheme `json:"securitySchemes"`
}

type securityScheme struct {
	Type   string `json:"type"`
	Scheme string `json:"scheme"`
	Format string `json:"bearerFormat,omitzero"`
	Doc    string `json:"description"`
}

func (b *builder) components() components {
	responses := map[string]*response{}
	for status := range b.refusals {
		p := b.problem(status)
		responses[refusalName(strconv.Itoa(status))] = &p
	}
	for name, s := range b.gen.defs {
		b.gen.describe(name, s)
	}
	return components{
		Schemas: b.gen.defs, Responses: responses,
		Parameters: map[string]parameter{corrHeader: {
			Name:   corrHeader,
			In:     "header",
			Doc:    "an id for the request, a ULID or a UUID; any other is replaced",
			Schema: &schema{Type: "string"},
		}},
		Headers: map[string]header{corrHeader: {
			Doc: "id of the request, which logs and problems contain; an id sent by the client is kept " +
				"if it is a ULID or UUID",
			Required: true,
			Schema:   &schema{Type: "string"},
		}, leaderHeader: {
			Doc: "URL of the node that leads the cluster, if another node has forwarded the request to it or " +
				"refuses it as not_leader, and knows the URL",
			Schema: &schema{Type: "string"},
		}},
		Security: map[string]securityScheme{
			schemeToken: {Type: "http", Scheme: "bearer", Format: "macaroon",
				Doc: "a macaroon with the scope named here, or node.admin"},
			schemeSocket: {Type: "http", Scheme: "peercred",
				Doc: "the Unix user of the connection to the admin socket; no header is sent"},
		},
	}
}
