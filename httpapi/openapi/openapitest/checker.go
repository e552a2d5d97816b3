package openapitest

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"ronbox/httpapi/openapi"
)

// Checker knows one document. It is safe for concurrent use.
type Checker struct {
	paths map[string]any

	mu       sync.Mutex                    // a leaf
	compiler *jsonschema.Compiler          // guarded by mu
	schemas  map[string]*jsonschema.Schema // by pointer; guarded by mu
	root     any
}

// where the document stands for the schema compiler.
const documentURL = "urn:document"

// New reads the document.
func New(t testing.TB, document []byte) *Checker {
	t.Helper()
	root, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatalf("OpenAPI document: %v", err)
	}
	paths, ok := member(root, "paths").(map[string]any)
	if !ok {
		t.Fatal("OpenAPI document: no paths")
	}
	if schemas, ok := member(root, "components", "schemas").(map[string]any); ok {
		closeAll(schemas)
	}
	c := &Checker{
		paths:    paths,
		compiler: jsonschema.NewCompiler(),
		schemas:  map[string]*jsonschema.Schema{},
		root:     root,
	}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	if err := c.compiler.AddResource(documentURL, root); err != nil {
		t.Fatalf("OpenAPI document: %v", err)
	}
	return c
}

// closeAll lets no object have members that are not listed: answers may grow, by members that the
// document has by then.
func closeAll(schemas map[string]any) {
	for _, s := range schemas {
		object, ok := s.(map[string]any)
		if _, told := object["additionalProperties"]; ok && !told && object["properties"] != nil {
			object["additionalProperties"] = false
		}
	}
}

// Response fails the test unless the document describes the answer to r.
func (c *Checker) Response(t testing.TB, r *http.Request, status int, h http.Header, body []byte) {
	t.Helper()
	if err := c.Check(r.Method, r.URL.Path, status, h, body); err != nil {
		t.Errorf("%s %s answered %d, which the OpenAPI document does not describe: %v\n%s", r.Method, r.URL.Path,
			status, err, clip(body))
	}
}

// Check tells in what an answer to method and path is not the one that the document describes. A
// path or method that the document does not have must be refused; OPTIONS is the browser's affair
// and not looked at.
func (c *Checker) Check(method, path string, status int, h http.Header, body []byte) error {
	if method == http.MethodOptions {
		return nil
	}
	template, op := c.find(method, path)
	if op == nil {
		return c.refused(method, status, h, body)
	}
	code := strconv.Itoa(status)
	at := pointer("paths", template, strings.ToLower(documented(method)), "responses", code)
	resp := member(op, "responses", code)
	if ref, ok := member(resp, "$ref").(string); ok {
		at = strings.TrimPrefix(ref, "#")
		resp = member(c.root, strings.Split(strings.TrimPrefix(at, "/"), "/")...)
	}
	if resp == nil {
		return fmt.Errorf("status %d is not among those of the operation", status)
	}
	if err := c.headers(resp, h); err != nil {
		return err
	}
	if method == http.MethodHead {
		return empty(body)
	}
	return c.content(at, resp, h, body)
}

// Operations lists the operations of the document as "GET /registry/{v}", sorted.
func (c *Checker) Operations() []string {
	var out []string
	for template, ops := range c.paths {
		for method := range ops.(map[string]any) {
			out = append(out, strings.ToUpper(method)+" "+template)
		}
	}
	slices.Sort(out)
	return out
}

// Operation names what answers method and path as Operations does, "" if nothing does.
func (c *Checker) Operation(method, path string) string {
	template, op := c.find(method, path)
	if op == nil {
		return ""
	}
	return method + " " + template
}

// refused checks the answer to an operation that the document does not have.
func (c *Checker) refused(method string, status int, h http.Header, body []byte) error {
	if status < http.StatusBadRequest {
		return errors.New("the document has no such operation")
	}
	if method == http.MethodHead {
		return empty(body)
	}
	if got := mediaType(h); got != openapi.ProblemType {
		return fmt.Errorf("a refusal of type %q", got)
	}
	return c.validate(pointer("components", "schemas", "Problem"), body)
}

// headers checks those that every such answer has.
func (c *Checker) headers(resp any, h http.Header) error {
	described, _ := member(resp, "headers").(map[string]any)
	for name, d := range described {
		if ref, ok := member(d, "$ref").(string); ok {
			d = member(c.root, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
		value := h.Get(name)
		if required, _ := member(d, "required").(bool); required && value == "" {
			return fmt.Errorf("header %s is missing", name)
		}
		if _, err := strconv.ParseInt(value, 10, 64); value != "" && err != nil &&
			member(d, "schema", "type") == "integer" {
			return fmt.Errorf("header %s: %q is no integer", name, value)
		}
	}
	return nil
}

// content checks media type and body of a response that stands at a pointer of the document.
func (c *Checker) content(at string, resp any, h http.Header, body []byte) error {
	described, ok := member(resp, "content").(map[string]any)
	if !ok {
		return empty(body)
	}
	typ := mediaType(h)
	media, ok := described[typ]
	if !ok {
		media, ok = described["*/*"]
	}
	if !ok {
		return fmt.Errorf("media type %q is not among those of the status", typ)
	}
	at += pointer("content", typ)
	switch {
	case member(media, "x-events") != nil:
		return c.frames(at+pointer("x-events"), member(media, "x-events"), body)
	case member(media, "x-item-schema") != nil:
		return c.lines(at+pointer("x-item-schema"), body)
	case member(media, "schema") != nil:
		return c.validate(at+pointer("schema"), body)
	}
	return nil // any bytes
}

func empty(body []byte) error {
	if len(body) > 0 {
		return fmt.Errorf("a body of %d bytes where none is described", len(body))
	}
	return nil
}

func mediaType(h http.Header) string {
	typ, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return typ
}

func clip(body []byte) []byte { return body[:min(len(body), 2<<10)] }
