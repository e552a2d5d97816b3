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

// FieldError names a member that cannot be taken, and why.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return fmt.Sprintf("%s: %s", e.Field, e.Reason) }

// Fault is a FieldError whose reason is formatted.
func Fault(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// Object is a document before it is written: texts, numbers, digests, amounts, lists of texts and objects by their names.
type Object map[string]any

// Append appends v in the one spelling of documents, which hold printable ASCII alone.
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

// Fields are the members of a document by their paths. Each is taken once; the first fault is kept.
type Fields struct {
	flat map[string]any // texts and lists
	err  error
}

// NewFields has no members yet.
func NewFields() *Fields { return &Fields{flat: map[string]any{}} }

// Read takes one JSON object apart.
func Read(b []byte) *Fields {
	f := NewFields()
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		name := "document"
		if at, ok := errors.AsType[*jsontext.SyntacticError](err); ok && at.JSONPointer != "" {
			name = strings.ReplaceAll(string(at.JSONPointer[1:]), "/", ".")
		}
		f.Fail(Fault(name, "is not JSON of one object without repeated members: %v", err))
	}
	f.flatten("", v)
	return f
}

func (f *Fields) flatten(prefix string, v map[string]any) {
	for name, m := range v {
		sub, ok := m.(map[string]any)
		switch {
		case strings.Contains(name, "."): // it might be taken for a member of a member
			f.Fail(Fault(prefix+name, "is unknown"))
		case ok && len(sub) > 0:
			f.flatten(prefix+name+".", sub)
		default:
			f.flat[prefix+name] = m
		}
	}
}

// Fail notes a fault, unless there is one already.
func (f *Fields) Fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// Set gives a member its text, before it is taken.
func (f *Fields) Set(path, text string) { f.flat[path] = text }

// Has reports whether a member is there that nobody took.
func (f *Fields) Has(path string) bool { _, ok := f.flat[path]; return ok }

// Text takes a member, and checks that it is one of the words, if there are any.
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

// Number, Amount and Digest take a member of one spelling.
func (f *Fields) Number(path string) uint64         { return parsed(f, path, ParseNumber) }
func (f *Fields) Amount(path string) engines.Amount { return parsed(f, path, engines.ParseAmount) }
func (f *Fields) Digest(path string) b3.Digest      { return parsed(f, path, b3.Parse) }

// List takes a list of texts.
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

// End is the first fault; a member that nobody took is one.
func (f *Fields) End() error {
	for _, path := range slices.Sorted(maps.Keys(f.flat)) {
		f.Fail(Fault(path, "is unknown"))
	}
	return f.err
}

// Spelled is the first fault of a document that has one spelling.
func (f *Fields) Spelled(b []byte, want func() []byte) error {
	if err := f.End(); err != nil || bytes.Equal(b, want()) {
		return err
	}
	return Fault("document", "is not in its canonical spelling")
}

// ParseNumber takes the one spelling of a u64.
func ParseNumber(s string) (uint64, error) {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && strconv.FormatUint(n, 10) == s {
		return n, nil
	}
	return 0, errors.New("must be a decimal string without leading zeros, at most 18446744073709551615")
}
