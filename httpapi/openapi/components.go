package openapi

import "strconv"

// components are what many operations refer to.
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
		bare := response{Doc: p.Doc, Headers: p.Headers}
		responses[refusalName(strconv.Itoa(status))], responses[bareName(strconv.Itoa(status))] = &p, &bare
	}
	for name, s := range b.gen.defs {
		b.gen.describe(name, s)
	}
	return components{
		Schemas: b.gen.defs, Responses: responses,
		Parameters: map[string]parameter{corrHeader: {
			Name: corrHeader, In: "header", Doc: "an id for the request, a ULID or a UUID; any other is replaced", Schema: &schema{Type: "string"},
		}},
		Headers: map[string]header{corrHeader: {
			Doc: "the request's id, its own if it was a ULID or UUID; logs and problems name it", Required: true, Schema: &schema{Type: "string"},
		}},
		Security: map[string]securityScheme{
			schemeToken: {Type: "http", Scheme: "bearer", Format: "macaroon",
				Doc: "a macaroon whose scope caveat has the scope named here, or node.admin"},
			schemeSocket: {Type: "http", Scheme: "peercred",
				Doc: "the Unix user who connected to the admin socket; no header is sent"},
		},
	}
}
