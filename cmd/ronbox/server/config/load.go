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
	"strings"
	"syscall"

	"ronbox/appliance/unit"
)

const (
	envPrefix = "RONBOX_"
	// FileName is the file in the data directory that is read by default.
	FileName = "ronbox.toml"
)

// LoadOptions holds the sources that override the defaults.
type LoadOptions struct {
	File    string   // "": ronbox.toml in the data directory, if it exists
	DataDir string   // value of the flag --data-dir, which overrides all other sources; "": not set
	Env     []string // in the form of os.Environ; nil: empty
}

// Load reads and validates the configuration. The error joins all faults, each a *Fault.
func Load(o LoadOptions) (*Config, error) {
	l := load(o)
	if err := errors.Join(l.faults...); err != nil {
		return nil, err
	}
	return l.cfg, nil
}

// load applies every source over the defaults and validates the result.
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

// follow raises edge.cas.min_free to store.min_free unless it is set, so that a file which raises
// store.min_free alone loads.
func (l *loader) follow() {
	if _, set := l.from[keyEdgeFree]; !set && !l.bad[keyStoreFree] {
		l.cfg.Edge.CAS.MinFree = max(l.cfg.Edge.CAS.MinFree, l.cfg.Store.MinFree)
	}
}

type loader struct {
	cfg    *Config
	all    []leaf
	from   map[string]origin // where the value of a key was set; defaults are absent
	bad    map[string]bool   // keys with a text that was refused; their values are not validated again
	faults []error
}

func newLoader() *loader {
	cfg := Default()
	return &loader{cfg: cfg, all: leaves(cfg), from: map[string]origin{}, bad: map[string]bool{}}
}

// set assigns a value to a key, or records a fault. shown is the value for the fault's message. A
// retired key adds a warning.
func (l *loader) set(key string, from origin, assign func(reflect.Value) error, shown string) {
	found := find(l.all, key)
	if found == nil {
		if why := retired(key); why != "" {
			l.cfg.Warnings = append(l.cfg.Warnings,
				fmt.Sprintf("%s: %s has no effect any more, remove it: %s", from.where, key, why))
			return
		}
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
	f := &Fault{Where: where, Key: unit.Clip(key, maxShown), Reason: "unknown key"}
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

// file applies the TOML file. A file that o names must exist; the default file may be absent. The
// node reports errors of the data directory.
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

// maxFile bounds the size of the file, in bytes.
const maxFile = 1 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
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

// document applies the text of a file.
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
		l.set(e.key, origin{source: FromFile, where: e.at, inside: e.inside},
			func(v reflect.Value) error { return assign(v, e.value) }, show(e.value))
	}
}

// dataDir returns the directory to search for the file: from the flag, the environment or the
// default, because the file is not read yet.
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

// variable is an environment variable that sets a key.
type variable struct{ name, key, text string }

// environment returns the variables that set keys, sorted by key. A name without "__" belongs to
// the command line. It is a fault if it differs from the variable of a key only in the number of
// underscores.
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
				l.faults = append(
					l.faults,
					&Fault{Where: name, Reason: "unknown key, did you mean " + envName(key) + "?"},
				)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b variable) int { return strings.Compare(a.key, b.key) })
	return out
}

// keyOfVariable returns the key that a variable sets. rest is the name of the variable without its
// prefix.
func keyOfVariable(rest string) string {
	path := strings.Split(strings.ToLower(rest), "__")
	for i, name := range path {
		path[i] = part(name)
	}
	return strings.Join(path, ".")
}

// variables applies the environment.
func (l *loader) variables(env []variable) {
	for _, e := range env {
		l.set(
			e.key,
			origin{source: FromEnv, where: strings.Trim(quote(e.name), `"`)},
			func(v reflect.Value) error { return assignText(v, e.text) },
			quote(e.text),
		)
	}
}

// absolute makes the data directory an absolute path.
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
