package httpapi

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ronbox/httpapi/openapi"
)

// QueryError names the query parameter that is wrong and the reason. It never contains the value.
type QueryError struct{ Param, Reason string }

func (e *QueryError) Error() string {
	if e.Param == "" {
		return "query: " + e.Reason
	}
	return "query parameter " + e.Param + ": " + e.Reason
}

// query holds the query parameters in order. There are so few that a linear search is fastest.
type query []queryParam

type queryParam struct{ name, value string }

// Find returns the value of a parameter, and whether it is present.
func (q query) Find(name string) (value string, given bool) {
	for i := range q {
		if q[i].name == name {
			return q[i].value, true
		}
	}
	return "", false
}

var (
	errQuery     = &QueryError{"", "is malformed"}
	errQueryLong = &QueryError{"", "has too many parameters"}
)

// maxParams exceeds the number of parameters of every route, so that refusing a long query is
// cheap.
const maxParams = 32

// parseQuery parses up to maxParams parameters, and refuses what url.ParseQuery refuses.
func parseQuery(raw string) (query, error) {
	out := make(query, 0, min(1+strings.Count(raw, "&"), maxParams))
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

// checkQuery refuses or drops unknown parameters, depending on the route, and refuses repeated
// ones.
func checkQuery(_ *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		if c.r.URL.RawQuery == "" || b.route.Others == QueryRaw {
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

// pick checks the parameters of a request and drops those that the route ignores.
func (r *Route) pick(q query) (query, error) {
	out := q[:0]
	for _, p := range q {
		known := r.knows(p.name)
		switch {
		case !known && r.Others == QueryStrict:
			return nil, &QueryError{Clip(p.name), "is not known here"}
		case known:
			if _, twice := out.Find(p.name); twice {
				return nil, &QueryError{p.name, "given more than once"}
			}
			out = append(out, p)
		}
	}
	return out, nil
}

// A Parameter is the one declaration of a query parameter: the document describes it, and Of parses
// its values as T.
type Parameter[T any] struct {
	param    openapi.Param
	fallback T    // the value of an absent parameter
	blank    bool // an empty text counts as absent, unless the parameter is required
	parse    func(text string) (v T, wrong string)
}

// Declared is a Parameter of any type.
type Declared interface{ declaration() openapi.Param }

func (p *Parameter[T]) declaration() openapi.Param { return p.param }

// Params lists the query parameters of a route.
func Params(ps ...Declared) []openapi.Param {
	out := make([]openapi.Param, len(ps))
	for i, p := range ps {
		out[i] = p.declaration()
	}
	return out
}

// wantThere is the reason of an error about an absent parameter.
const wantThere = "is missing"

// Of returns the value of the parameter in a request. It panics if the route does not list the
// parameter.
func (p *Parameter[T]) Of(c *Request) (T, error) {
	if !c.route.knows(p.param.Name) {
		panic("httpapi: " + c.route.Method + " " + c.route.Pattern + " does not list the parameter " + p.param.Name)
	}
	text, given := c.query.Find(p.param.Name)
	switch {
	case !given && p.param.Required:
		return p.fallback, &QueryError{p.param.Name, wantThere}
	case !given, text == "" && p.blank && !p.param.Required:
		return p.fallback, nil
	}
	v, wrong := p.parse(text)
	if wrong != "" {
		return p.fallback, &QueryError{p.param.Name, wrong}
	}
	return v, nil
}

// Required returns p as a parameter that every request must have.
func (p *Parameter[T]) Required() *Parameter[T] {
	own := *p
	own.param.Required, own.param.Default = true, ""
	return &own
}

// Number declares a canonical decimal between least and most. An absent one is fallback, which is
// the default of the document if it is not below least.
func Number(name string, fallback, least, most uint64, doc string) *Parameter[uint64] {
	p := &Parameter[uint64]{fallback: fallback}
	p.param = openapi.Param{Name: name, Doc: doc, Sample: uint64(0), Min: least, Max: most}
	if fallback >= least {
		p.param.Default = strconv.FormatUint(fallback, 10)
	}
	p.parse = func(text string) (uint64, string) {
		n, err := strconv.ParseUint(text, 10, 64)
		switch {
		case !CanonicalNumber(text) && text != "0", err != nil, n < least:
			return 0, "must be a whole number from " + strconv.FormatUint(least, 10)
		case n > most:
			return 0, "must be at most " + strconv.FormatUint(most, 10)
		}
		return n, ""
	}
	return p
}

// Text declares a text. An absent one is empty, and so is an empty one.
func Text(name, doc string) *Parameter[string] {
	p := &Parameter[string]{parse: func(text string) (string, string) { return text, "" }}
	p.param = openapi.Param{Name: name, Doc: doc}
	return p
}

// Checked returns a Text that is refused with want unless ok holds. An empty text that is not
// required counts as absent. The document has pattern, if it is not empty.
func Checked(p *Parameter[string], pattern, want string, ok func(string) bool) *Parameter[string] {
	own := *p
	own.param.Pattern, own.blank = pattern, true
	own.parse = func(text string) (string, string) {
		if !ok(text) {
			return "", want
		}
		return text, ""
	}
	return &own
}

// Enum declares a text that is one of values. An absent one is fallback, which is the default of
// the document if it is not empty.
func Enum(name, fallback, doc string, values ...string) *Parameter[string] {
	p := &Parameter[string]{fallback: fallback}
	p.param = openapi.Param{Name: name, Doc: doc, Enum: values, Default: fallback}
	want := "must be " + values[0]
	if last := len(values) - 1; last > 0 {
		want = "must be " + strings.Join(values[:last], ", ") + " or " + values[last]
	}
	p.parse = func(text string) (string, string) {
		if !slices.Contains(values, text) {
			return "", want
		}
		return text, ""
	}
	return p
}

// Flag declares a parameter that is 0 or 1. An absent one is fallback.
func Flag(name string, fallback bool, doc string) *Parameter[bool] {
	p := &Parameter[bool]{fallback: fallback}
	p.param = openapi.Param{Name: name, Doc: doc, Enum: []string{"0", "1"}, Default: "0"}
	if fallback {
		p.param.Default = "1"
	}
	p.parse = func(text string) (bool, string) {
		if text != "0" && text != "1" {
			return false, "must be 0 or 1"
		}
		return text == "1", ""
	}
	return p
}

// Time declares an RFC 3339 time, which Of returns in Unix nanoseconds. An absent one is 0.
func Time(name, doc string) *Parameter[int64] {
	p := &Parameter[int64]{}
	p.param = openapi.Param{Name: name, Doc: doc, Sample: time.Time{}}
	p.parse = func(text string) (int64, string) {
		at, ok := ParseTime(text)
		if !ok {
			return 0, "must be an RFC 3339 time before the year 2262, such as 2030-01-02T15:04:05Z"
		}
		return at.UnixNano(), ""
	}
	return p
}

// ParseTime parses an RFC 3339 time after 1970 that Unix nanoseconds can represent.
func ParseTime(v string) (time.Time, bool) {
	at, err := time.Parse(time.RFC3339, v)
	if err != nil || looseTime(v) {
		return at, false
	}
	return at, at.Year() >= 1970 && at.Year() < 2262 && at.UnixNano() > 0
}

// looseTime reports whether v has a form that time.Parse accepts and RFC 3339 does not: an hour of
// one digit, a comma before the fraction, or an offset of a day.
func looseTime(v string) bool {
	const hour, zone = len("2006-01-02T15"), len("07:00")
	offset := v[len(v)-zone:]
	return v[hour] != ':' || strings.Contains(v, ",") || v[len(v)-1] != 'Z' && (offset[:2] > "23" || offset[3:] > "59")
}
