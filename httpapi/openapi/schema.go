package openapi

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/wire"
)

// dialect is the JSON Schema dialect of OpenAPI 3.1.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// schema is a JSON Schema. The zero value permits any value.
type schema struct {
	Dialect     string             `json:"$schema,omitzero"`
	ID          string             `json:"$id,omitzero"`
	Ref         string             `json:"$ref,omitzero"`
	Title       string             `json:"title,omitzero"`
	Description string             `json:"description,omitzero"`
	Type        string             `json:"type,omitzero"`
	Format      string             `json:"format,omitzero"`
	Encoding    string             `json:"contentEncoding,omitzero"`
	Pattern     string             `json:"pattern,omitzero"`
	Enum        []string           `json:"enum,omitempty"`
	Default     any                `json:"default,omitzero"`
	Examples    []any              `json:"examples,omitempty"`
	Minimum     *uint64            `json:"minimum,omitzero"`
	Maximum     *uint64            `json:"maximum,omitzero"`
	AnyOf       []*schema          `json:"anyOf,omitempty"`
	Items       *schema            `json:"items,omitzero"`
	Properties  properties         `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Additional  any                `json:"additionalProperties,omitzero"` // false or *schema
	Defs        map[string]*schema `json:"$defs,omitempty"`
}

// properties are the members of an object in order of declaration.
type properties []property

type property struct {
	name   string
	schema *schema
	shown  bool // included in examples although optional
}

// MarshalJSONTo writes an object.
func (ps properties) MarshalJSONTo(e *jsontext.Encoder) error {
	if err := e.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, p := range ps {
		if err := e.WriteToken(jsontext.String(p.name)); err != nil {
			return err
		}
		if err := json.MarshalEncode(e, p.schema); err != nil {
			return err
		}
	}
	return e.WriteToken(jsontext.EndObject)
}

// marshal writes v with maps sorted by key.
func marshal(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true)) }

// generator creates schemas of Go types. Named structs become definitions, which are referred to by
// prefix and name.
type generator struct {
	prefix string
	types  map[string]reflect.Type
	defs   map[string]*schema
	uses   map[string][]string // uses of each definition, for its description
	enums  map[string][]string // values of members such as "Problem.code"; see Info
	named  map[string]bool     // types named in tags that are not defined yet
	errs   []error
}

func newGenerator(prefix string, enums map[string][]string) *generator {
	return &generator{
		prefix: prefix,
		types:  map[string]reflect.Type{},
		defs:   map[string]*schema{},
		uses:   map[string][]string{},
		enums:  enums,
		named:  map[string]bool{},
	}
}

// define defines the types that tags name, which must be among types.
func (g *generator) define(types map[string]reflect.Type) {
	for len(g.named) > 0 {
		for name := range g.named {
			delete(g.named, name)
			if t := types[name]; t != nil {
				g.ref(t)
			} else {
				g.fail("is %q: no body has a type of this name", name)
			}
		}
	}
}

// reach adds the definitions that s refers to.
func (g *generator) reach(s *schema, seen map[string]bool) {
	if s == nil {
		return
	}
	if name := strings.TrimPrefix(s.Ref, g.prefix); name != "" && !seen[name] {
		seen[name] = true
		g.reach(g.defs[name], seen)
	}
	g.reach(s.Items, seen)
	for _, p := range s.Properties {
		g.reach(p.schema, seen)
	}
	if values, ok := s.Additional.(*schema); ok {
		g.reach(values, seen)
	}
}

// open permits further members in s, the schema of an answer, because clients skip unknown members.
// Referenced definitions are not changed.
func (s *schema) open() {
	if s == nil {
		return
	}
	if s.Additional == false {
		s.Additional = nil
	}
	s.Items.open()
	for _, p := range s.Properties {
		p.schema.open()
	}
	if values, ok := s.Additional.(*schema); ok {
		values.open()
	}
}

// used returns the schema of v and records the use of the body.
func (g *generator) used(v any, what string) *schema {
	s := g.of(v)
	if name := strings.TrimPrefix(s.Ref, g.prefix); name != "" && !slices.Contains(g.uses[name], what) {
		g.uses[name] = append(g.uses[name], what)
	}
	return s
}

// describe adds the uses of a definition to its description.
func (g *generator) describe(name string, s *schema) {
	s.Description = strings.Join(g.uses[name], "; ")
}

// err joins all errors so far.
func (g *generator) err() error { return errors.Join(g.errs...) }

func (g *generator) fail(format string, args ...any) {
	g.errs = append(g.errs, fmt.Errorf(format, args...))
}

// of returns the schema of the JSON form of v's type.
func (g *generator) of(v any) *schema {
	if v == nil {
		return &schema{}
	}
	return g.typ(reflect.TypeOf(v))
}

// Schema returns the JSON Schema of the JSON form of type t. It is for unnamed types.
func Schema(t reflect.Type) map[string]any {
	out := map[string]any{}
	if raw, err := marshal(newGenerator(defsPrefix, nil).typ(t)); err == nil {
		_ = json.Unmarshal(raw, &out) // written above
	}
	return out
}

func (g *generator) typ(t reflect.Type) *schema {
	if s := special(t); s != nil {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return g.typ(t.Elem())
	case reflect.Struct:
		return g.ref(t)
	case reflect.Slice, reflect.Array:
		items := g.typ(t.Elem())
		if t.Elem().Kind() == reflect.Pointer {
			items = &schema{AnyOf: []*schema{items, {Type: "null"}}}
		}
		return &schema{Type: "array", Items: items}
	case reflect.Map:
		return &schema{Type: "object", Additional: g.typ(t.Elem())}
	case reflect.Interface:
		return &schema{}
	}
	if s := scalar(t.Kind()); s != nil {
		return s
	}
	g.fail("%s: a %s has no JSON form", t, t.Kind())
	return &schema{}
}

// special returns the schema of a type with a JSON form of its own, or nil.
func special(t reflect.Type) *schema {
	switch {
	case t == reflect.TypeFor[time.Time](), t == reflect.TypeFor[wire.Instant]():
		return &schema{Type: "string", Format: "date-time"}
	case t == reflect.TypeFor[jsontext.Value]():
		return &schema{}
	case t == reflect.TypeFor[[]byte]():
		return &schema{Type: "string", Encoding: "base64"}
	case t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return &schema{Type: "string"}
	case t.Kind() == reflect.Array && t.Implements(reflect.TypeFor[json.Marshaler]()): // a hash
		return &schema{Type: "string"}
	case t.Kind() == reflect.Struct && t.Implements(reflect.TypeFor[json.Marshaler]()):
		return &schema{}
	}
	return nil
}

func scalar(k reflect.Kind) *schema {
	switch k {
	case reflect.Bool:
		return &schema{Type: "boolean"}
	case reflect.String:
		return &schema{Type: "string"}
	case reflect.Int, reflect.Int64:
		return &schema{Type: "integer", Format: "int64"}
	case reflect.Int8, reflect.Int16, reflect.Int32:
		return &schema{Type: "integer", Format: "int32"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &schema{Type: "integer", Minimum: new(uint64)}
	case reflect.Float32, reflect.Float64:
		return &schema{Type: "number"}
	}
	return nil
}

// ref defines t once and returns a reference.
func (g *generator) ref(t reflect.Type) *schema {
	if t.Name() == "" { // struct{} and other unnamed types are inlined
		return g.object(t)
	}
	switch known := g.types[t.Name()]; known {
	case nil:
		g.types[t.Name()] = t
		g.defs[t.Name()] = g.object(t)
	case t:
	default:
		g.fail("%s and %s share one name", known, t)
	}
	return &schema{Ref: g.prefix + t.Name()}
}

// object returns the full schema of struct t.
func (g *generator) object(t reflect.Type) *schema {
	s := &schema{Title: t.Name(), Type: "object", Additional: false}
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" || f.Anonymous {
			g.fail("%s.%s: a member of a body needs a name of its own", t, f.Name)
			continue
		}
		p := property{name: name, schema: g.member(t, f, name)}
		if !strings.Contains(options, "omitzero") && !strings.Contains(options, "omitempty") {
			s.Required, p.shown = append(s.Required, name), true
		} else if p.shown = f.Tag.Get("example")+f.Tag.Get("is") != ""; p.schema.Minimum != nil &&
			f.Type.Kind() != reflect.Pointer {
			p.schema.Minimum = new(max(*p.schema.Minimum, 1)) // 0 is omitted; of a pointer nil is
		}
		s.Properties = append(s.Properties, p)
	}
	return s
}

// member returns the schema of one field with the additions of its tags. Tags of a list or map
// describe its elements.
func (g *generator) member(t reflect.Type, f reflect.StructField, name string) *schema {
	s := g.typ(f.Type)
	s.Description = f.Tag.Get("doc")
	held := s
	if s.Items != nil {
		held = s.Items
	} else if values, ok := s.Additional.(*schema); ok {
		held = values
	}
	if is := f.Tag.Get("is"); is != "" {
		held.Ref, g.named[is] = g.prefix+is, true
	}
	if values := g.enums[t.Name()+"."+name]; len(values) > 0 {
		held.Enum = values
	}
	if err := held.spell(f.Tag); err != nil {
		g.fail("%s.%s: %w", t, f.Name, err)
	}
	return s
}

// spell applies the tags enum, format, example, min and max.
func (s *schema) spell(tag reflect.StructTag) error {
	if enum := tag.Get("enum"); enum != "" {
		if s.Type != "string" {
			return fmt.Errorf("enum is for text, not for %q", s.Type)
		}
		s.Enum = strings.Split(enum, "|")
	}
	if format := tag.Get("format"); format != "" {
		pattern, example, known := formatOf(format)
		if !known || s.Type != "string" {
			return fmt.Errorf("format %q is not known of %q", format, s.Type)
		}
		s.Pattern, s.Examples = pattern, []any{example}
	}
	if example, given := tag.Lookup("example"); given {
		if s.Examples = []any{example}; s.Type != "string" {
			s.Examples[0] = jsontext.Value(example)
		}
	}
	return cmp.Or(s.bound(tag, "min", &s.Minimum), s.bound(tag, "max", &s.Maximum))
}

// bound parses a bound of an integer from a tag.
func (s *schema) bound(tag reflect.StructTag, name string, to **uint64) error {
	text, given := tag.Lookup(name)
	if !given {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil || s.Type != "integer" {
		return fmt.Errorf("%s %q is not one of %q", name, text, s.Type)
	}
	*to = &n
	return nil
}

// param returns the schema of a parameter.
func (g *generator) param(p Param) *schema {
	s := &schema{Type: "string"}
	if p.Sample != nil {
		s = g.of(p.Sample)
	}
	s.Enum, s.Pattern = p.Enum, p.Pattern
	switch {
	case p.Default == "":
	case s.Type == "string":
		s.Default = p.Default
	default:
		s.Default = jsontext.Value(p.Default)
	}
	if p.Min > 0 {
		s.Minimum = &p.Min
	}
	if p.Max > 0 {
		s.Maximum = &p.Max
	}
	return s
}
