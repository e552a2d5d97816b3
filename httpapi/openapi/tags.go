package openapi

import (
	"fmt"
	"reflect"
	"strings"
)

// spell adds what the tags enum and format say.
func (s *schema) spell(tag reflect.StructTag) error {
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
