package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// MaxDepth is the deepest nesting of objects and arrays in a hashed document.
const MaxDepth = 16

// largest is 2^53-1, the largest integer that every JSON reader keeps exactly.
const largest = "9007199254740991"

// Canonical returns the canonical form of the JSON value in raw. It returns a *FieldError for a
// value without one: floats, -0, integers beyond ±(2^53-1), null, duplicate members, invalid UTF-8,
// lone surrogates, more than MaxDepth levels, or a second value.
func Canonical(raw []byte) ([]byte, error) { return canonical(raw, MaxDepth) }

// bounded returns the canonical form of a document of at most so many canonical bytes.
func bounded(raw []byte, what string, most int) (canon []byte, err error) {
	if len(raw) <= 4*most { // in any spelling
		if canon, err = Canonical(raw); err != nil || len(canon) <= most {
			return canon, err
		}
		raw = canon
	}
	return nil, tooLarge(what, len(raw), most)
}

func tooLarge(what string, n, most int) error {
	return fmt.Errorf("%w: %s of %d bytes, at most %d", ErrHardLimit, what, n, most)
}

func canonical(raw []byte, maxDepth int) ([]byte, error) {
	if err := narrow(raw, maxDepth); err != nil {
		return nil, err
	}
	out := jsontext.Value(bytes.Clone(raw))
	if err := out.Canonicalize(); err != nil {
		return nil, fieldf("", "%v", err)
	}
	return out, nil
}

// narrow refuses values that RFC 8785 accepts and a hashed document may not hold. It reads number
// literals before anything could round them.
func narrow(raw []byte, maxDepth int) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(raw))
	for more := true; more; more = dec.StackDepth() > 0 {
		t, err := dec.ReadToken()
		reason := ""
		switch {
		case err != nil:
			return syntax(dec, err)
		case t.Kind() == jsontext.KindNull:
			reason = "null is not allowed"
		case t.Kind() == jsontext.KindNumber:
			reason = badInteger(t.String())
		case dec.StackDepth() > maxDepth:
			reason = "more than " + strconv.Itoa(maxDepth) + " levels"
		}
		if reason != "" {
			return fieldf(dotted(dec.StackPointer()), "%s", reason)
		}
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &FieldError{Reason: "more than one JSON value"}
	}
	return nil
}

// badInteger returns the reason why the valid JSON number lit may not be in a hashed document, or
// "".
func badInteger(lit string) string {
	if strings.ContainsAny(lit, ".eE") {
		return "numbers must be integers, written without point or exponent"
	}
	digits := strings.TrimPrefix(lit, "-")
	if len(digits) < len(lit) && digits[0] == '0' {
		return "-0 is not allowed"
	}
	if len(digits) > len(largest) || len(digits) == len(largest) && digits > largest {
		return "integer beyond 2^53-1"
	}
	return ""
}

// syntax converts an error of the token reader to a *FieldError.
func syntax(dec *jsontext.Decoder, err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return fieldf(dotted(dec.StackPointer()), "unexpected end of input")
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return fieldf(dotted(e.JSONPointer), "%v at byte %d", e.Err, e.ByteOffset)
	}
	return fieldf("", "%v", err)
}

// dotted converts a JSON pointer to a dotted path: items.3.meta.
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

// encode returns the canonical form of a value whose tags name its members. It returns nil, which
// no parser accepts, if a text is not UTF-8.
func encode(v any) []byte {
	raw, err := json.Marshal(v)
	doc := jsontext.Value(raw)
	if err != nil || doc.Format(jsontext.ReorderRawObjects(true)) != nil {
		return nil
	}
	return doc
}

// contents are the members of payloads and drafts about descriptors and signers: items of a full
// set, put and remove of a delta.
type contents struct {
	Items     *[]jsontext.Value `json:"items,omitzero"`
	Put       *[]jsontext.Value `json:"put,omitzero"`
	Remove    *[]string         `json:"remove,omitzero"`
	SignerSet jsontext.Value    `json:"signer_set,omitzero"`
}

func contentsOf(full bool, put []Item, remove []string, set *SignerSet) (c contents) {
	items := make([]jsontext.Value, len(put))
	for i, it := range put {
		items[i] = it.Bytes
	}
	if full {
		c.Items = &items
	} else {
		c.Put, c.Remove = &items, &remove
	}
	if set != nil {
		c.SignerSet = set.Bytes()
	}
	return c
}

// badTime returns the reason why s is not RFC 3339 in UTC with a Z, or "". time.Parse alone accepts
// one-digit hours and commas.
func badTime(s string) string {
	t, err := time.Parse(time.RFC3339, s)
	body, utc := strings.CutSuffix(s, "Z")
	if err != nil || !utc || strings.HasSuffix(body, ".") ||
		!strings.HasPrefix(t.Format("2006-01-02T15:04:05.000000000"), body) {
		return "must be an RFC 3339 time in UTC, ending in Z"
	}
	return ""
}

// FormatTime formats t as this package writes times: UTC, milliseconds, so that text order is time
// order.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// ParseTime parses the time of a record: RFC 3339 in UTC, ending in Z.
func ParseTime(s string) (time.Time, error) {
	if reason := badTime(s); reason != "" {
		return time.Time{}, &FieldError{Reason: reason}
	}
	return time.Parse(time.RFC3339, s)
}
