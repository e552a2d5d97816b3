package httpapi

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/unit"
)

// MaxNumber is the largest number in a path or a query: the largest that all JSON readers represent
// exactly.
const MaxNumber = 1<<53 - 1

// BadQuery, BadHeader and BadBody return an error for a part of the request.
func BadQuery(param, reason string) error { return &QueryError{param, reason} }
func BadHeader(name, reason string) error { return &HeaderError{name, reason} }
func BadBody(member, reason string) error { return &BodyError{member, reason} }

// HeaderError names the malformed request header and the reason. It never contains the value.
type HeaderError struct{ Header, Reason string }

func (e *HeaderError) Error() string { return "header " + e.Header + ": " + e.Reason }

// HeaderLines returns the values of a header of the request, one a line. Callers must not modify
// them.
func (r *Request) HeaderLines(name string) []string { return r.r.Header.Values(name) }

// Single returns the value of a header, by its canonical name. It returns an error if the header is
// repeated.
func (r *Request) Single(name string) (string, bool, error) {
	switch v := r.r.Header[name]; len(v) {
	case 0:
		return "", false, nil
	case 1:
		return v[0], true, nil
	default:
		return "", false, &HeaderError{name, "given more than once"}
	}
}

const (
	timeoutHeader  = "Request-Timeout" // seconds, may have a fraction
	deadlineHeader = "Deadline"        // RFC 3339
	maxTimeout     = 86_400
)

// shorten applies the deadline that the caller asks for.
func (r *Request) shorten() error {
	v, ok, wrong := r.Single(timeoutHeader)
	if ok {
		var d time.Duration
		if d, wrong = parseTimeout(v); wrong == nil {
			r.sooner(r.started.Add(d))
		}
	}
	v, ok, err := r.Single(deadlineHeader)
	if ok {
		at, bad := time.Parse(time.RFC3339, v)
		if bad != nil {
			return cmp.Or[error](wrong, &HeaderError{deadlineHeader, "must be an RFC 3339 time"})
		}
		r.sooner(at)
	}
	return cmp.Or(wrong, err)
}

// sooner applies one such deadline.
func (r *Request) sooner(at time.Time) {
	if r.named.IsZero() || at.Before(r.named) {
		r.named = at
	}
	if !r.deadline.IsZero() && at.Before(r.deadline) {
		r.deadline = at
	}
}

// CallerDeadline returns the earliest deadline that the caller has named, even if that of the route
// is earlier. It is zero without one.
func (r *Request) CallerDeadline() time.Time { return r.named }

func parseTimeout(v string) (time.Duration, error) {
	sec, err := strconv.ParseFloat(v, 64)
	if err != nil || !decimalText(v) || !(sec > 0 && sec <= maxTimeout) {
		return 0, &HeaderError{timeoutHeader, "must be seconds above 0, at most " + strconv.Itoa(maxTimeout)}
	}
	return time.Duration(sec * float64(time.Second)), nil
}

// decimalText reports whether v is a plain decimal. ParseFloat also accepts signs, exponents, hex
// and Inf.
func decimalText(v string) bool {
	return v != "" && v[0] != '.' && strings.Trim(v, "0123456789.") == ""
}

// bearer returns the token of the Authorization header. A malformed header yields the empty token,
// which auth refuses.
func bearer(r *http.Request) (token string, given bool) {
	lines := r.Header["Authorization"]
	if len(lines) != 1 {
		return "", len(lines) > 0
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", true
	}
	return token, true
}

// NamePattern is the regular expression of IsName.
const NamePattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

// IsName reports whether s consists of letters, digits and "._-" and begins with a letter or digit.
func IsName(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// CanonicalNumber reports whether s matches [1-9][0-9]{0,15}, so that each number has one spelling.
func CanonicalNumber(s string) bool {
	return s != "" && len(s) <= 16 && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

// IsULID reports whether s is 26 upper-case digits of Crockford's base 32 with a value below 2^128.
func IsULID(s string) bool {
	if len(s) != ulid.EncodedSize || s[0] > '7' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
		case c >= 'A' && c <= 'Z' && c != 'I' && c != 'L' && c != 'O' && c != 'U':
		default:
			return false
		}
	}
	return true
}

// isUUID reports whether s is 8-4-4-4-12 hexadecimal digits.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if i == 8 || i == 13 || i == 18 || i == 23 {
			if c != '-' {
				return false
			}
		} else if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
			return false
		}
	}
	return true
}

// Clip shortens a text of the caller that is repeated in an answer.
func Clip(s string) string { return strings.ToValidUTF8(unit.Clip(s, 64), "?") }
