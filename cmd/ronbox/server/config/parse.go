package config

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"sort"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// entry is one key of a file with its value and its place.
type entry struct {
	key   string
	at    string // file:line:column
	value any
	// inside returns the place of a member, if the value is a table.
	inside func(member string) string
}

// parseFile returns the entries of a TOML document, in the order of the document. known reports
// whether a key holds a value: a table under such a key is its value, any other table holds keys.
func parseFile(name string, data []byte, known func(key string) bool) ([]entry, error) {
	var doc map[string]any
	if err := toml.Unmarshal(data, &doc); err != nil {
		return nil, syntaxFault(name, data, err)
	}
	at := positions(data)
	out := flatten(nil, "", doc, known)
	sort.Slice(out, func(i, j int) bool { return before(at[out[i].key], at[out[j].key], out[i].key < out[j].key) })
	place := func(key string) string { return fmt.Sprintf("%s:%d:%d", name, at[key].Line, at[key].Column) }
	for i, e := range out {
		out[i].at = place(e.key)
		out[i].inside = func(member string) string { return place(e.key + "." + part(member)) }
	}
	return out, nil
}

func before(a, b unstable.Position, tie bool) bool {
	if a.Offset != b.Offset {
		return a.Offset < b.Offset
	}
	return tie
}

func syntaxFault(name string, data []byte, err error) error {
	var bad *toml.DecodeError
	if !errors.As(err, &bad) {
		return &Fault{Where: name, Reason: err.Error()}
	}
	line, column := bad.Position()
	path := make([]string, len(bad.Key()))
	for i, p := range bad.Key() {
		path[i] = part(p)
	}
	key := strings.Join(path, ".")
	if key == "" {
		key = keyBefore(data, line, column)
	}
	return &Fault{
		Where:  fmt.Sprintf("%s:%d:%d", name, line, column),
		Key:    key,
		Reason: syntaxReason(data, line, strings.TrimPrefix(bad.Error(), "toml: ")),
	}
}

// bareText matches a line whose value is a text without quotes.
var bareText = regexp.MustCompile(`^\s*([\w.-]+)\s*=\s*([A-Za-z_/.]+|[0-9][0-9.:_-]*[A-Za-z:.])`)

// syntaxReason returns reason, or a clearer one for a line with a text without quotes. It does not
// repeat the text, which may be a secret.
func syntaxReason(data []byte, line int, reason string) string {
	lines := bytes.Split(data, []byte("\n"))
	if line > len(lines) {
		return reason
	}
	m := bareText.FindSubmatch(lines[line-1])
	if m == nil || string(m[2]) == "true" || string(m[2]) == "false" {
		return reason
	}
	return fmt.Sprintf("a text needs quotes, as in %s = \"…\"", m[1])
}

// keyBefore returns the last key on a line before a column, or "" if there is no key.
func keyBefore(data []byte, line, column int) (key string) {
	nearest := 0
	for k, at := range positions(data) {
		if at.Line == line && at.Column < column && at.Column > nearest {
			key, nearest = k, at.Column
		}
	}
	return key
}

// part returns one name of a dotted key, quoted if TOML requires it: the name "a.b" is not a path.
func part(name string) string {
	for i := range len(name) {
		if c := name[i]; (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return tomlString(name)
		}
	}
	if name == "" {
		return tomlString(name)
	}
	return name
}

// maxKey bounds the length of the keys that are parsed, in bytes. Known keys have about 40 at most.
const maxKey = 256

// flatten converts nested tables to entries with dotted keys and appends them to out. An empty
// table is an entry too, so that an unknown section without keys is reported.
func flatten(out []entry, prefix string, table map[string]any, known func(string) bool) []entry {
	for k, v := range table {
		key := prefix + part(k)
		inner, isTable := v.(map[string]any)
		if !isTable || known(key) || len(key) > maxKey {
			out = append(out, entry{key: key, value: v})
			continue
		}
		if len(inner) == 0 {
			out = append(out, entry{key: key, value: inner})
		}
		out = flatten(out, key+".", inner, known)
	}
	return out
}

// positions returns the position of each key, table and inline member of a document, up to the
// first syntax error.
func positions(data []byte) map[string]unstable.Position {
	var p unstable.Parser
	p.Reset(data)
	at, table := map[string]unstable.Position{}, ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			table = mark(&p, at, "", e.Key()) + "."
		case unstable.KeyValue:
			markValue(&p, at, table, e)
		}
	}
	return at
}

// mark records the position of each prefix of a dotted key in at, and returns the whole key.
func mark(p *unstable.Parser, at map[string]unstable.Position, prefix string, it unstable.Iterator) string {
	key := strings.TrimSuffix(prefix, ".")
	for len(key) <= maxKey && it.Next() {
		if key != "" {
			key += "."
		}
		key += part(string(it.Node().Data))
		if _, seen := at[key]; !seen {
			at[key] = p.Shape(it.Node().Raw).Start
		}
	}
	return key
}

func markValue(p *unstable.Parser, at map[string]unstable.Position, prefix string, kv *unstable.Node) {
	key := mark(p, at, prefix, kv.Key())
	if kv.Value().Kind != unstable.InlineTable {
		return
	}
	for it := kv.Value().Children(); it.Next(); {
		if it.Node().Kind == unstable.KeyValue {
			markValue(p, at, key+".", it.Node())
		}
	}
}
