package record

import (
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

func fault(field, format string, args ...any) error {
	return &FieldError{field, fmt.Sprintf(format, args...)}
}

// object is a document before it is written: texts, numbers, digests, amounts, lists of texts and objects by their names.
type object map[string]any

// canonical appends v in the one spelling of documents, which hold printable ASCII alone.
func canonical(dst []byte, v any) []byte {
	switch v := v.(type) {
	case object:
		dst = append(dst, '{')
		for i, name := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = canonical(append(canonical(dst, name), ':'), v[name])
		}
		return append(dst, '}')
	case []string:
		dst = append(dst, '[')
		for i, s := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = canonical(dst, s)
		}
		return append(dst, ']')
	}
	text := strings.ReplaceAll(strings.ReplaceAll(fmt.Sprint(v), `\`, `\\`), `"`, `\"`)
	return append(append(append(dst, '"'), text...), '"')
}

// fields are the members of a document by their paths. Each is taken once; the first fault is kept.
type fields struct {
	flat map[string]any // texts and lists
	err  error
}

// read takes one JSON object apart.
func read(b []byte) *fields {
	f := &fields{flat: map[string]any{}}
	var v map[string]any
	if err := json.Unmarshal(b, &v); err != nil {
		name := "document"
		if at, ok := errors.AsType[*jsontext.SyntacticError](err); ok && at.JSONPointer != "" {
			name = strings.ReplaceAll(string(at.JSONPointer[1:]), "/", ".")
		}
		f.fail(fault(name, "is not JSON of one object without repeated members: %v", err))
	}
	f.flatten("", v)
	return f
}

func (f *fields) flatten(prefix string, v map[string]any) {
	for name, m := range v {
		if sub, ok := m.(map[string]any); ok && len(sub) > 0 {
			f.flatten(prefix+name+".", sub)
		} else {
			f.flat[prefix+name] = m
		}
	}
}

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

func (f *fields) has(path string) bool { _, ok := f.flat[path]; return ok }

// text takes a member, and checks that it is one of the words, if there are any.
func (f *fields) text(path string, words ...string) string {
	v, there := f.flat[path]
	s, ok := v.(string)
	switch delete(f.flat, path); {
	case !there:
		f.fail(fault(path, "is missing"))
	case !ok:
		f.fail(fault(path, "must be a string, numbers too"))
	case len(words) > 0 && !slices.Contains(words, s):
		f.fail(fault(path, "must be %s; %.32q is not supported", strings.Join(words, " or "), s))
	}
	return s
}

func parsed[T any](f *fields, path string, parse func(string) (T, error)) T {
	v, err := parse(f.text(path))
	if err != nil {
		f.fail(fault(path, "%v", err))
	}
	return v
}

func (f *fields) number(path string) uint64         { return parsed(f, path, ParseNumber) }
func (f *fields) amount(path string) engines.Amount { return parsed(f, path, engines.ParseAmount) }
func (f *fields) digest(path string) b3.Digest      { return parsed(f, path, b3.Parse) }

// list takes a list of texts.
func (f *fields) list(path string) []string {
	all, ok := f.flat[path].([]any)
	delete(f.flat, path)
	out := make([]string, 0, len(all))
	for _, v := range all {
		s, is := v.(string)
		out, ok = append(out, s), ok && is
	}
	if !ok {
		f.fail(fault(path, "must be a list of strings"))
	}
	return out
}

// end is the first fault; a member that nobody took is one.
func (f *fields) end() error {
	for _, path := range slices.Sorted(maps.Keys(f.flat)) {
		f.fail(fault(path, "is unknown"))
	}
	return f.err
}

// ParseNumber takes the one spelling of a u64.
func ParseNumber(s string) (uint64, error) {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && strconv.FormatUint(n, 10) == s {
		return n, nil
	}
	return 0, errors.New("must be a decimal string without leading zeros, at most 18446744073709551615")
}

// Bounds of names, bytes.
const (
	maxTenant = 63
	maxWord   = 64
	maxEpoch  = 128
	maxActor  = 160
)

// check is nil for a text of 1 to n bytes of letters, digits and others, upper-case ones only if upper, but for . and .. alone.
func check(field, s string, n int, upper bool, others string) error {
	bad := strings.ContainsFunc(s, func(c rune) bool {
		return !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || upper && 'A' <= c && c <= 'Z' || strings.ContainsRune(others, c))
	})
	if bad || s == "" || len(s) > n || s == "." || s == ".." {
		return fault(field, "must be 1 to %d letters, digits and %s", n, others)
	}
	return nil
}

// CheckTenant is nil for the name of a tenant.
func CheckTenant(s string) error {
	if s != "" && strings.ContainsRune("_-", rune(s[0])) {
		return fault("tenant", "must begin with a letter or a digit")
	}
	return check("tenant", s, maxTenant, false, "_-")
}

// CheckEpoch is nil for the id of an epoch.
func CheckEpoch(s string) error { return check("epoch_id", s, maxEpoch, true, "_.:-") }

// CheckPolicyID is nil for the id of a policy.
func CheckPolicyID(s string) error { return check("id", s, maxWord, true, "_.-") }

// CheckActor is nil for an account that can be paid, the fault of a field if not.
func CheckActor(field, s string) error {
	if err := engines.CheckAccount(s); err != nil || len(s) > maxActor || engines.IsSystemAccount(s) {
		return fault(field, "must be an account of at most %d bytes that is not the ledger's own: letters, digits and : / _ -", maxActor)
	}
	return nil
}
