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
	"ronbox/appliance/unit"
)

// Sources of a value.
const (
	FromDefault = "default"
	FromFile    = "file"
	FromEnv     = "env"
	FromFlag    = "flag"
)

// Ways to apply the change of a key: in place, with a new socket, after a restart.
const (
	ReloadInPlace = "r"
	ReloadRebind  = "b"
	ReloadRestart = "x"
)

// origin is the source of a value and the place in it.
type origin struct {
	source, where string
	inside        func(member string) string // returns the place of a member, if the value is a table in a file
}

// Entry is one key with its current value, for people. Values are in TOML syntax; secrets are
// "***".
type Entry struct {
	Key     string `json:"key"`
	Value   string `json:"value"`
	Default string `json:"default"`
	Source  string `json:"source"` // FromDefault, FromFile, FromEnv or FromFlag
	// "ronbox.toml:41:3", "RONBOX_STORE__MAX_BYTES", "flag --data-dir", "" for a default
	Where  string `json:"where,omitempty"`
	Reload string `json:"reload"` // ReloadInPlace, ReloadRebind or ReloadRestart
}

// Explain is like Load, and also returns every key, in the order of the sections, with its value,
// default and source.
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
			Key:     one.key,
			Value:   one.shown(),
			Default: defaults[i].shown(),
			Source:  from.source,
			Where:   from.where,
			Reload:  one.reload,
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

// Diff returns the keys that differ between old and next, in the order of the sections. Secrets are
// shown as "***", even if they differ.
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

// hidden replaces a secret in output.
const hidden = `"***"`

// secret reports whether the value of the key is a secret.
func (l leaf) secret() bool { return obs.Hides(l.key) && !slices.Contains(public[:], l.key) }

// public lists keys that are not secret although their names match the pattern of secrets.
var public = [...]string{"rewarder.policy_trust_keys", "index.cache.warmup_keys", "index.peer_tokens"}

// shown returns the value in TOML syntax, or hidden for a secret.
func (l leaf) shown() string {
	if l.secret() {
		return hidden
	}
	return l.text()
}

// redact removes the value of a secret from a fault. It also removes the reason, which may repeat
// the value. It clips long texts to maxShown.
func (l leaf) redact(f *Fault) *Fault {
	if l.secret() {
		f.Value, f.Reason = hidden, "is not valid"
	}
	f.Value, f.Reason = unit.Clip(f.Value, maxShown), unit.Clip(f.Reason, maxShown)
	return f
}

// maxShown bounds the texts in a message about the configuration, in bytes.
const maxShown = 1024

// text returns the value in TOML syntax.
func (l leaf) text() string { return literal(l.value) }

// literal returns a value in TOML syntax, on one line.
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

// show returns a decoded value as text for a message.
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

// opening returns the text before element i: first before element 0, later before the others.
func opening(i int, first, later string) string {
	if i == 0 {
		return first
	}
	return later
}

// tomlFloat formats a float in TOML syntax. A whole number keeps its point, as in 1.0.
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

// tomlString quotes s as a basic string of TOML. It escapes quotes, backslashes and characters that
// are not printable.
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

// commented lists every key with its default in a line `#key = default`, under its section. Lines
// of text begin with "# ".
//
//go:embed ronbox.toml
var commented string

// Template returns the file that init writes: every key with its default, commented out. Keys in
// set are not commented out and have the value from set. For a list, that value is its
// elements between commas.
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
			switch {
			case strings.HasPrefix(unset, "["):
				text = "[" + strings.ReplaceAll(text, ",", `", "`) + "]"
			case strings.HasPrefix(unset, "true"), strings.HasPrefix(unset, "false"):
				text = value
			}
			lines[i] = key + " = " + text + "\n"
		}
	}
	return strings.Join(lines, "")
}
