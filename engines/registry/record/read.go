package record

import (
	"bytes"
	"errors"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/unit"
)

// form describes the members of a typed object, read from the tags of a struct. A member is
// required unless its tag has omitzero. An optional member must not be empty, because absent and
// empty would be two forms of one value.
type form []member

// reasonMissing is the reason of a required member that is absent.
const reasonMissing = "missing"

type member struct {
	name           string
	index          []int
	optional, time bool
	inner          form // of a member that is an object, or an array of them
}

// formOf reads the tags of T.
func formOf[T any]() form { return tagsOf(reflect.TypeFor[T](), nil) }

func tagsOf(t reflect.Type, at []int) (all form) {
	for i := range t.NumField() {
		field, index := t.Field(i), append(slices.Clone(at), i)
		of := field.Type
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		name, options, tagged := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Anonymous:
			all = append(all, tagsOf(of, index)...)
		case name != "" && name != "-":
			m := member{
				name: name, index: index, optional: tagged && options != "",
				time: field.Tag.Get("format") == "time",
			}
			if of.Kind() == reflect.Struct {
				m.inner = tagsOf(of, nil)
			}
			all = append(all, m)
		}
	}
	return all
}

// nearest returns the member of the form most like name, or "".
func (fm form) nearest(name string) string {
	known := make([]string, len(fm))
	for i, m := range fm {
		known[i] = m.name
	}
	return unit.Nearest(name, known)
}

// fields are the members of one canonical object. The first fault is kept; done returns it, or an
// error for a member that the form does not have.
type fields struct {
	form    form
	path    string // of the object, "" or "items.3."
	seen    uint64 // a bit for each member of the form
	unknown *string
	failed  *FieldError
}

// read fills the struct that into points to from the canonical object in canon. If canon is not an
// object, path is at fault.
func (fm form) read(path string, canon []byte, into any) *fields {
	f := &fields{form: fm, path: path}
	if len(canon) == 0 || canon[0] != '{' {
		f.fail("", "must be an object")
		return f
	}
	if path != "" {
		f.path += "."
	}
	v := reflect.ValueOf(into).Elem()
	for name, raw := range parts(canon) {
		if i := f.index(name); i >= 0 {
			f.seen |= 1 << i
			f.take(fm[i], name, raw, v.FieldByIndex(fm[i].index))
		} else if f.unknown == nil {
			f.unknown = new(name)
		}
	}
	return f
}

// take reads the value of a member, or of an element of one, into v.
func (f *fields) take(m member, name string, raw []byte, v reflect.Value) {
	switch {
	case m.inner == nil:
		if err := decode(raw, v); err != nil {
			f.mistyped(name, err)
		} else if m.optional && (v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0) {
			f.fail(name, "must not be %s", emptiness(v.Kind()))
		} else if m.time {
			if reason := badTime(v.String()); reason != "" {
				f.fail(name, "%s", reason)
			}
		}
	case v.Kind() == reflect.Slice && raw[0] != '[':
		f.fail(name, "must be an array")
	case v.Kind() == reflect.Slice:
		for _, element := range parts(raw) {
			n := v.Len()
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			f.take(m, name+"."+strconv.Itoa(n), element, v.Index(n))
		}
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.take(m, name, raw, v.Elem())
	default:
		of := m.inner.read(f.path+name, raw, v.Addr().Interface())
		of.complete()
		if of.done() != nil && f.failed == nil {
			f.failed = of.failed
		}
	}
}

// decode reads a value that is not a typed object. Values kept as they are written share the bytes
// of the document.
func decode(raw []byte, v reflect.Value) error {
	switch into := v.Addr().Interface().(type) {
	case *jsontext.Value:
		*into = raw
		return nil
	case **[]jsontext.Value:
		if raw[0] == '[' {
			all := []jsontext.Value{}
			for _, element := range parts(raw) {
				all = append(all, element)
			}
			*into = &all
			return nil
		}
	}
	if v.Kind() == reflect.String && raw[0] == '"' {
		v.SetString(unquote(raw))
		return nil
	}
	return json.Unmarshal(raw, v.Addr().Interface())
}

// unquote returns the text of a canonical string. Most have no escapes.
func unquote(raw []byte) string {
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	plain, _ := jsontext.AppendUnquote(nil, raw) // it is canonical
	return string(plain)
}

// mistyped reports a value of the wrong type.
func (f *fields) mistyped(name string, err error) {
	reason := "has no value of its kind"
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		if at := dotted(e.JSONPointer); at != "" {
			name += "." + at
		}
		switch e.GoType.Kind() {
		case reflect.String:
			reason = "must be a string"
		case reflect.Slice:
			reason = "must be an array"
		case reflect.Array:
			reason = `must be "b3:" and 64 lower-case hex digits`
		case reflect.Int, reflect.Uint32, reflect.Uint64:
			reason = "must be an integer, 0 or more"
		}
	}
	f.fail(name, "%s", reason)
}

func emptiness(k reflect.Kind) string {
	switch k {
	case reflect.Array:
		return "zero"
	case reflect.Uint64:
		return "0"
	}
	return "empty"
}

func (f *fields) index(name string) int {
	return slices.IndexFunc(f.form, func(m member) bool { return m.name == name })
}

// has reports whether a member of the form is there.
func (f *fields) has(name string) bool { return f.seen&(1<<f.index(name)) != 0 }

// fill sets an absent member to a value.
func fill[T any](f *fields, name string, into *T, value T) {
	if !f.has(name) {
		*into = value
		f.seen |= 1 << f.index(name)
	}
}

func (f *fields) fail(name, format string, args ...any) {
	if f.failed == nil {
		f.failed = fieldf(f.path+name, format, args...)
	}
}

// is demands a text.
func (f *fields) is(name, got, want string) {
	if f.has(name) && got != want {
		f.fail(name, "must be %q", want)
	}
}

// within demands a number from from to to.
func (f *fields) within(name string, n, from, to int) {
	if n < from || n > to {
		f.fail(name, "must be %d to %d", from, to)
	}
}

// complete demands the members that are not optional.
func (f *fields) complete() {
	for i, m := range f.form {
		if !m.optional && f.seen&(1<<i) == 0 {
			f.fail(m.name, reasonMissing)
		}
	}
}

// done returns the first fault, or an error for the first unknown member.
func (f *fields) done() error {
	if f.unknown != nil {
		f.fail(*f.unknown, "unknown member")
		if f.failed.Reason == reasonMissing && f.failed.Field == f.path+f.form.nearest(*f.unknown) {
			f.failed.Reason += ", and " + *f.unknown + " is unknown"
		}
	}
	if f.failed == nil {
		return nil
	}
	return f.failed
}

// parts yields the members of a canonical object, or the elements of a canonical array, which have
// no names.
func parts(canon []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		for at := 1; at < len(canon)-1; at++ { // past the comma
			name, end := "", at+width(canon[at:])
			if canon[0] == '{' {
				name, at = unquote(canon[at:end]), end+1
				end = at + width(canon[at:])
			}
			if !yield(name, canon[at:end:end]) {
				return
			}
			at = end
		}
	}
}

// width returns the length of the value at the start of canon, which is inside a canonical object
// or array.
func width(canon []byte) int {
	depth := 0
	for at := 0; at < len(canon); at++ {
		switch canon[at] {
		case '"':
			for at++; canon[at] != '"'; at++ {
				if canon[at] == '\\' {
					at++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if next := at + 1; depth == 0 && strings.IndexByte(",:]}", canon[next]) >= 0 {
			return next
		}
	}
	return len(canon)
}
