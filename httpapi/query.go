package httpapi

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// QueryError says which query parameter is wrong. It never repeats the value.
type QueryError struct{ Param, Reason string }

func (e *QueryError) Error() string {
	if e.Param == "" {
		return "query: " + e.Reason
	}
	return "query parameter " + e.Param + ": " + e.Reason
}

// query is what a request asks with, in the order given: so little that looking through it is the quickest way to look it up.
type query []queryParam

type queryParam struct{ name, value string }

// Get is the value of a parameter, "" without one.
func (q query) Get(name string) string {
	for i := range q {
		if q[i].name == name {
			return q[i].value
		}
	}
	return ""
}

// Has tells whether a parameter is there.
func (q query) Has(name string) bool {
	return slices.ContainsFunc(q, func(p queryParam) bool { return p.name == name })
}

var (
	errQuery     = &QueryError{"", "is malformed"}
	errQueryLong = &QueryError{"", "has too many parameters"}
)

// maxParams are more parameters than any route knows: a header full of them costs little to refuse.
const maxParams = 32

// parseQuery reads up to maxParams parameters and refuses what url.ParseQuery does.
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

// checkQuery refuses parameters that the route does not know, so that a misspelt one is not ignored.
func checkQuery(_ *Server, b *bound, next handler) handler {
	return func(c *call) error {
		if c.r.URL.RawQuery == "" {
			return next(c)
		}
		q, err := parseQuery(c.r.URL.RawQuery)
		if err != nil {
			return err
		}
		for i, p := range q {
			if !b.route.knows(p.name) {
				return &QueryError{clip(p.name), "is not known here"}
			}
			if q[:i].Has(p.name) {
				return &QueryError{p.name, "given more than once"}
			}
		}
		c.query = q
		return next(c)
	}
}

// number reads a canonical decimal of 1..most; absent is fallback.
func (c *call) number(name string, fallback, most uint64) (uint64, error) {
	v := c.query.Get(name)
	if v == "" && !c.query.Has(name) {
		return fallback, nil
	}
	if !canonicalInt(v) {
		return 0, &QueryError{name, "must be a whole number from 1"}
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n > most {
		return 0, &QueryError{name, "must be at most " + strconv.FormatUint(most, 10)}
	}
	return n, nil
}

// required is number for a parameter that must be there.
func (c *call) required(name string, most uint64) (uint64, error) {
	if !c.query.Has(name) {
		return 0, &QueryError{name, "is missing"}
	}
	return c.number(name, 0, most)
}

// canonicalInt tells [1-9][0-9]{0,15}: one spelling for each number.
func canonicalInt(s string) bool {
	if len(s) == 0 || len(s) > 16 || s[0] == '0' {
		return false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
