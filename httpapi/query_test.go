package httpapi

import (
	"net/http"
	"strings"
	"testing"
)

// A parameter is described and parsed by one declaration.
func TestParameters(t *testing.T) {
	route := &Route{Method: http.MethodGet, Pattern: "/x"}
	for _, tt := range []parameterCase{
		read(Number("n", 7, 1, 9, ""), "", uint64(7), "", "7"),
		read(Number("n", 7, 1, 9, ""), "n=9", uint64(9), "", "7"),
		read(Number("n", 7, 1, 9, ""), "n=10", nil, "must be at most 9", "7"),
		read(Number("n", 7, 1, 9, ""), "n=0", nil, "must be a whole number from 1", "7"),
		read(Number("n", 7, 1, 9, ""), "n=01", nil, "must be a whole number from 1", "7"),
		read(Number("n", 7, 1, 9, ""), "n=", nil, "must be a whole number from 1", "7"),
		read(Number("n", 0, 1, 9, ""), "", uint64(0), "", ""),
		read(Number("n", 0, 0, 9, ""), "n=0", uint64(0), "", "0"),
		read(Number("n", 0, 1, 9, "").Required(), "", nil, "is missing", ""),
		read(Text("t", ""), "t=a+b", "a b", "", ""),
		read(Text("t", "").Required(), "", nil, "is missing", ""),
		read(Checked(Text("t", ""), "^a$", "must be a", isA), "t=b", nil, "must be a", ""),
		read(Checked(Text("t", ""), "^a$", "must be a", isA), "t=", "", "", ""),
		read(Checked(Text("t", "").Required(), "^a$", "must be a", isA), "t=", nil, "must be a", ""),
		read(Checked(Text("t", ""), "^a$", "must be a", isA).Required(), "t=", nil, "must be a", ""),
		read(Checked(Text("t", ""), "^a$", "must be a", isA).Required(), "", nil, "is missing", ""),
		read(Enum("e", "b", "", "a", "b", "c"), "", "b", "", "b"),
		read(Enum("e", "", "", "a", "b", "c"), "e=d", nil, "must be a, b or c", ""),
		read(Enum("e", "", "", "a"), "e=", nil, "must be a", ""),
		read(Flag("f", true, ""), "", true, "", "1"),
		read(Flag("f", false, ""), "f=1", true, "", "0"),
		read(Flag("f", false, ""), "f=true", nil, "must be 0 or 1", "0"),
		read(Time("at", ""), "", int64(0), "", ""),
		read(Time("at", ""), "at=1970-01-01T00:00:01Z", int64(1e9), "", ""),
		read(Time("at", ""), "at=1970-01-01T0:00:01Z", nil, "must be an RFC 3339 time", ""),
	} {
		route.Query = Params(tt.p)
		q, err := parseQuery(tt.raw)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tt.of(&Request{route: route, query: q})
		switch {
		case tt.wrong == "" && (err != nil || got != tt.want):
			t.Errorf("%q: %v, %v, want %v", tt.raw, got, err, tt.want)
		case tt.wrong != "" && (err == nil || !strings.Contains(err.Error(), tt.wrong)):
			t.Errorf("%q: %v, want %s", tt.raw, err, tt.wrong)
		}
		if d := route.Query[0].Default; d != tt.absent {
			t.Errorf("%q: default %q, want %q", tt.raw, d, tt.absent)
		}
	}
}

func isA(v string) bool { return v == "a" }

type parameterCase struct {
	p      Declared
	of     func(*Request) (any, error)
	raw    string // query
	want   any
	wrong  string // text of the error
	absent string // default of the document
}

// read is a row of TestParameters.
func read[T any](p *Parameter[T], raw string, want any, wrong, absent string) parameterCase {
	of := func(c *Request) (any, error) { return p.Of(c) }
	return parameterCase{p, of, raw, want, wrong, absent}
}

// A handler that reads a parameter that its route does not list is a bug.
func TestUnlistedParameter(t *testing.T) {
	defer func() {
		if v, _ := recover().(string); !strings.Contains(v, "GET /x does not list the parameter f") {
			t.Errorf("panic: %q", v)
		}
	}()
	_, _ = Flag("f", false, "").Of(&Request{route: &Route{Method: http.MethodGet, Pattern: "/x"}})
}
