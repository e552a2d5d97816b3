package openapi

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// generator makes schemas of Go types. Named structs become definitions, referred to by prefix and name.
type generator struct {
	prefix string
	types  map[string]reflect.Type
	defs   map[string]*schema
	uses   map[string][]string // of a definition, in words
	errs   []error
}

func newGenerator(prefix string) *generator {
	return &generator{prefix: prefix, types: map[string]reflect.Type{}, defs: map[string]*schema{}, uses: map[string][]string{}}
}

// used is of, and notes what the body is for.
func (g *generator) used(v any, what string) *schema {
	s := g.of(v)
	if name := strings.TrimPrefix(s.Ref, g.prefix); name != "" && !slices.Contains(g.uses[name], what) {
		g.uses[name] = append(g.uses[name], what)
	}
	return s
}

// describe tells of a definition what it is for.
func (g *generator) describe(name string, s *schema) {
	s.Description = strings.Join(g.uses[name], "; ")
}

// err is all that was wrong with the types so far.
func (g *generator) err() error { return errors.Join(g.errs...) }

func (g *generator) fail(format string, args ...any) {
	g.errs = append(g.errs, fmt.Errorf(format, args...))
}

// of is the schema of what a value of v's type marshals to.
func (g *generator) of(v any) *schema {
	if v == nil {
		return &schema{}
	}
	return g.typ(reflect.TypeOf(v))
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
		return &schema{Type: "array", Items: g.typ(t.Elem())}
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

// special is the schema of a type that does not marshal as its kind does, nil of any other.
func special(t reflect.Type) *schema {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return &schema{Type: "string", Format: "date-time"}
	case t == reflect.TypeFor[jsontext.Value]():
		return &schema{}
	case t == reflect.TypeFor[[]byte]():
		return &schema{Type: "string", Encoding: "base64"}
	case t.Kind() != reflect.Pointer && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return &schema{Type: "string"}
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

// ref defines t once and refers to it.
func (g *generator) ref(t reflect.Type) *schema {
	if t.Name() == "" { // struct{} and its like stand where they are used
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

// object is the schema of struct t in full.
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
		s.Properties = append(s.Properties, property{name, g.member(t, f)})
		if !strings.Contains(options, "omitzero") && !strings.Contains(options, "omitempty") {
			s.Required = append(s.Required, name)
		}
	}
	return s
}

// member is the schema of one field with what its tags add. The tags of a list or a map are about what it holds.
func (g *generator) member(t reflect.Type, f reflect.StructField) *schema {
	s := g.typ(f.Type)
	s.Description = f.Tag.Get("doc")
	held := s
	if s.Items != nil {
		held = s.Items
	} else if values, ok := s.Additional.(*schema); ok {
		held = values
	}
	if err := held.spell(f.Tag); err != nil {
		g.fail("%s.%s: %w", t, f.Name, err)
	}
	return s
}
