package openapi

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// bound adds what the tags enum, format, min and max say.
func (s *schema) bound(tag reflect.StructTag) error {
	if enum := tag.Get("enum"); enum != "" {
		if s.Type != "string" {
			return fmt.Errorf("enum is for text, not for %q", s.Type)
		}
		s.Enum = strings.Split(enum, "|")
	}
	if format := tag.Get("format"); format != "" {
		pattern, known := formatPattern(format)
		if !known || s.Type != "string" {
			return fmt.Errorf("format %q is not known of %q", format, s.Type)
		}
		s.Pattern = pattern
	}
	for name, to := range map[string]**uint64{"min": &s.Minimum, "max": &s.Maximum} {
		text, has := tag.Lookup(name)
		if !has {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || s.Type != "integer" && s.Type != "number" {
			return fmt.Errorf("%s %q does not bound %q", name, text, s.Type)
		}
		*to = &n
	}
	return nil
}

// param is the schema of a parameter.
func (g *generator) param(p Param) *schema {
	s := &schema{Type: "string"}
	if p.Sample != nil {
		s = g.of(p.Sample)
	}
	s.Enum, s.Pattern = p.Enum, p.Pattern
	if p.Min > 0 {
		s.Minimum = &p.Min
	}
	if p.Max > 0 {
		s.Maximum = &p.Max
	}
	return s
}
