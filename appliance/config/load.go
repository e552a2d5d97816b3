package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"syscall"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"ronbox/appliance/unit"
)

const (
	envPrefix = "RONBOX_"
	// FileName is the file that is read from the data directory when none is named.
	FileName = "ronbox.toml"
)

// LoadOptions says what overlays the defaults.
type LoadOptions struct {
	File    string   // "" is ronbox.toml of the data directory, if it is there
	DataDir string   // of the flag --data-dir, which wins over every other place; "" leaves it to them
	Env     []string // as os.Environ gives it; nil is none
}

// Load reads the configuration. Its error joins every *Fault there is.
func Load(o LoadOptions) (*Config, error) {
	l := load(o)
	if err := errors.Join(l.faults...); err != nil {
		return nil, err
	}
	return l.cfg, nil
}

// load overlays every place on the defaults, and validates the result.
func load(o LoadOptions) *loader {
	l := newLoader()
	env := l.environment(o.Env)
	l.file(o, env)
	l.variables(env)
	if o.DataDir != "" {
		l.cfg.Node.DataDir = o.DataDir
		l.from["node.data_dir"] = origin{source: FromFlag, where: "flag --data-dir"}
	}
	l.absolute()
	l.follow()
	l.validate()
	return l
}

// follow raises edge.cas.min_free to store.min_free unless it is set, so that a file which raises store.min_free alone loads.
func (l *loader) follow() {
	if _, set := l.from[keyEdgeFree]; !set && !l.bad[keyStoreFree] {
		l.cfg.Edge.CAS.MinFree = max(l.cfg.Edge.CAS.MinFree, l.cfg.Store.MinFree)
	}
}

type loader struct {
	cfg    *Config
	all    []leaf
	from   map[string]origin // by key, where its value was set; defaults are absent
	bad    map[string]bool   // keys whose text was refused: validating their values would repeat the fault
	faults []error
}

func newLoader() *loader {
	cfg := Default()
	return &loader{cfg: cfg, all: leaves(cfg), from: map[string]origin{}, bad: map[string]bool{}}
}

// set gives one key its value, or notes what is wrong with it.
func (l *loader) set(key string, from origin, assign func(reflect.Value) error, shown string) {
	found := find(l.all, key)
	if found == nil {
		l.faults = append(l.faults, l.unknown(key, from.where))
		return
	}
	l.from[key] = from
	if err := assign(found.value); err != nil {
		l.bad[key] = true
		where := from.where
		if m, ok := errors.AsType[*memberError](err); ok && from.inside != nil {
			where = from.inside(m.member)
		}
		l.faults = append(l.faults, found.redact(&Fault{Where: where, Key: key, Value: shown, Reason: err.Error()}))
	}
}

func (l *loader) unknown(key, where string) *Fault {
	if sectionOf(l.all, key) {
		return &Fault{Where: where, Key: key, Reason: "is a section, not a value"}
	}
	f := &Fault{Where: where, Key: brief(key), Reason: "unknown key"}
	if near := nearest(key, l.keys()); near != "" {
		f.Reason += ", did you mean " + near + "?"
	}
	return f
}

func (l *loader) keys() []string {
	out := make([]string, len(l.all))
	for i, e := range l.all {
		out[i] = e.key
	}
	return out
}

// file overlays the TOML file. Only a file that was named must exist; a fault of the directory is reported by the node.
func (l *loader) file(o LoadOptions, env []variable) {
	path := o.File
	if path == "" {
		path = filepath.Join(l.dataDir(o, env), FileName)
	}
	data, err := readFile(path)
	if o.File == "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
		return
	}
	if err != nil {
		l.faults = append(l.faults, unreadable(path, err))
		return
	}
	l.document(path, data)
}

// maxFile bounds the file: the commented one has some KiB.
const maxFile = 1 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("is larger than %s", unit.Size(maxFile))
	}
	return data, err
}

func unreadable(path string, err error) *Fault {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err // its path is Where
	}
	return &Fault{Where: path, Reason: err.Error(), Cause: err}
}

// document overlays the text of a file.
func (l *loader) document(path string, data []byte) {
	entries, err := parseFile(path, data, func(key string) bool { return find(l.all, key) != nil })
	if err != nil {
		l.faults = append(l.faults, err)
		return
	}
	for _, e := range entries {
		if inner, isTable := e.value.(map[string]any); isTable && len(inner) == 0 && sectionOf(l.all, e.key) {
			continue // a section header with nothing under it
		}
		l.set(e.key, origin{source: FromFile, where: e.at, inside: e.inside}, func(v reflect.Value) error { return assign(v, e.value) }, show(e.value))
	}
}

// dataDir is where the file is looked for, before the file can say so.
func (l *loader) dataDir(o LoadOptions, env []variable) string {
	if o.DataDir != "" {
		return o.DataDir
	}
	dir := l.cfg.Node.DataDir
	for _, e := range env {
		if e.key == "node.data_dir" {
			dir = e.text
		}
	}
	return dir
}

// variable is an environment variable that means a key.
type variable struct{ name, key, text string }

// environment picks the variables of the configuration. A name without "__" belongs to the command line, unless it is
// a key's name with its underscores miscounted.
func (l *loader) environment(environ []string) []variable {
	var out []variable
	for _, e := range environ {
		name, text, _ := strings.Cut(e, "=")
		rest, ours := strings.CutPrefix(name, envPrefix)
		if !ours {
			continue
		}
		if strings.Contains(rest, "__") && rest == strings.ToUpper(rest) {
			out = append(out, variable{name: name, key: keyOfVariable(rest), text: text})
			continue
		}
		for _, key := range l.keys() {
			if strings.EqualFold(strings.ReplaceAll(envName(key), "__", "_"), strings.ReplaceAll(name, "__", "_")) {
				l.faults = append(l.faults, &Fault{Where: name, Reason: "unknown key, did you mean " + envName(key) + "?"})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b variable) int { return strings.Compare(a.key, b.key) })
	return out
}

// keyOfVariable is the key that a variable means, from its name behind the prefix.
func keyOfVariable(rest string) string {
	path := strings.Split(strings.ToLower(rest), "__")
	for i, name := range path {
		path[i] = part(name)
	}
	return strings.Join(path, ".")
}

// variables overlays the environment.
func (l *loader) variables(env []variable) {
	for _, e := range env {
		l.set(e.key, origin{source: FromEnv, where: strings.Trim(quote(e.name), `"`)}, func(v reflect.Value) error { return assignText(v, e.text) }, quote(e.text))
	}
}

// absolute frees the data directory from the working directory of the process.
func (l *loader) absolute() {
	if l.cfg.Node.DataDir == "" {
		return
	}
	dir, err := filepath.Abs(l.cfg.Node.DataDir)
	if err != nil {
		l.faults = append(l.faults, &Fault{Key: "node.data_dir", Reason: err.Error()})
		return
	}
	l.cfg.Node.DataDir = dir
}

func quote(s string) string { return fmt.Sprintf("%q", s) }

// entry is one key of a file with the value it was given, and where.
type entry struct {
	key   string
	at    string // file:line:column
	value any
	// inside is the place of a member of a value that is a table.
	inside func(member string) string
}

// parseFile reads a TOML document into its entries, in the order of the document. known says which keys hold a value:
// a table under such a key is its value, any other table holds keys.
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
		Reason: strings.TrimPrefix(bad.Error(), "toml: "),
	}
}

// keyBefore is the key on a line whose value stands at a column, "" for none.
func keyBefore(data []byte, line, column int) (key string) {
	nearest := 0
	for k, at := range positions(data) {
		if at.Line == line && at.Column < column && at.Column > nearest {
			key, nearest = k, at.Column
		}
	}
	return key
}

// part is one name of a dotted key, quoted where TOML wants it, so that "a.b" is not a path.
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

// maxKey bounds the keys that are looked into, in bytes: the longest there is has some 40.
const maxKey = 256

// flatten turns nested tables into dotted keys. An empty table that is no value is an entry too, so that a section
// nobody knows is still reported.
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

// positions gives the place of each key, table and inline member of a document, up to its first fault.
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

// mark notes where each prefix of a dotted key stands, and returns the whole key.
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
