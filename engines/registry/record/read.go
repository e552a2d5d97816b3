package record

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
)

// maxMembers bounds the members of a typed object as read; the largest has 18. maxFilled leaves room for those added to a draft.
const (
	maxMembers = 24
	maxFilled  = maxMembers + 12
)

// fields reads the members of one canonical object by name. The first fault sticks; done answers it, or names a member nobody asked for.
type fields struct {
	path   string // of the object, "" or "items.3."
	slots  [maxFilled]slot
	n      int
	failed *FieldError
}

type slot struct {
	name, value []byte // name unquoted: names that matter have no escapes
	read        bool
}

// newFields opens the object in canon, which is canonical. What is not an object is a fault of path.
func newFields(path string, canon []byte) fields {
	f := fields{path: path}
	if len(canon) == 0 || canon[0] != '{' {
		f.failed = &FieldError{Field: path, Reason: "must be an object"}
		return f
	}
	if path != "" {
		f.path += "."
	}
	for at := 1; canon[at] != '}'; {
		if canon[at] == ',' {
			at++
		}
		colon := skip(canon, at)
		end := skip(canon, colon+1)
		if f.n == maxMembers {
			f.fail(string(canon[at+1:colon-1]), "unknown member")
			return f
		}
		f.slots[f.n] = slot{name: canon[at+1 : colon-1], value: canon[colon+1 : end]}
		f.n++
		at = end
	}
	return f
}

func (f *fields) fail(name, format string, args ...any) {
	if f.failed == nil {
		f.failed = fieldf(f.path+name, format, args...)
	}
}

func (f *fields) find(name string) []byte {
	for i := range f.slots[:f.n] {
		if s := &f.slots[i]; string(s.name) == name {
			s.read = true
			return s.value
		}
	}
	return nil
}

func (f *fields) has(name string) bool { return f.find(name) != nil }

// fill adds a text member unless it is there.
func (f *fields) fill(name, text string) { f.fillRaw(name, string(encode(text))) }

// fillRaw adds a member of canonical value unless it is there.
func (f *fields) fillRaw(name, value string) {
	if !f.has(name) {
		f.slots[f.n] = slot{name: []byte(name), value: []byte(value)}
		f.n++
	}
}

// raw gives the canonical value of a required member.
func (f *fields) raw(name string) []byte {
	v := f.find(name)
	if v == nil {
		f.fail(name, "missing")
	}
	return v
}

func (f *fields) text(name string) string {
	v := f.raw(name)
	if v == nil {
		return ""
	}
	if v[0] != '"' {
		f.fail(name, "must be a string")
		return ""
	}
	return unquote(v)
}

// textOpt gives "" for an absent member; a present one must not be empty, or absent and empty would be two forms of one value.
func (f *fields) textOpt(name string) string {
	if !f.has(name) {
		return ""
	}
	s := f.text(name)
	if s == "" {
		f.fail(name, "must not be empty")
	}
	return s
}

// is demands a fixed text.
func (f *fields) is(name, want string) {
	if got := f.text(name); got != want {
		f.fail(name, "must be %q", want)
	}
}

func (f *fields) uint(name string) uint64 {
	v := f.raw(name)
	if v == nil {
		return 0
	}
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		f.fail(name, "must be an integer, 0 or more")
	}
	return n
}

// count gives a whole number of at least from and at most to.
func (f *fields) count(name string, from, to int) int {
	n := f.uint(name)
	if n < uint64(from) || n > uint64(to) {
		f.fail(name, "must be %d to %d", from, to)
		return from
	}
	return int(n)
}

// uintOpt gives 0 for an absent member; a present one must not be 0.
func (f *fields) uintOpt(name string) uint64 {
	if !f.has(name) {
		return 0
	}
	n := f.uint(name)
	if n == 0 {
		f.fail(name, "must not be 0")
	}
	return n
}

func (f *fields) digest(name string) b3.Digest {
	d, err := b3.Parse(f.text(name))
	if err != nil {
		f.fail(name, `must be "b3:" and 64 lower-case hex digits`)
	}
	return d
}

// digestOpt gives zero for an absent member; a present one must not be zero.
func (f *fields) digestOpt(name string) b3.Digest {
	if !f.has(name) {
		return b3.Digest{}
	}
	d := f.digest(name)
	if d.IsZero() {
		f.fail(name, "must not be zero")
	}
	return d
}

func (f *fields) time(name string) string {
	s := f.text(name)
	if reason := badTime(s); reason != "" {
		f.fail(name, "%s", reason)
	}
	return s
}

func (f *fields) timeOpt(name string) string {
	if !f.has(name) {
		return ""
	}
	return f.time(name)
}

// array gives the canonical elements of a required array.
func (f *fields) array(name string) [][]byte {
	v := f.raw(name)
	if v == nil {
		return nil
	}
	if v[0] != '[' {
		f.fail(name, "must be an array")
		return nil
	}
	return elements(v)
}

// texts gives a required array of strings.
func (f *fields) texts(name string) []string {
	all := f.array(name)
	out := make([]string, 0, len(all))
	for i, v := range all {
		if v[0] != '"' {
			f.fail(name+"."+strconv.Itoa(i), "must be a string")
			return nil
		}
		out = append(out, unquote(v))
	}
	return out
}

// done answers the first fault, or the first member that nobody asked for.
func (f *fields) done() error {
	for _, s := range f.slots[:f.n] {
		if !s.read {
			f.fail(string(s.name), "unknown member")
		}
	}
	if f.failed == nil {
		return nil
	}
	return f.failed
}

// elements splits a canonical array.
func elements(canon []byte) [][]byte {
	var out [][]byte
	for at := 1; canon[at] != ']'; {
		if canon[at] == ',' {
			at++
		}
		end := skip(canon, at)
		out = append(out, canon[at:end])
		at = end
	}
	return out
}

// skip gives the end of the canonical value that begins at from.
func skip(canon []byte, from int) int {
	switch canon[from] {
	case '"':
		return skipText(canon, from)
	case '{', '[':
		at := from + 1
		for depth := 1; depth > 0; {
			switch canon[at] {
			case '"':
				at = skipText(canon, at)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			at++
		}
		return at
	}
	at := from
	for at < len(canon) && canon[at] != ',' && canon[at] != '}' && canon[at] != ']' {
		at++
	}
	return at
}

func skipText(canon []byte, from int) int {
	at := from + 1
	for {
		at += bytes.IndexByte(canon[at:], '"') + 1
		back := at - 2
		for canon[back] == '\\' {
			back--
		}
		if (at-2-back)%2 == 0 {
			return at // the quote is not escaped
		}
	}
}

// unquote gives the text of a canonical string.
func unquote(v []byte) string {
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1])
	}
	plain, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		panic("record: canonical string does not unquote: " + err.Error())
	}
	return string(plain)
}
