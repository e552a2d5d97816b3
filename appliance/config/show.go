package config

import (
	_ "embed" // the commented file
	"encoding"
	"errors"
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

// Where a value comes from.
const (
	FromDefault = "default"
	FromFile    = "file"
	FromEnv     = "env"
	FromFlag    = "flag"
)

// What the change of a key takes.
const (
	ReloadInPlace = "r"
	ReloadRebind  = "b"
	ReloadRestart = "x"
)

// origin is the kind of place a value comes from, and the place.
type origin struct {
	source, where string
	inside        func(member string) string // the place of a member, if the value is a table of a file
}

// Entry is one key with its current value, for people. Values are spelt as TOML has them, secrets as "***".
type Entry struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Source  string `json:"source"`          // FromDefault, FromFile, FromEnv or FromFlag
	Where   string `json:"where,omitempty"` // "ronbox.toml:41:3", "RONBOX_STORE__MAX_BYTES", "flag --data-dir", "" for a default
	Reload  string `json:"reload"`          // ReloadInPlace, ReloadRebind or ReloadRestart
}

// Explain is Load that also lists every key, in the order of the sections, with its value, its default and its source.
func Explain(o LoadOptions) (*Config, []Entry, error) {
	l := load(o)
	if err := errors.Join(l.faults...); err != nil {
		return nil, nil, err
	}
	defaults := leaves(Default())
	out := make([]Entry, len(l.all))
	for i, one := range l.all {
		from, set := l.from[one.key]
		if !set {
			from.source = FromDefault
		}
		out[i] = Entry{
			Key: one.key, Value: one.shown(), Default: defaults[i].shown(), Source: from.source, Where: from.where, Reload: one.reload,
		}
	}
	return l.cfg, out, nil
}

// Change is one key that differs between two configurations.
type Change struct {
	Key    string `json:"key"`
	From   string `json:"from"`
	To     string `json:"to"`
	Reload string `json:"reload"`
}

// Diff lists what is different in next, in the order of the sections. Secrets are shown as "***", also where they differ.
func Diff(old, next *Config) []Change {
	var out []Change
	was := leaves(old)
	for i, is := range leaves(next) {
		if !reflect.DeepEqual(was[i].value.Interface(), is.value.Interface()) && was[i].text() != is.text() {
			out = append(out, Change{Key: is.key, From: was[i].shown(), To: is.shown(), Reload: is.reload})
		}
	}
	return out
}

// hidden is what a secret is shown as.
const hidden = `"***"`

// secret reports whether the leaf's type or name makes it one.
func (l leaf) secret() bool {
	_, typed := l.value.Interface().(obs.Secret)
	return typed || obs.Hides(l.key) && !slices.Contains(public[:], l.key)
}

// public are keys whose names say otherwise.
var public = [...]string{"rewarder.policy_trust_keys", "index.cache.warmup_keys"}

// shown is the leaf's value as TOML spells it, unless it is a secret.
func (l leaf) shown() string {
	if l.secret() {
		return hidden
	}
	return l.text()
}

// redact removes from a fault the value of a secret, and the words of its refusal, which may repeat it.
func (l leaf) redact(f *Fault) *Fault {
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

// tomlFloat keeps the point that makes a number no whole one.
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

// commented lists every key with its default behind a "#", under its section. Text lines begin with "# ".
//
//go:embed ronbox.toml
var commented string

// Template is the file that init writes: every key, commented, with its default; keys of set get their value and stand
// uncommented. The value of a list is its one element.
func Template(set map[string]string) string {
	section := ""
	lines := strings.SplitAfter(commented, "\n")
	for i, line := range lines {
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimRight(name, "]\n")
			continue
		}
		key, unset, isKey := strings.Cut(strings.TrimPrefix(line, "#"), " = ")
		if value, ok := set[section+"."+key]; ok && isKey && strings.HasPrefix(line, "#") {
			text := tomlString(value)
			if strings.HasPrefix(unset, "[") {
				text = "[" + text + "]"
			}
			lines[i] = key + " = " + text + "\n"
		}
	}
	return strings.Join(lines, "")
}
