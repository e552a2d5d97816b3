package canon

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines"
)

// FieldError names an invalid member and the reason.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// Fault returns a FieldError with a formatted reason.
func Fault(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Object is a document to be written: strings, numbers, digests, amounts, lists of strings and
// objects by their names.
type Object map[string]any

// Append appends v in canonical spelling. v must hold only printable ASCII.
func Append(dst []byte, v any) []byte {
	switch v := v.(type) {
	case Object:
		dst = append(dst, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = Append(append(Append(dst, name), ':'), v[name])
		}
		return append(dst, '}')
	case []string:
		dst = append(dst, '[')
		for i, s := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = Append(dst, s)
		}
		return append(dst, ']')
	}
	text := strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(v), `\`, `\\`), `"`, `\"`)
	return append(append(append(dst, '"'), text...), '"')
}

// Fields holds the members of a document by their paths. Each member is taken once.
type Fields struct {
	flat   map[string]any // strings and lists
	faults []error        // in the order of discovery
	broken bool           // the document is not JSON, so no member counts as missing
}

// NewFields returns Fields without members.
func NewFields() *Fields { return &Fields{flat: map[string]any{}} }

// Read parses one JSON object.
func Read(b []byte) *Fields {
	f := NewFields()
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		name := "document"
		if at, ok := errors.AsType[*jsontext.SyntacticError](err); ok && at.JSONPointer != "" {
			name = strings.ReplaceAll(string(at.JSONPointer[1:]), "/", ".")
		}
		f.Fail(Fault(name, "is not JSON of one object without repeated members: %v", err))
		f.broken = true
	}
	f.flatten("", v)
	return f
}

func (f *Fields) flatten(prefix string, v map[string]any) {
	for name, m := range v {
		sub, ok := m.(map[string]any)
		switch {
		case strings.Contains(name, "."): // it would be ambiguous with a nested member
			f.Fail(Fault(prefix+name, "is unknown"))
		case ok && len(sub) > 0:
			f.flatten(prefix+name+".", sub)
		default:
			f.flat[prefix+name] = m
		}
	}
}

// Fail records a fault, unless err is nil.
func (f *Fields) Fail(err error) {
	if err != nil {
		f.faults = append(f.faults, err)
	}
}

// Set sets the text of a member that was not taken yet.
func (f *Fields) Set(path, text string) { f.flat[path] = text }

// Has reports whether a member exists and was not taken.
func (f *Fields) Has(path string) bool { _, ok := f.flat[path]; return ok }

// Text takes a member, and checks that it is one of words, if any.
func (f *Fields) Text(path string, words ...string) string {
	v, there := f.flat[path]
	s, ok := v.(string)
	switch delete(f.flat, path); {
	case !there:
		f.Fail(Fault(path, "is missing"))
	case !ok:
		f.Fail(Fault(path, "must be a string, numbers too"))
	case len(words) > 0 && !slices.Contains(words, s):
		f.Fail(Fault(path, "must be %s; %.32q is not supported", strings.Join(words, " or "), s))
	}
	return s
}

func parsed[T any](f *Fields, path string, parse func(string) (T, error)) T {
	v, err := parse(f.Text(path))
	if err != nil {
		f.Fail(Fault(path, "%v", err))
	}
	return v
}

// Number, Amount and Digest take a member and parse it.
func (f *Fields) Number(path string) uint64         { return parsed(f, path, ParseNumber) }
func (f *Fields) Amount(path string) engines.Amount { return parsed(f, path, engines.ParseAmount) }
func (f *Fields) Digest(path string) b3.Digest      { return parsed(f, path, b3.Parse) }

// List takes a list of strings.
func (f *Fields) List(path string) []string {
	all, ok := f.flat[path].([]any)
	delete(f.flat, path)
	out := make([]string, 0, len(all))
	for _, v := range all {
		s, is := v.(string)
		out, ok = append(out, s), ok && is
	}
	if !ok {
		f.Fail(Fault(path, "must be a list of strings"))
	}
	return out
}

// End returns the first fault. A member that was not taken is a fault.
func (f *Fields) End() error {
	if all := f.Faults(); len(all) > 0 {
		return all[0]
	}
	return nil
}

// Faults returns every fault after all members have been taken. A member that was not taken is a
// fault.
func (f *Fields) Faults() []error {
	for _, path := range slices.Sorted(maps.Keys(f.flat)) {
		f.Fail(Fault(path, "is unknown"))
	}
	clear(f.flat)
	if f.broken {
		return f.faults[:1]
	}
	return f.faults
}

// Spelled returns the first fault of a document that must be in the canonical spelling.
func (f *Fields) Spelled(b []byte, want func() []byte) error {
	if err := f.End(); err != nil || bytes.Equal(b, want()) {
		return err
	}
	return Fault("document", "is not in its canonical spelling")
}

// ParseNumber parses a u64 in canonical spelling.
func ParseNumber(s string) (uint64, error) {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && strconv.FormatUint(n, 10) == s {
		return n, nil
	}
	return 0, errors.New("must be a decimal string without leading zeros, at most 18446744073709551615")
}
