package record

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// Every error with details belongs to a class and has its details in its text.
func TestErrorClasses(t *testing.T) {
	for _, tt := range []struct {
		err, class error
		text       string
	}{
		{&FieldError{"items.3.id", "missing"}, ErrMalformed, "malformed: items.3.id: missing"},
		{&FieldError{Reason: "unexpected end"}, ErrMalformed, "malformed: unexpected end"},
		{&RevokedKeyError{"org:a#b", StatusRetired}, ErrRevokedKey, "key of org:a#b is retired"},
		{&QuorumError{1, 3}, ErrQuorum, "quorum not reached: 1 of 3 approvals"},
	} {
		if !errors.Is(fmt.Errorf("propose: %w", tt.err), tt.class) || tt.err.Error() != tt.text {
			t.Errorf("%v is not %v", tt.err, tt.class)
		}
		for _, other := range []error{ErrMalformed, ErrRevokedKey, ErrQuorum, ErrInvalidSig} {
			if other != tt.class && errors.Is(tt.err, other) {
				t.Errorf("%v is %v too", tt.err, other)
			}
		}
	}
}

// An error is one short line, however long the names in it are.
func TestFieldErrorsAreShort(t *testing.T) {
	long := strings.Repeat("é", 1<<18)
	for _, raw := range []string{`{"` + long + `":null}`, `{"` + long + `":1,"` + long + `":1}`, `{"` + long + `":1}`, `{"a":{"` + long + `":[{"b":1.5}]}}`} {
		_, err := ParsePayload([]byte(raw))
		if err == nil || len(err.Error()) > 600 || !utf8.ValidString(err.Error()) {
			t.Errorf("%.20s…: an error of %d bytes", raw, len(err.Error()))
		}
	}
}
