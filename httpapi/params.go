package httpapi

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// MaxNumber is the largest number in a path or a query: the largest that every reader of JSON keeps exactly.
const MaxNumber = 1<<53 - 1

// QueryError says which query parameter is wrong. It never repeats the value.
type QueryError struct{ Param, Reason string }

func (e *QueryError) Error() string {
	if e.Param == "" {
		return "query: " + e.Reason
	}
	return "query parameter " + e.Param + ": " + e.Reason
}

// BadQuery, BadHeader and BadBody say what is wrong with a part of the request.
func BadQuery(param, reason string) error { return &QueryError{param, reason} }
func BadHeader(name, reason string) error { return &HeaderError{name, reason} }
func BadBody(member, reason string) error { return &BodyError{member, reason} }

// Query is what a request asks with, in the order given: so little that looking through it is the quickest way to look it up.
type Query []queryParam

type queryParam struct{ name, value string }

// Get is the value of a parameter, "" without one.
func (q Query) Get(name string) string {
	for i := range q {
		if q[i].name == name {
			return q[i].value
		}
	}
	return ""
}

// Has reports whether a parameter is there.
func (q Query) Has(name string) bool {
	return slices.ContainsFunc(q, func(p queryParam) bool { return p.name == name })
}

var (
	errQuery     = &QueryError{"", "is malformed"}
	errQueryLong = &QueryError{"", "has too many parameters"}
)

// maxParams are more parameters than any route knows: a header full of them costs little to refuse.
const maxParams = 32

// parseQuery reads up to maxParams parameters and refuses what url.ParseQuery does.
func parseQuery(raw string) (Query, error) {
	out := make(Query, 0, min(1+strings.Count(raw, "&"), maxParams))
	for pair := range strings.SplitSeq(raw, "&") {
		if pair == "" {
			continue
		}
		name, value, _ := strings.Cut(pair, "=")
		name, bad := url.QueryUnescape(name)
		value, worse := url.QueryUnescape(value)
		if bad != nil || worse != nil || strings.Contains(pair, ";") {
			return nil, errQuery
		}
		if len(out) == maxParams {
			return nil, errQueryLong
		}
		out = append(out, queryParam{name, value})
	}
	return out, nil
}

// checkQuery refuses a parameter that the route does not know, or drops it, or passes it on, as the route says; one that it knows
// comes once.
func checkQuery(_ *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		if c.r.URL.RawQuery == "" {
			return next(c)
		}
		q, err := parseQuery(c.r.URL.RawQuery)
		if err != nil {
			return err
		}
		if c.query, err = b.route.pick(q); err != nil {
			return err
		}
		return next(c)
	}
}

// pick checks the parameters of a request, and leaves out what the route drops.
func (r *Route) pick(q Query) (Query, error) {
	out := q[:0]
	for _, p := range q {
		known := r.knows(p.name)
		switch {
		case !known && r.Others == QueryStrict:
			return nil, &QueryError{Clip(p.name), "is not known here"}
		case known && out.Has(p.name):
			return nil, &QueryError{p.name, "given more than once"}
		case known || r.Others == QueryPass:
			out = append(out, p)
		}
	}
	return out, nil
}

// Query is what the request asks with, nil without a query.
func (r *Request) Query() Query { return r.query }

// Number reads a canonical decimal of least..most; absent is fallback.
func (r *Request) Number(name string, fallback, least, most uint64) (uint64, error) {
	v := r.query.Get(name)
	if v == "" && !r.query.Has(name) {
		return fallback, nil
	}
	n, err := strconv.ParseUint(v, 10, 64)
	switch {
	case !CanonicalNumber(v) && v != "0", err != nil, n < least:
		return 0, &QueryError{name, "must be a whole number from " + strconv.FormatUint(least, 10)}
	case n > most:
		return 0, &QueryError{name, "must be at most " + strconv.FormatUint(most, 10)}
	}
	return n, nil
}

const wantThere = "is missing"

// RequiredNumber is Number from 1 for a parameter that must be there.
func (r *Request) RequiredNumber(name string, most uint64) (uint64, error) {
	if !r.query.Has(name) {
		return 0, &QueryError{name, wantThere}
	}
	return r.Number(name, 0, 1, most)
}

// HeaderError says which request header is malformed. It never repeats the value.
type HeaderError struct{ Header, Reason string }

func (e *HeaderError) Error() string { return "header " + e.Header + ": " + e.Reason }

// Single is the one value of a header, by its canonical name; a header given twice says nothing.
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
	timeoutHeader  = "Request-Timeout" // seconds, fractions allowed
	deadlineHeader = "Deadline"        // RFC 3339
	maxTimeout     = 86_400
)

// shorten applies the caller's own limits.
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

// sooner takes a limit that the caller names.
func (r *Request) sooner(at time.Time) {
	if r.named.IsZero() || at.Before(r.named) {
		r.named = at
	}
	if !r.deadline.IsZero() && at.Before(r.deadline) {
		r.deadline = at
	}
}

// CallerDeadline is the earliest that the caller has named, also one after the route's own; zero: none.
func (r *Request) CallerDeadline() time.Time { return r.named }

func parseTimeout(v string) (time.Duration, error) {
	sec, err := strconv.ParseFloat(v, 64)
	if err != nil || !decimalText(v) || !(sec > 0 && sec <= maxTimeout) {
		return 0, &HeaderError{timeoutHeader, "must be seconds above 0, at most " + strconv.Itoa(maxTimeout)}
	}
	return time.Duration(sec * float64(time.Second)), nil
}

// decimalText reports whether v is a plain decimal: ParseFloat takes signs, exponents, hex and Inf too.
func decimalText(v string) bool {
	return v != "" && v[0] != '.' && strings.Trim(v, "0123456789.") == ""
}

// bearer reads the token of the Authorization header. What is not one such token is the empty one, which auth refuses.
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

// NamePattern is the regular expression of what IsName takes.
const NamePattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

// IsName reports whether s is a word of letters, digits and "._-" that begins with one of the first two.
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

// CanonicalNumber reports whether s is [1-9][0-9]{0,15}: one spelling for each number.
func CanonicalNumber(s string) bool {
	return s != "" && len(s) <= 16 && s[0] != '0' && strings.Trim(s, "0123456789") == ""
}

// IsULID reports whether s is 26 digits of Crockford's base 32, no larger than 128 bits, in upper case.
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

// Clip bounds what a stranger can have repeated to him.
func Clip(s string) string {
	const most = 64
	if len(s) <= most {
		return strings.ToValidUTF8(s, "?")
	}
	return strings.ToValidUTF8(s[:most], "?") + "…"
}
