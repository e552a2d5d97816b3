package openapi_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"ronbox/httpapi/openapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type leaf struct {
	Hash  string          `json:"hash" format:"b3?" doc:"of the thing"`
	Value jsontext.Value  `json:"value"`
	Raw   []byte          `json:"raw,omitempty"`
	Any   map[string]any  `json:"any,omitempty"`
	Parts map[string]leaf `json:"parts,omitempty"`
}

const leafHash = "b3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

type sample struct {
	Name   string        `json:"name" enum:"a|b" doc:"who"`
	Count  uint64        `json:"count" min:"1" max:"9"`
	Rest   uint64        `json:"rest,omitzero"`
	Digits *uint64       `json:"digits,omitzero" max:"9"`
	Signed int32         `json:"signed"`
	Share  float64       `json:"share"`
	Flag   *bool         `json:"flag,omitzero"`
	At     time.Time     `json:"at,omitzero"`
	Leaves []leaf        `json:"leaves"`
	Took   time.Duration `json:"-"`
}

type refusal struct {
	Reason string `json:"reason"`
}

var info = openapi.Info{Title: "Sample", Version: "1.2.3", Description: "d", License: "Apache-2.0", Problem: refusal{}}

func routes() []openapi.Route {
	return []openapi.Route{
		{
			ID:      "getThing",
			Method:  http.MethodGet,
			Pattern: "/things/:id",
			Service: "thing",
			Summary: "Read one",
			Path:    []openapi.Param{{Name: "id", Sample: uint64(0), Min: 1}},
			Query:   []openapi.Param{{Name: "items", Enum: []string{"0", "1"}, Doc: "0 leaves them out"}},
			Headers: []openapi.Param{{Name: "If-None-Match"}},
			Answers: []openapi.Answer{
				{Status: 200, Type: "application/json", Body: sample{}, Headers: []openapi.Param{{Name: "ETag"}}},
				{Status: 304},
			},
			Problems: []int{404, 429},
		},
		{
			ID:      "addThing",
			Method:  http.MethodPost,
			Pattern: "/things/:id",
			Service: "thing",
			Scope:   "thing.write",
			In:      sample{},
			Path:    []openapi.Param{{Name: "id", Sample: uint64(0), Min: 1}},
			Answers: []openapi.Answer{
				{Status: 201, Type: "application/json", Body: leaf{}},
				{Status: 503, Type: "application/json", Body: leaf{}},
			},
			Problems: []int{400, 401, 503},
		},
		{
			ID:      "streamThings",
			Method:  http.MethodGet,
			Pattern: "/things/stream",
			Service: "thing",
			Answers: []openapi.Answer{
				{
					Status: 200,
					Type:   openapi.EventsType,
					Events: []openapi.Event{{Name: "leaf", Body: leaf{}, Doc: "grew"}},
				},
			},
		},
		{
			ID:         "dump",
			Method:     http.MethodPost,
			Pattern:    "/admin/dump/*path",
			Service:    "node",
			Scope:      "node.admin",
			Socket:     true,
			In:         refusal{},
			InOptional: true,
			Path:       []openapi.Param{{Name: "path"}},
			Answers: []openapi.Answer{
				{Status: 200, Type: openapi.LinesType, Body: leaf{}},
				{Status: 206, Type: "application/octet-stream"},
				{Status: 204},
			},
		},
		{
			ID:       "setLevel",
			Method:   http.MethodPut,
			Pattern:  "/admin/level",
			Service:  "node",
			Scope:    "node.level",
			Admin:    true,
			Optional: true,
			Answers:  []openapi.Answer{{Status: 200, Type: "application/json", Body: []string{}}},
		},
	}
}

func build(t *testing.T) *openapi.Document {
	t.Helper()
	d, err := openapi.Build(info, routes())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDocumentIsOpenAPI31(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(build(t).JSON())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater(),
		openapi3.EnableSchemaPatternValidation()); err != nil {
		t.Error(err)
	}
	if !doc.IsOpenAPI31OrLater() || doc.Paths.Len() != 4 {
		t.Errorf("version %s with %d paths", doc.OpenAPI, doc.Paths.Len())
	}
	get := doc.Paths.Find("/things/{id}").Get
	if get.OperationID != "getThing" || len(*get.Security) != 0 || len(get.Parameters) != 4 {
		t.Errorf("get = %+v", get)
	}
	if doc.Paths.Find("/things/{id}").Head != nil {
		t.Error("HEAD is an operation of its own")
	}
	post := doc.Paths.Find("/things/{id}").Post
	if both := post.Responses.Value("503").Value; len(both.Content) != 2 || both.Headers["Retry-After"] == nil {
		t.Errorf("503 is both an answer and a refusal: %+v", both)
	}
	if len(*post.Security) != 2 || !post.RequestBody.Value.Required {
		t.Errorf("post = %+v", post)
	}
	if level := doc.Paths.Find("/admin/level").Put; len(*level.Security) != 3 || len((*level.Security)[0]) != 0 {
		t.Errorf("level = %+v", level.Security)
	}
	dump := doc.Paths.Find("/admin/dump/{path}").Post
	if len(*dump.Security) != 1 || dump.Servers == nil || !strings.Contains(dump.Description, "socket") {
		t.Errorf("dump = %+v", dump)
	}
}

func TestSameRoutesSameBytes(t *testing.T) {
	first := build(t)
	for range 5 {
		again := build(t)
		if !bytes.Equal(first.JSON(), again.JSON()) {
			t.Fatal("two builds differ")
		}
		for _, name := range first.SchemaNames() {
			a, _ := first.Schema(name)
			if b, ok := again.Schema(name); !ok || !bytes.Equal(a, b) {
				t.Fatalf("two builds of %s differ", name)
			}
		}
	}
}

func TestSchemaStandsAlone(t *testing.T) {
	raw, ok := build(t).Schema("leaf")
	const want = `{"$schema":"https://json-schema.org/draft/2020-12/schema","$id":"urn:ronbox:schema:leaf","title":"leaf",` +
		`"description":"answer to POST /things/:id; event leaf of GET /things/stream; line of the answer to POST /admin/dump/*path","type":"object",` +
		`"properties":{"hash":{"description":"of the thing","type":"string","pattern":"^(b3:[0-9a-f]{64})?$","examples":["` + leafHash + `"]},"value":{},` +
		`"raw":{"type":"string","contentEncoding":"base64"},"any":{"type":"object","additionalProperties":{}},` +
		`"parts":{"type":"object","additionalProperties":{"$ref":"#/$defs/leaf"}}},"required":["hash","value"],"additionalProperties":false,"$defs":`
	if !ok || !strings.HasPrefix(string(raw), want) {
		t.Errorf("schema = %s", raw)
	}
	if _, ok := build(t).Schema("nobody"); ok {
		t.Error("a schema of nobody")
	}
}

func TestTablesThatDoNotSayEnough(t *testing.T) {
	type noName struct{ A string }
	type badEnum struct {
		A int `json:"a" enum:"x"`
	}
	type badFormat struct {
		A string `json:"a" format:"hex"`
	}
	type badBytes struct {
		A jsontext.Value `json:"a" is:"nobody"`
	}
	type badKind struct {
		A chan int `json:"a"`
	}
	ok := []openapi.Answer{{Status: 200}}
	get := func(id, pattern string) openapi.Route {
		return openapi.Route{ID: id, Method: http.MethodGet, Pattern: pattern, Answers: ok}
	}
	body := func(v any) []openapi.Route {
		return []openapi.Route{{ID: "post", Method: http.MethodPost, Pattern: "/a", In: v, Answers: ok}}
	}
	const noWords = "not words in camel case"
	named := func(id, pattern, param string) openapi.Route {
		r := get(id, pattern)
		r.Path = []openapi.Param{{Name: param}}
		return r
	}
	extra := named("get", "/a", "id")
	for _, tt := range []struct {
		doc    string
		routes []openapi.Route
		want   string
	}{
		{"a parameter that nobody described", []openapi.Route{get("get", "/:id")}, "id is not described"},
		{"a parameter that is not there", []openapi.Route{extra}, "does not have"},
		{"two names of one parameter", []openapi.Route{named("get", "/a/:x", "x"), named("getAgain", "/a/:y", "y")},
			"/a/{x} and /a/{y} are one path"},
		{"twice", []openapi.Route{get("get", "/a"), get("getAgain", "/a")}, "twice"},
		{"one id", []openapi.Route{get("get", "/a"), get("get", "/b")}, "GET /a and GET /b have one operation id"},
		{"no id", []openapi.Route{get("", "/a")}, noWords},
		{"an id with an acronym", []openapi.Route{get("getURL", "/a")}, noWords},
		{"an id with a capital", []openapi.Route{get("Get", "/a")}, noWords},
		{"an id with a digit", []openapi.Route{get("getV1", "/a")}, noWords},
		{"an id with a dash", []openapi.Route{get("get-a", "/a")}, noWords},
		{"no answer", []openapi.Route{{ID: "post", Method: http.MethodPost, Pattern: "/a"}}, "no answer"},
		{"no refusal", []openapi.Route{{
			ID: "post", Method: http.MethodPost, Pattern: "/a", Answers: ok, Problems: []int{200},
		}}, "not that of a refusal"},
		{"two types of one name", append(body(leaf{}), openapi.Route{ID: "postOther", Method: http.MethodPost, Pattern: "/b", In: other(), Answers: ok}), "share one name"},
		{"a member without a name", body(noName{}), "needs a name"},
		{"an enum of numbers", body(badEnum{}), "enum is for text"},
		{"a format unheard of", body(badFormat{}), "not known"},
		{"a type without a JSON form", body(badKind{}), "no JSON form"},
		{"bytes of a type unheard of", body(badBytes{}), `is "nobody"`},
	} {
		if _, err := openapi.Build(info, tt.routes); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: err = %v", tt.doc, err)
		}
	}
}

// other is a second type called leaf.
func other() any {
	type leaf struct {
		B bool `json:"b"`
	}
	return leaf{}
}

// The document is built once, at start, and must not delay it.
func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		if _, err := openapi.Build(info, routes()); err != nil {
			b.Fatal(err)
		}
	}
}

// One scope of several is enough, over the socket as with a token, and a body may come in more than
// one encoding.
func TestAlternatives(t *testing.T) {
	d, err := openapi.Build(info, []openapi.Route{{
		ID: "postMany", Method: http.MethodPost, Pattern: "/many", Service: "thing", Scopes: []string{"thing.a", "thing.b"}, In: leaf{},
		InTypes: []string{"application/cbor"}, Answers: []openapi.Answer{{Status: 204}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"security":[{"macaroon":["thing.a"]},{"socket":["thing.a"]},{"macaroon":["thing.b"]},{"socket":["thing.b"]}]`,
		`"application/cbor":{"schema":{"$ref":"#/components/schemas/leaf"},"example":{"hash":"` + leafHash + `","value":{}}},"application/json":{"schema":{"$ref":"#/components/schemas/leaf"},`,
	} {
		if !bytes.Contains(d.JSON(), []byte(want)) {
			t.Errorf("%s lacks %s", d.JSON(), want)
		}
	}
}

// The bounds of a whole number stand in its schema. A member that is omitted if it is 0 is not 0,
// unless it is a pointer, which is omitted if it is nil.
func TestBoundsOfNumbers(t *testing.T) {
	raw, ok := build(t).Schema("sample")
	for _, want := range []string{
		`"count":{"type":"integer","minimum":1,"maximum":9}`, `"rest":{"type":"integer","minimum":1}`,
		`"digits":{"type":"integer","minimum":0,"maximum":9}`,
	} {
		if !ok || !strings.Contains(string(raw), want) {
			t.Errorf("schema = %s, want %s", raw, want)
		}
	}
}

// An answer may grow and a request may not, raw bytes are of the type that a tag names, the values
// of a member may come from the program, and every body has an example that its schema allows.
func TestAnswers(t *testing.T) {
	type item struct {
		Kind string `json:"kind"`
		Size uint64 `json:"size,omitzero" example:"7"`
		Left uint64 `json:"left,omitzero"`
	}
	type page struct {
		Items []jsontext.Value `json:"items" is:"item"`
		Next  struct {
			At time.Time `json:"at"`
		} `json:"next"`
	}
	type ask struct {
		Signed float64 `json:"signed"`
		Sum    []byte  `json:"sum"`
		Whole  bool    `json:"whole"`
		Name   string  `json:"name" enum:"a|b"`
	}
	own := info
	own.Enums = map[string][]string{"item.kind": {"plain", "rare"}}
	get := func(id, pattern string, body any) openapi.Route {
		return openapi.Route{
			ID:      id,
			Method:  http.MethodGet,
			Pattern: pattern,
			Answers: []openapi.Answer{{Status: 200, Type: "application/json", Body: body}},
		}
	}
	post := get("ask", "/ask", item{})
	post.Method, post.In = http.MethodPost, ask{}
	d, err := openapi.Build(own, []openapi.Route{get("listPages", "/pages", page{}), get("listItems", "/items", item{}), post})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := openapi3.NewLoader().LoadFromData(d.JSON())
	if err == nil {
		err = doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater(), openapi3.EnableExamplesValidation())
	}
	if err != nil {
		t.Error(err)
	}
	for name, want := range map[string]string{
		"page": `"items":{"type":"array","items":{"$ref":"#/$defs/item"}},"next":{"type":"object","properties":{"at":{"type":"string","format":"date-time"}},"required":["at"]}},"required":["items","next"],"$defs":{"item":{"title":"item",`,
		"item": `"properties":{"kind":{"type":"string","enum":["plain","rare"]},"size":{"type":"integer","examples":[7],"minimum":1},"left":{"type":"integer","minimum":1}},"required":["kind"]}`,
		"ask":  `"required":["signed","sum","whole","name"],"additionalProperties":false`,
	} {
		if raw, _ := d.Schema(name); !strings.Contains(string(raw), want) {
			t.Errorf("%s = %s, lacks %s", name, raw, want)
		}
	}
	for _, want := range []string{
		`"example":{"items":[{"kind":"plain","size":7}],"next":{"at":"2026-01-02T03:04:05Z"}}`,
		`"example":{"signed":0.5,"sum":"cm9uYm94","whole":true,"name":"a"}`,
	} {
		if !bytes.Contains(d.JSON(), []byte(want)) {
			t.Errorf("%s lacks %s", d.JSON(), want)
		}
	}
}
