package httpapi

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is how deeply the arrays and objects of a body may nest.
const maxDepth = 32

// BodyError says which member of a body, as a dotted path, is wrong and how. Its text never repeats a value.
type BodyError struct{ Field, Reason string }

func (e *BodyError) Error() string {
	if e.Field == "" {
		return "body: " + e.Reason
	}
	return e.Field + ": " + e.Reason
}

// decode reads the whole of body into v, strictly: an unknown, repeated or wrongly typed member, a null, bytes after
// the value, bad UTF-8 and deep nesting are refused, and the member is named.
func decode(body []byte, v any) error {
	if err := scan(body); err != nil {
		return err
	}
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		return bodyError(err)
	}
	return nil
}

// scan walks the tokens of body, members that stay raw included.
func scan(body []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	if dec.PeekKind() != '{' {
		if len(bytes.TrimSpace(body)) == 0 {
			return &BodyError{"", "is empty"}
		}
		return &BodyError{"", "must be one JSON object"}
	}
	for {
		tok, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bodyError(err)
		}
		if dec.StackDepth() > maxDepth {
			return &BodyError{dotted(dec.StackPointer()), "is nested too deeply"}
		}
		if tok.Kind() == 'n' {
			return &BodyError{dotted(dec.StackPointer()), "must not be null"}
		}
	}
}

// bodyError names the member that the reader refused.
func bodyError(err error) *BodyError {
	var syn *jsontext.SyntacticError
	var sem *json.SemanticError
	switch {
	case errors.As(err, &syn):
		return &BodyError{dotted(syn.JSONPointer), syntaxReason(syn)}
	case errors.As(err, &sem) && errors.Is(sem.Err, json.ErrUnknownName):
		return &BodyError{dotted(sem.JSONPointer), "is not a known member"}
	case errors.As(err, &sem):
		return &BodyError{dotted(sem.JSONPointer), typeReason(sem)}
	}
	return &BodyError{"", "is not valid JSON"}
}

func syntaxReason(err *jsontext.SyntacticError) string {
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "is given more than once"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "ends too early"
	case strings.Contains(err.Error(), "UTF-8"):
		return "is not valid UTF-8"
	}
	return "is not valid JSON"
}

// typeReason says what the member must be instead. The bodies hold no other types.
func typeReason(err *json.SemanticError) string {
	if err.JSONKind == 0 || err.GoType == nil {
		return "has a wrong value"
	}
	switch err.GoType.Kind() {
	case reflect.String:
		return "must be a string"
	case reflect.Slice:
		return "must be an array"
	case reflect.Struct:
		return "must be an object"
	}
	return "has a wrong type"
}

// dotted spells a JSON pointer as people name members: items.3.id.
func dotted(p jsontext.Pointer) string {
	var b strings.Builder
	for tok := range p.Tokens() {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(clip(tok))
	}
	return b.String()
}

// clip bounds what a stranger can have repeated to him.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return strings.ToValidUTF8(s, "?")
	}
	return strings.ToValidUTF8(s[:most], "?") + "…"
}
