package record

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is how many objects and arrays may enclose each other in a hashed document.
const MaxDepth = 16

// largest is 2^53-1, the largest integer that every JSON reader keeps exactly.
const largest = "9007199254740991"

// Canonical answers the one canonical form of the JSON value in raw. Anything that does not have one is a *FieldError: floats, -0, integers
// beyond ±(2^53-1), null, duplicate members, invalid UTF-8, lone surrogates, more than MaxDepth levels, or a second value.
func Canonical(raw []byte) ([]byte, error) { return canonical(raw, MaxDepth) }

func canonical(raw []byte, maxDepth int) ([]byte, error) {
	c := canonicaliser{dec: jsontext.NewDecoder(bytes.NewBuffer(raw)), out: make([]byte, 0, len(raw)), maxDepth: maxDepth}
	if err := c.value(0); err != nil {
		return nil, err
	}
	if _, err := c.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, &FieldError{Reason: "more than one JSON value"}
	}
	return c.out, nil
}

// canonicaliser copies tokens from dec to out in canonical form. Each object is written in input order first and its members are put in
// order when it closes, so that no tree is built.
type canonicaliser struct {
	dec      *jsontext.Decoder
	out      []byte
	members  []member // of all open objects, innermost last
	scratch  []byte
	maxDepth int
}

// member is one member of an open object: out[start:end] holds name, colon and value.
type member struct {
	start, end int
	name       string // unquoted
}

func (c *canonicaliser) value(depth int) error {
	switch kind := c.dec.PeekKind(); kind {
	case '{', '[':
		if depth == c.maxDepth {
			if _, err := c.dec.ReadToken(); err != nil {
				return c.syntax(err)
			}
			return c.refuse("more than %d levels", c.maxDepth)
		}
		if kind == '{' {
			return c.object(depth + 1)
		}
		return c.array(depth + 1)
	case '"':
		return c.text()
	case '0':
		return c.number()
	case 't', 'f':
		v, err := c.dec.ReadValue()
		c.out = append(c.out, v...)
		return c.syntax(err)
	case 'n':
		if _, err := c.dec.ReadToken(); err != nil {
			return c.syntax(err)
		}
		return c.refuse("null is not allowed")
	}
	_, err := c.dec.ReadToken()
	if err == nil {
		return c.refuse("no JSON value")
	}
	return c.syntax(err)
}

func (c *canonicaliser) array(depth int) error {
	if _, err := c.dec.ReadToken(); err != nil {
		return c.syntax(err)
	}
	c.out = append(c.out, '[')
	for n := 0; c.dec.PeekKind() != ']'; n++ {
		if n > 0 {
			c.out = append(c.out, ',')
		}
		if err := c.value(depth); err != nil {
			return err
		}
	}
	_, err := c.dec.ReadToken()
	c.out = append(c.out, ']')
	return c.syntax(err)
}

func (c *canonicaliser) object(depth int) error {
	if _, err := c.dec.ReadToken(); err != nil {
		return c.syntax(err)
	}
	c.out = append(c.out, '{')
	first, sorted := len(c.members), true
	for c.dec.PeekKind() != '}' {
		m := member{start: len(c.out)}
		name, err := c.dec.ReadToken()
		if err != nil {
			return c.syntax(err)
		}
		if name.Kind() != '"' {
			return c.refuse("a member name must be a string")
		}
		m.name = name.String()
		c.out = append(appendText(c.out, m.name), ':')
		if err := c.value(depth); err != nil {
			return err
		}
		m.end = len(c.out)
		c.out = append(c.out, ',')
		if n := len(c.members); n > first && compareUTF16(c.members[n-1].name, m.name) > 0 {
			sorted = false
		}
		c.members = append(c.members, m)
	}
	if _, err := c.dec.ReadToken(); err != nil {
		return c.syntax(err)
	}
	if !sorted {
		c.reorder(c.members[first:])
	}
	if len(c.members) > first {
		c.out = c.out[:len(c.out)-1] // the last comma
	}
	c.members = c.members[:first]
	c.out = append(c.out, '}')
	return nil
}

// reorder rewrites the members of an object, each followed by a comma, in canonical order in place.
func (c *canonicaliser) reorder(members []member) {
	from := members[0].start
	slices.SortFunc(members, func(a, b member) int { return compareUTF16(a.name, b.name) })
	c.scratch = c.scratch[:0]
	for _, m := range members {
		c.scratch = append(append(c.scratch, c.out[m.start:m.end]...), ',')
	}
	copy(c.out[from:], c.scratch)
}

func (c *canonicaliser) text() error {
	v, err := c.dec.ReadValue()
	if err != nil {
		return c.syntax(err)
	}
	if bytes.IndexByte(v, '\\') < 0 {
		c.out = append(c.out, v...) // nothing escaped, and nothing in it that has to be
		return nil
	}
	plain, err := jsontext.AppendUnquote(nil, v)
	if err != nil {
		return c.syntax(err)
	}
	c.out = appendText(c.out, string(plain))
	return nil
}

func (c *canonicaliser) number() error {
	v, err := c.dec.ReadValue()
	if err != nil {
		return c.syntax(err)
	}
	if reason := badInteger(v); reason != "" {
		return c.refuse("%s", reason)
	}
	c.out = append(c.out, v...)
	return nil
}

// badInteger says why the valid JSON number lit has no place in a hashed document, or "".
func badInteger(lit []byte) string {
	if bytes.ContainsAny(lit, ".eE") {
		return "numbers must be integers, written without point or exponent"
	}
	digits := bytes.TrimPrefix(lit, []byte("-"))
	if len(digits) < len(lit) && digits[0] == '0' {
		return "-0 is not allowed"
	}
	if len(digits) > len(largest) || len(digits) == len(largest) && string(digits) > largest {
		return "integer beyond 2^53-1"
	}
	return ""
}

// refuse names the value that was read last.
func (c *canonicaliser) refuse(format string, args ...any) error {
	return fieldf(dotted(c.dec.StackPointer()), format, args...)
}

// syntax turns an error of the token reader into a *FieldError.
func (c *canonicaliser) syntax(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fieldf(dotted(c.dec.StackPointer()), "unexpected end of input")
	}
	var se *jsontext.SyntacticError
	if errors.As(err, &se) {
		return fieldf(dotted(se.JSONPointer), "%v at byte %d", se.Err, se.ByteOffset)
	}
	return fieldf("", "%v", err)
}

// dotted writes a JSON pointer as people write paths: items.3.meta.
func dotted(p jsontext.Pointer) string {
	var b strings.Builder
	for t := range p.Tokens() {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(t)
	}
	return b.String()
}
