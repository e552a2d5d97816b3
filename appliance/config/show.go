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

// told is a fault as it may be told: without what a secret was set to, or the words of whoever refused it, which may repeat it.
func (l leaf) told(f *Fault) *Fault {
	if l.secret() {
		f.Value, f.Reason = hidden, "is not valid"
	}
	f.Value, f.Reason = brief(f.Value), brief(f.Reason)
	return f
}

// brief cuts a text that nobody would read to its end.
func brief(s string) string {
	const most = 1024
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
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
	var b strings.Builder
	showTo(&b, x)
	return b.String()
}

func showTo(b *strings.Builder, x any) {
	switch v := x.(type) {
	case string:
		b.WriteString(quote(v))
	case float64:
		b.WriteString(tomlFloat(v))
	case []any:
		for i, one := range v {
			b.WriteString(opening(i, "[", ", "))
			showTo(b, one)
		}
		b.WriteString(opening(len(v), "[", "") + "]")
	case map[string]any:
		for i, k := range slices.Sorted(maps.Keys(v)) {
			b.WriteString(opening(i, "{", ", ") + part(k) + " = ")
			showTo(b, v[k])
		}
		b.WriteString(opening(len(v), "{", "") + "}")
	default:
		fmt.Fprint(b, x)
	}
}

// opening is what stands before the i-th of several.
func opening(i int, first, later string) string {
	if i == 0 {
		return first
	}
	return later
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
