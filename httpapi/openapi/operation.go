package openapi

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// builder is the state of one Build.
type builder struct {
	info     Info
	gen      *generator
	refusals map[int]bool      // statuses of refusals in use
	ids      map[string]string // operation id to its route
	inputs   []*schema         // of request bodies
	taken    map[string]bool   // definitions that request bodies use
	whole    []*mediaType      // bodies that get an example
}

type operation struct {
	Tags       []string              `json:"tags"`
	Summary    string                `json:"summary,omitzero"`
	Doc        string                `json:"description,omitzero"`
	ID         string                `json:"operationId"`
	Servers    []server              `json:"servers,omitempty"`
	Security   []map[string][]string `json:"security"`
	Parameters []parameter           `json:"parameters,omitempty"`
	Body       *requestBody          `json:"requestBody,omitzero"`
	Responses  map[string]*response  `json:"responses"`
}

// parameter is a parameter of a request, or a reference to one in components.
type parameter struct {
	Ref      string  `json:"$ref,omitzero"`
	Name     string  `json:"name,omitzero"`
	In       string  `json:"in,omitzero"`
	Doc      string  `json:"description,omitzero"`
	Required bool    `json:"required,omitzero"`
	Schema   *schema `json:"schema,omitzero"`
}

type requestBody struct {
	Required bool                  `json:"required"`
	Content  map[string]*mediaType `json:"content"`
}

// mediaType describes a body. OpenAPI 3.1 cannot describe one item of a sequence, so two extensions
// do.
type mediaType struct {
	Schema *schema            `json:"schema,omitzero"`
	Item   *schema            `json:"x-item-schema,omitzero"` // one line
	Events map[string]*schema `json:"x-events,omitempty"`     // event name to its data

	Example jsontext.Value `json:"example,omitzero"`
}

// enter adds r to the operations of its path.
func (b *builder) enter(path map[string]*operation, r Route) {
	key := strings.ToLower(r.Method)
	if path[key] != nil {
		b.gen.fail("%s %s: is in the table twice", r.Method, r.Pattern)
	}
	op := &operation{
		Tags:       []string{r.Service},
		Summary:    r.Summary,
		Doc:        b.doc(r),
		ID:         b.id(r),
		Security:   security(r),
		Parameters: b.parameters(r),
		Body:       b.body(r),
		Responses:  b.responses(r),
	}
	if r.Socket {
		op.Servers = []server{socketServer()}
	}
	if len(op.Responses) == 0 {
		b.gen.fail("%s %s: no answer is described", r.Method, r.Pattern)
	}
	path[key] = op
}

func (b *builder) doc(r Route) string {
	switch {
	case r.Socket:
		return strings.TrimSpace(r.Doc + " Over the admin socket only.")
	case r.Admin:
		return strings.TrimSpace(r.Doc + " Over the admin socket; on TCP only with server.admin_on_tcp.")
	}
	return r.Doc
}

// id returns the operation id of r, which programs that are generated from the document use as the
// name of a function.
func (b *builder) id(r Route) string {
	at := r.Method + " " + r.Pattern
	if !isCamelCase(r.ID) {
		b.gen.fail("%s: operation id %q is not words in camel case", at, r.ID)
	}
	if other, taken := b.ids[r.ID]; taken {
		b.gen.fail("%s and %s have one operation id", other, at)
	}
	b.ids[r.ID] = at
	return r.ID
}

// isCamelCase reports whether s is ASCII words, such as getBalance, without digits and acronyms.
func isCamelCase(s string) bool {
	upper := true // the last letter was a capital, or there is none
	for _, c := range s {
		capital := 'A' <= c && c <= 'Z'
		if capital && upper || !capital && (c < 'a' || 'z' < c) {
			return false
		}
		upper = capital
	}
	return !upper
}

// Names of the security schemes.
const (
	schemeToken  = "macaroon"
	schemeSocket = "socket"
)

// security lists the alternative ways to be authorized. An empty list means a public route.
func security(r Route) []map[string][]string {
	if r.Scope == "" && len(r.Scopes) == 0 && !r.Socket && !r.Admin {
		return []map[string][]string{}
	}
	var ways []map[string][]string
	if r.Optional {
		ways = append(ways, map[string][]string{})
	}
	for _, scopes := range alternatives(r) {
		if !r.Socket {
			ways = append(ways, map[string][]string{schemeToken: scopes})
		}
		ways = append(ways, map[string][]string{schemeSocket: scopes})
	}
	return ways
}

// alternatives lists alternative sets of required scopes.
func alternatives(r Route) [][]string {
	switch {
	case len(r.Scopes) > 0:
		var out [][]string
		for _, scope := range r.Scopes {
			out = append(out, []string{scope})
		}
		return out
	case r.Scope != "":
		return [][]string{{r.Scope}}
	}
	return [][]string{nil}
}

func (b *builder) parameters(r Route) []parameter {
	var out []parameter
	add := func(in string, ps []Param) {
		for _, p := range ps {
			out = append(
				out,
				parameter{
					Name:     p.Name,
					In:       in,
					Doc:      p.Doc,
					Required: p.Required || in == "path",
					Schema:   b.gen.param(p),
				},
			)
		}
	}
	add("path", r.Path)
	add("query", r.Query)
	add("header", r.Headers)
	return append(out, parameter{Ref: "#/components/parameters/" + corrHeader})
}

func (b *builder) body(r Route) *requestBody {
	switch {
	case r.InMedia != "":
		return &requestBody{Required: true, Content: map[string]*mediaType{r.InMedia: b.streamed(r)}}
	case r.In == nil:
		return nil
	}
	body := &mediaType{Schema: b.gen.used(r.In, "body of "+r.Method+" "+r.Pattern)}
	b.inputs, b.whole = append(b.inputs, body.Schema), append(b.whole, body)
	content := map[string]*mediaType{"application/json": body}
	for _, t := range r.InTypes {
		content[t] = body
	}
	return &requestBody{Required: !r.InOptional, Content: content}
}

// streamed returns the content of a body other than JSON.
func (b *builder) streamed(r Route) *mediaType {
	if r.InMedia != LinesType || r.In == nil {
		return &mediaType{}
	}
	line := b.gen.used(r.In, "line of the body of "+r.Method+" "+r.Pattern)
	b.inputs = append(b.inputs, line)
	return &mediaType{Schema: &schema{Type: "string"}, Item: line}
}

// media returns the content of one answer.
func (b *builder) media(r Route, a Answer) *mediaType {
	to := " to " + r.Method + " " + r.Pattern
	switch {
	case a.Type == EventsType:
		events := map[string]*schema{}
		for _, e := range a.Events {
			events[e.Name] = b.gen.used(e.Body, "event "+e.Name+" of "+r.Method+" "+r.Pattern)
			if e.Doc != "" {
				events[e.Name].Description = e.Doc
			}
		}
		return &mediaType{Schema: &schema{Type: "string"}, Events: events}
	case a.Type == LinesType:
		return &mediaType{Schema: &schema{Type: "string"}, Item: b.gen.used(a.Body, "line of the answer"+to)}
	case a.Body == nil:
		return &mediaType{}
	}
	body := &mediaType{Schema: b.gen.used(a.Body, "answer"+to)}
	body.Schema.open()
	b.whole = append(b.whole, body)
	return body
}
