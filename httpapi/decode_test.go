package httpapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/wire"
)

func TestDecodeNamesTheMember(t *testing.T) {
	for _, tt := range []struct{ doc, body, field, reason string }{
		{"unknown", `{"schema_version":"1.0.0","payloud":{}}`, "payloud", "not a known"},
		{"another case is another name", `{"Payload":{}}`, "Payload", "not a known"},
		{"repeated", `{"payload":{},"payload":{}}`, "payload", "more than once"},
		{"repeated inside raw", `{"payload":{"items":[{"id":"a","id":"b"}]}}`, "payload.items.0.id", "more than once"},
		{"wrong type", `{"schema_version":1}`, "schema_version", "must be a string"},
		{"wrong type object", `{"payload_b3":{}}`, "payload_b3", "must be a string"},
		{"null", `{"payload_b3":null}`, "payload_b3", "null"},
		{"null inside raw", `{"payload":{"items":[null]}}`, "payload.items.0", "null"},
		{"bytes after", `{"schema_version":"1.0.0"} x`, "", "not valid JSON"},
		{"second value", `{} {}`, "", ""},
		{"not an object", `[1]`, "", "must be one JSON object"},
		{"empty", ` `, "", "is empty"},
		{"cut", `{"payload":{"a"`, "", "too early"},
		{"bad UTF-8", "{\"payload_b3\":\"\xff\"}", "", "UTF-8"},
		{"lone surrogate", `{"payload_b3":"\ud800"}`, "", ""},
		{"too deep", `{"payload":` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`, "payload", "too deep"},
	} {
		var in wire.Propose
		err := decode([]byte(tt.body), &in)
		var be *BodyError
		if !errors.As(err, &be) {
			t.Errorf("%s: err = %v, want a *BodyError", tt.doc, err)
			continue
		}
		if !strings.HasPrefix(be.Field, tt.field) || !strings.Contains(be.Reason, tt.reason) {
			t.Errorf("%s: %q %q, want member %q and %q", tt.doc, be.Field, be.Reason, tt.field, tt.reason)
		}
	}
}

func TestDecodeDepthIsExact(t *testing.T) {
	nest := func(n int) []byte {
		return []byte(`{"payload":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}`)
	}
	var in wire.Propose
	if err := decode(nest(maxDepth), &in); err != nil {
		t.Errorf("depth %d: %v", maxDepth, err)
	}
	if err := decode(nest(maxDepth+1), &in); err == nil {
		t.Errorf("depth %d was taken", maxDepth+1)
	}
}

func TestDecodeKeepsRawBytes(t *testing.T) {
	var in wire.Propose
	raw := `{ "b": 1,  "a": "ü\u0041" }`
	if err := decode([]byte(`{"payload":`+raw+`}`), &in); err != nil {
		t.Fatal(err)
	}
	if string(in.Payload) != raw {
		t.Errorf("payload = %s, want the bytes as sent", in.Payload)
	}
}

func TestBodyErrorsClipWhatTheyRepeat(t *testing.T) {
	err := decode([]byte(`{"`+strings.Repeat("x", 10_000)+`":1}`), new(wire.Propose))
	if len(err.Error()) > 200 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

// What decode takes is one JSON object with no null, no repeat, known members, and decodes the same when written again.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"schema_version":"1.0.0","payload":{"a":[1,2,{"b":null}]},"payload_b3":"b3:"}`, `{"payload":1e400}`,
		`{"payload":{"a":1,"a":2}}`, "{\"payload\":\"\xff\"}", `[[[[`, `{"x":`, ``, `{"payload":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var in wire.Propose
		if err := decode(body, &in); err != nil {
			if len(err.Error()) > 4096 {
				t.Fatalf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if !jsontext.Value(body).IsValid() {
			t.Fatalf("took %q", body)
		}
		if len(in.Payload) == 0 {
			return
		}
		again, err := json.Marshal(in)
		if err != nil {
			t.Fatalf("%q does not marshal: %v", body, err)
		}
		var back wire.Propose
		if err := decode(again, &back); err != nil {
			t.Fatalf("%q became %q, refused: %v", body, again, err)
		}
	})
}
