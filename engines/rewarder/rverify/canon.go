package rverify

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
)

// FieldError names an invalid member of a document or line of a file, and the reason.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return strings.TrimPrefix(e.Field+": "+e.Reason, ": ") }

func wrong(field, reason string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(reason, args...)}
}

// within prefixes the field of a fault with the name of the document.
func within(doc string, err error) error {
	if f, ok := errors.AsType[*FieldError](err); ok {
		return &FieldError{strings.TrimSuffix(doc+"."+f.Field, "."), f.Reason}
	}
	return err
}

// document is a JSON object with members that are strings, lists of strings, or documents.
type document map[string]any

// parse parses a document that has exactly the members of form. form lists paths such as
// "caps.excess", in which "*" matches any name or index. With exact it accepts only the canonical
// spelling.
func parse(raw []byte, exact bool, form ...string) (document, error) {
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
			at := strings.ReplaceAll(strings.TrimPrefix(string(s.JSONPointer), "/"), "/", ".")
			return nil, wrong(at, "is given twice")
		}
		return nil, wrong("", "is not an object in strict JSON")
	}
	has := map[string]bool{}
	if err := flatten("", map[string]any(d), has); err != nil {
		return nil, err
	}
	for _, at := range slices.Sorted(maps.Keys(has)) {
		if !slices.ContainsFunc(form, func(f string) bool { ok, _ := path.Match(f, at); return ok }) {
			return nil, wrong(at, "is not a known member")
		}
	}
	for _, f := range form {
		if !has[f] && !strings.Contains(f, "*") {
			return nil, wrong(f, "is missing")
		}
	}
	if exact && !bytes.Equal(raw, canonical(d)) {
		return nil, wrong("", "is not in canonical form: members sorted, no spaces, no line end")
	}
	return d, nil
}

// flatten collects the paths of all strings.
func flatten(at string, v any, into map[string]bool) error {
	var err error
	switch v := v.(type) {
	case string:
		into[at] = true
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			err = cmp.Or(err, flatten(strings.TrimPrefix(at+"."+name, "."), v[name], into))
		}
	case []any:
		for i, one := range v {
			err = cmp.Or(err, flatten(at+"."+strconv.Itoa(i), one, into))
		}
	default:
		return wrong(at, "must be a string: every number is one, of decimal digits")
	}
	return err
}

// text returns the string at a path, or "".
func (d document) text(path string) string {
	name, rest, deeper := strings.Cut(path, ".")
	if deeper {
		in, _ := d[name].(map[string]any)
		return document(in).text(rest)
	}
	s, _ := d[name].(string)
	return s
}

// Bytes returns the document in canonical spelling. CID returns its id.
func (d document) Bytes() []byte  { return canonical(d) }
func (d document) CID() b3.Digest { return b3.Sum(d.Bytes()) }

// canonical returns the canonical spelling of a document: members sorted, no spaces.
func canonical(doc any) []byte {
	raw, err := json.Marshal(doc)
	v := jsontext.Value(raw)
	if err != nil || v.Canonicalize() != nil {
		panic("rverify: a document of plain texts cannot be written")
	}
	return v
}

// Bounds of numbers.
var (
	most64  = new(big.Int).SetUint64(1<<64 - 1)
	most128 = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 128), big.NewInt(1))
)

// Grammars of names.
var (
	epochName  = regexp.MustCompile(`^[A-Za-z0-9_.:-]{1,128}$`)
	actorName  = regexp.MustCompile(`^[A-Za-z0-9:/_-]{1,160}$`)
	metricName = regexp.MustCompile(`^[a-z0-9_]{1,64}$`)
	digestText = regexp.MustCompile(`^b3:[0-9a-f]{64}$`)
	decimal    = regexp.MustCompile(`^(0|[1-9][0-9]{0,38})$`)
)

// checker records the first fault of several checks.
type checker struct{ err error }

func (c *checker) fail(bad bool, field, reason string, args ...any) {
	if bad && c.err == nil {
		c.err = wrong(field, reason, args...)
	}
}

func (c *checker) match(field, s string, grammar *regexp.Regexp) {
	c.fail(!grammar.MatchString(s) || strings.HasPrefix(s, "sys:") || s == "." || s == "..", field,
		"must match %s, and not be reserved", grammar)
}

// number parses a whole number from 0 to most in canonical spelling.
func (c *checker) number(field, s string, most *big.Int) *big.Int {
	n := new(big.Int)
	if c.fail(!decimal.MatchString(s), field,
		"must be a string of decimal digits, at most %s, without sign or leading zero", most); c.err == nil {
		n.SetString(s, 10)
	}
	c.fail(n.Cmp(most) > 0, field, "must be at most %s", most)
	return n
}

// digest parses a digest that was checked before.
func digest(s string) b3.Digest {
	d, _ := b3.Parse(s)
	return d
}
