package openapitest_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/httpapi/openapi"
	"ronbox/httpapi/openapi/openapitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Problem is the body of a refusal; the checker knows it by this name.
type Problem struct {
	Reason string `json:"reason" enum:"not_found|busy"`
}

type thing struct {
	Hash string    `json:"hash" format:"b3"`
	At   time.Time `json:"at,omitzero"`
	N    uint64    `json:"n,omitzero"`
}

func checker(t *testing.T) *openapitest.Checker {
	t.Helper()
	json := func(status int, body any) openapi.Answer {
		return openapi.Answer{Status: status, Type: "application/json", Body: body}
	}
	tagged := json(200, thing{})
	tagged.Headers = []openapi.Param{{Name: "ETag", Required: true}}
	doc, err := openapi.Build(openapi.Info{Title: "t", Version: "1", Problem: Problem{}}, []openapi.Route{
		{
			ID:       "getThing",
			Method:   http.MethodGet,
			Pattern:  "/things/:id",
			Path:     []openapi.Param{{Name: "id"}},
			Answers:  []openapi.Answer{tagged, {Status: 304}},
			Problems: []int{404, 429},
		},
		{
			ID:      "listThings",
			Method:  http.MethodGet,
			Pattern: "/things/all",
			Answers: []openapi.Answer{json(200, []thing{})},
		},
		{
			ID:      "getFile",
			Method:  http.MethodGet,
			Pattern: "/files/*path",
			Path:    []openapi.Param{{Name: "path"}},
			Answers: []openapi.Answer{{Status: 200, Type: "application/octet-stream"}},
		},
		{ID: "getAny", Method: http.MethodGet, Pattern: "/any", Answers: []openapi.Answer{{Status: 200, Type: "*/*"}}},
		{
			ID:      "addThing",
			Method:  http.MethodPost,
			Pattern: "/things",
			Answers: []openapi.Answer{{Status: 204}, {Status: 200, Type: openapi.LinesType, Body: thing{}}},
		},
		{
			ID:      "streamThings",
			Method:  http.MethodGet,
			Pattern: "/stream",
			Answers: []openapi.Answer{
				{Status: 200, Type: openapi.EventsType, Events: []openapi.Event{{Name: "thing", Body: thing{}}}},
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return openapitest.New(t, doc.JSON())
}

const (
	hash    = `"b3:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"`
	one     = `{"hash":` + hash + `}`
	jsonTyp = "application/json; charset=utf-8"
	probTyp = openapi.ProblemType
)

func TestAnswersAreHeldAgainstTheDocument(t *testing.T) {
	c := checker(t)
	for _, tt := range []struct {
		doc, method, path string
		status            int
		typ, body         string
		want              string // of the error, "" for none
	}{
		{"as described", "GET", "/things/7", 200, jsonTyp, one, ""},
		{"all members", "GET", "/things/7", 200, jsonTyp, `{"hash":` + hash + `,"at":"2026-01-02T03:04:05.5Z","n":9}`, ""},
		{"a member unheard of", "GET", "/things/7", 200, jsonTyp, `{"hash":` + hash + `,"x":1}`, "additional properties"},
		{"a member missing", "GET", "/things/7", 200, jsonTyp, `{}`, "missing property"},
		{"a member twice", "GET", "/things/7", 200, jsonTyp, `{"hash":` + hash + `,"hash":` + hash + `}`, "strict JSON"},
		{"a bound passed", "GET", "/things/7", 200, jsonTyp, `{"hash":` + hash + `,"n":-1}`, "minimum"},
		{"a time that is none", "GET", "/things/7", 200, jsonTyp, `{"hash":` + hash + `,"at":"now"}`, "date-time"},
		{"a digest that is none", "GET", "/things/7", 200, jsonTyp, `{"hash":"b3:"}`, "pattern"},
		{"null", "GET", "/things/7", 200, jsonTyp, `{"hash":null}`, "null"},
		{"another media type", "GET", "/things/7", 200, "text/plain", one, "media type"},
		{"another status", "GET", "/things/7", 201, jsonTyp, one, "status 201"},
		{"nothing changed", "GET", "/things/7", 304, "", "", ""},
		{"a body where none is", "GET", "/things/7", 304, "", "x", "none is described"},
		{"a refusal", "GET", "/things/7", 404, probTyp, `{"reason":"not_found"}`, ""},
		{"a refusal of another word", "GET", "/things/7", 404, probTyp, `{"reason":"gone"}`, "value must be one of"},
		{"a refusal not foreseen", "GET", "/things/7", 500, probTyp, `{"reason":"busy"}`, "status 500"},
		{"the fixed path wins", "GET", "/things/all", 200, jsonTyp, `[` + one + `]`, ""},
		{"any bytes", "GET", "/files/a/b", 200, "application/octet-stream", "\x00", ""},
		{"any bytes of any type", "GET", "/any", 200, "image/png", "\x00", ""},
		{"HEAD", "HEAD", "/things/7", 200, jsonTyp, "", ""},
		{"HEAD with a body", "HEAD", "/things/7", 200, jsonTyp, one, "none is described"},
		{"HEAD of nothing", "HEAD", "/things/7", 404, probTyp, "", ""},
		{"no such path", "GET", "/nothing", 404, probTyp, `{"reason":"not_found"}`, ""},
		{"no such path, answered", "GET", "/nothing", 200, jsonTyp, `{}`, "no such operation"},
		{"no such method", "DELETE", "/things/7", 405, "text/plain", "no", "of type"},
		{"preflight", "OPTIONS", "/things/7", 204, "", "", ""},
		{"lines", "POST", "/things", 200, openapi.LinesType, one + "\n" + one + "\n", ""},
		{"a line that is none", "POST", "/things", 200, openapi.LinesType, one + "\n{}\n", "line 2"},
		{"a line without end", "POST", "/things", 200, openapi.LinesType, one, "no end"},
		{"nothing", "POST", "/things", 204, "", "", ""},
		{"frames", "GET", "/stream", 200, openapi.EventsType, ": ping\n\nevent: thing\ndata: " + one + "\n\n", ""},
		{"a frame of another event", "GET", "/stream", 200, openapi.EventsType, "data: {}\n\n", `event "message"`},
		{"a frame of other data", "GET", "/stream", 200, openapi.EventsType, "event: thing\ndata: {}\n\n", "event thing"},
	} {
		h := http.Header{"X-Corr-Id": {"c"}, "Content-Type": {tt.typ}, "Etag": {"e"}}
		err := c.Check(tt.method, tt.path, tt.status, h, []byte(tt.body))
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: err = %v, want %q", tt.doc, err, tt.want)
		}
	}
}

func TestHeadersAreHeldAgainstTheDocument(t *testing.T) {
	c := checker(t)
	for _, tt := range []struct {
		h      http.Header
		status int
		want   string
	}{
		{http.Header{}, 304, "X-Corr-ID is missing"},
		{http.Header{"X-Corr-Id": {"c"}, "Content-Type": {jsonTyp}}, 200, "ETag is missing"},
		{http.Header{"X-Corr-Id": {"c"}, "Retry-After": {"soon"}, "Content-Type": {probTyp}}, 429, "no integer"},
		{http.Header{"X-Corr-Id": {"c"}, "Content-Type": {probTyp}}, 429, "Retry-After is missing"},
	} {
		if err := c.Check("GET", "/things/7", tt.status, tt.h, nil); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: err = %v, want %q", tt.h, err, tt.want)
		}
	}
}

func TestOperationsAreListed(t *testing.T) {
	want := []string{
		"GET /any",
		"GET /files/{path}",
		"GET /stream",
		"GET /things/all",
		"GET /things/{id}",
		"POST /things",
	}
	if got := checker(t).Operations(); !slices.Equal(got, want) {
		t.Errorf("operations %q, want %q", got, want)
	}
	if got := checker(t).Operation("GET", "/things/7"); got != want[4] {
		t.Errorf("operation %q, want %q", got, want[3])
	}
	if got := checker(t).Operation("PUT", "/things/7"); got != "" {
		t.Errorf("operation %q, want none", got)
	}
}
