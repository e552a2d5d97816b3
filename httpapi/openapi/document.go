package openapi

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

const (
	specVersion      = "3.1.1"
	componentsPrefix = "#/components/schemas/"
	defsPrefix       = "#/$defs/"
)

// Document is a built document with its schemas.
type Document struct {
	json    []byte
	schemas map[string][]byte
}

// Build returns the document of routes. It returns an error if their descriptions are incomplete or
// contradictory.
func Build(info Info, routes []Route) (*Document, error) {
	b := &builder{
		info:     info,
		gen:      newGenerator(componentsPrefix, info.Enums),
		refusals: map[int]bool{},
		ids:      map[string]string{},
		taken:    map[string]bool{},
	}
	paths, alike := map[string]map[string]*operation{}, map[string]string{}
	for _, r := range routes {
		template := b.template(r)
		shape := braced.ReplaceAllString(template, "{}")
		if other := alike[shape]; other != "" && other != template {
			b.gen.fail("%s and %s are one path with two names of a parameter", other, template)
		}
		alike[shape] = template
		if paths[template] == nil {
			paths[template] = map[string]*operation{}
		}
		b.enter(paths[template], r)
	}
	comps := b.components()
	b.gen.define(b.gen.types)
	for _, s := range b.inputs {
		b.gen.reach(s, b.taken)
	}
	b.opened(b.gen.defs)
	if err := b.gen.err(); err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	for _, m := range b.whole {
		m.Example = b.gen.example(nil, m.Schema, 0)
	}
	doc := document{
		OpenAPI: specVersion, Dialect: dialect,
		Info:    infoObject{info.Title, info.Version, info.Description, license(info.License)},
		Servers: []server{tcpServer()}, Tags: tags(routes), Paths: paths, Components: comps,
	}
	raw, err := marshal(doc)
	if err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	schemas, err := b.standalone()
	if err != nil {
		return nil, fmt.Errorf("OpenAPI document: %w", err)
	}
	return &Document{json: raw, schemas: schemas}, nil
}

// opened allows further members in the definitions of answers. Definitions that requests use stay
// closed, because the node refuses unknown members.
func (b *builder) opened(defs map[string]*schema) {
	for name, s := range defs {
		if !b.taken[name] {
			s.open()
		}
	}
}

// standalone returns a self-contained document for each definition.
func (b *builder) standalone() (map[string][]byte, error) {
	out := map[string][]byte{}
	for name, t := range b.gen.types {
		own := newGenerator(defsPrefix, b.info.Enums)
		root := own.object(t)
		own.define(b.gen.types)
		b.gen.describe(name, root)
		b.opened(own.defs)
		b.opened(map[string]*schema{name: root})
		root.Dialect, root.ID, root.Defs = dialect, "urn:ronbox:schema:"+name, own.defs
		raw, err := marshal(root)
		if err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		out[name] = raw
	}
	return out, nil
}

// JSON returns the document. The caller must not modify it.
func (d *Document) JSON() []byte { return d.json }

// Schema returns the self-contained JSON Schema of the body called name. The caller must not modify
// it.
func (d *Document) Schema(name string) ([]byte, bool) {
	raw, known := d.schemas[name]
	return raw, known
}

// SchemaNames lists the names that Schema accepts, sorted.
func (d *Document) SchemaNames() []string { return slices.Sorted(maps.Keys(d.schemas)) }

// document is the root object.
type document struct {
	OpenAPI    string                           `json:"openapi"`
	Info       infoObject                       `json:"info"`
	Dialect    string                           `json:"jsonSchemaDialect"`
	Servers    []server                         `json:"servers"`
	Tags       []tag                            `json:"tags"`
	Paths      map[string]map[string]*operation `json:"paths"`
	Components components                       `json:"components"`
}

type infoObject struct {
	Title       string         `json:"title"`
	Version     string         `json:"version"`
	Description string         `json:"description,omitzero"`
	License     *licenseObject `json:"license,omitzero"`
}

type licenseObject struct {
	Name       string `json:"name"`
	Identifier string `json:"identifier"`
}

func license(id string) *licenseObject {
	if id == "" {
		return nil
	}
	return &licenseObject{id, id}
}

type server struct {
	URL         string `json:"url"`
	Description string `json:"description"`
}

func tcpServer() server { return server{"/", "the node that serves this document"} }

func socketServer() server {
	return server{"http://ronbox.socket", "the node's admin socket; the host name is a placeholder for its path"}
}

type tag struct {
	Name string `json:"name"`
}

// tags returns the services in order of their first route.
func tags(routes []Route) []tag {
	var out []tag
	for _, r := range routes {
		if t := (tag{r.Service}); !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// braced matches a parameter of a path.
var braced = regexp.MustCompile(`\{[^}]*\}`)

// template converts a pattern to an OpenAPI path: /registry/{v}/payload. The parameters must be
// those of the route.
func (b *builder) template(r Route) string {
	segments := strings.Split(r.Pattern, "/")
	told := map[string]bool{}
	for _, p := range r.Path {
		told[p.Name] = true
	}
	for i, s := range segments {
		if s == "" || s[0] != ':' && s[0] != '*' {
			continue
		}
		if !told[s[1:]] {
			b.gen.fail("%s %s: parameter %s is not described", r.Method, r.Pattern, s[1:])
		}
		delete(told, s[1:])
		segments[i] = "{" + s[1:] + "}"
	}
	for name := range told {
		b.gen.fail("%s %s: describes %s, which the pattern does not have", r.Method, r.Pattern, name)
	}
	return strings.Join(segments, "/")
}
