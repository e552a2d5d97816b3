package config

import (
	"encoding"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"ronbox/appliance/obs"
)

// hidden is what a secret is shown as.
const hidden = `"***"`

// secret says whether the leaf's type or name makes it one.
func (l leaf) secret() bool {
	_, typed := l.value.Interface().(obs.Secret)
	return typed || obs.Hides(l.key)
}

// shown is the leaf's value as TOML spells it, unless it is a secret.
func (l leaf) shown() string {
	if l.secret() {
		return hidden
	}
	return l.text()
}

// conceal takes out of a fault what a secret was set to, and the words of whoever refused it, which may repeat it.
func (l leaf) conceal(f *Fault) *Fault {
	if l.secret() {
		f.Value, f.Reason = hidden, "is not valid"
	}
	return f
}

// text is the leaf's value as TOML spells it.
func (l leaf) text() string { return literal(l.value) }

// literal spells a value as TOML does, on one line.
func literal(v reflect.Value) string {
	if t, ok := v.Interface().(encoding.TextMarshaler); ok {
		b, err := t.MarshalText()
		if err != nil {
			return quote(fmt.Sprint(v.Interface()))
		}
		return tomlString(string(b))
	}
	switch v.Kind() {
	case reflect.String:
		return tomlString(v.String())
	case reflect.Float32, reflect.Float64:
		return tomlFloat(v.Float())
	case reflect.Slice:
		parts := make([]string, v.Len())
		for i := range parts {
			parts[i] = literal(v.Index(i))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case reflect.Map:
		return tomlTable(v)
	}
	return fmt.Sprint(v.Interface())
}

func tomlTable(v reflect.Value) string {
	members := map[string]string{}
	for it := v.MapRange(); it.Next(); {
		members[it.Key().String()] = literal(it.Value())
	}
	if len(members) == 0 {
		return "{}"
	}
	parts := make([]string, 0, len(members))
	for _, k := range slices.Sorted(maps.Keys(members)) {
		parts = append(parts, tomlString(k)+" = "+members[k])
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// show spells a decoded value for a message, as it was given.
func show(x any) string {
	switch v := x.(type) {
	case string:
		return quote(v)
	case float64:
		return tomlFloat(v)
	case []any:
		parts := make([]string, len(v))
		for i, one := range v {
			parts[i] = show(one)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		parts := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, part(k)+" = "+show(v[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(x)
}

// tomlFloat keeps the point that tells a number from a whole one.
func tomlFloat(f float64) string {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"))
	}
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// tomlString quotes s; what may not stand in a basic string, or is not to be seen, is escaped.
func tomlString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r > 0xffff && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\U%08X`, r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
