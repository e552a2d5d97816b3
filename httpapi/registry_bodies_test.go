package httpapi_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"ronbox/engines/registry/record"
	"ronbox/httpapi"
	registryapi "ronbox/httpapi/wire/registry"
)

func inCBOR(t testing.TB, v any) string {
	t.Helper()
	raw, err := cbor.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A proposal and an approval in CBOR are the same as in JSON: the payload that is signed has one
// form.
func TestRegistryTakesCBOR(t *testing.T) {
	r := realRig(t)
	key := r.begin(t)
	as := func(kind string) header {
		return header{"Authorization": writer["Authorization"], "Content-Type": kind}
	}
	doc := map[string]any{"schema_version": "1.0.0", "payload": map[string]any{
		"schema_version": "1.0.0",
		"version":        2,
		"mode":           "delta",
		"remove":         []string{},
		"put": []any{
			map[string]any{
				"id":   "a",
				"kind": "service",
				"meta": map[string]any{"least": int64(-(1<<53 - 1)), "on": true, "of": "ß"},
			},
		},
	}}
	w := r.do("POST", "/registry/proposals", inCBOR(t, doc), as(httpapi.TypeCBOR))
	if w.Code != 202 {
		t.Fatalf("in CBOR: %d %s", w.Code, w.Body)
	}
	var p, again registryapi.Proposed
	text := `{"schema_version":"1.0.0","payload":{"schema_version":"1.0.0","version":2,"mode":"delta","remove":[],` +
		`"put":[{"id":"a","kind":"service","meta":{"least":-9007199254740991,"on":true,"of":"ß"}}]}}`
	r.into(t, &p, 202, "POST", "/registry/proposals", text)
	if r.into(t, &again, 202, "POST", "/registry/proposals", text); p != again ||
		!strings.Contains(w.Body.String(), p.ID) {
		t.Errorf("in CBOR %s, in JSON %+v and %+v", w.Body, p, again)
	}
	a := key.Sign(p.PayloadB3, time.Now())
	signed := map[string]any{"signer_id": a.SignerID, "algo": a.Algo, "sig": a.Sig, "signed_at": a.SignedAt}
	if w := r.do("POST", "/registry/approvals/"+p.ID, inCBOR(t, signed), as(httpapi.TypeCBOR)); w.Code != 200 {
		t.Errorf("an approval in CBOR: %d %s", w.Code, w.Body)
	}
	for _, tt := range []struct {
		body  string
		field string
	}{
		{inCBOR(t, map[string]any{"schema_version": "1.0.0", "payload": map[string]any{"version": 1.5}}), ""},
		{inCBOR(t, map[string]any{"schema_version": "1.0.0", "payload": 1}), "payload"},
		{inCBOR(t, map[string]any{"schema_version": 1, "payload": 1}), "schema_version"},
		{inCBOR(t, map[string]any{"schema_version": "1.0.0", "payload": map[string]any{}, "extra": 1}), "extra"},
		{inCBOR(t, map[string]any{"schema_version": "1.0.0", "payload": map[string]any{"a": []byte("x")}}), ""},
		{inCBOR(t, map[string]any{"schema_version": "1.0.0", "payload": map[string]any{"a": cbor.Tag{Number: 1, Content: 1}}}), ""},
		{"\xa2\x67payload\xa0\x67payload\xa0", "payload"},
		{"\xbf\xff", ""},
		{inCBOR(t, doc)[:40], ""},
	} {
		w := r.do("POST", "/registry/proposals", tt.body, as(httpapi.TypeCBOR))
		p := problemIn(t, w.Body.String())
		field, _ := p.Details["field"].(string)
		if w.Code != 400 || field != tt.field || field == "" && !strings.Contains(w.Body.String(), "malformed CBOR at byte ") {
			t.Errorf("%x: %d %+v, want 400 naming %q", tt.body, w.Code, p, tt.field)
		}
	}
	if w := r.do("POST", "/registry/commit/"+p.ID, "", writer); w.Code != 201 {
		t.Errorf("commit: %d %s", w.Code, w.Body)
	}
}

// What comes out of CBOR is JSON of the same meaning, or the refusal of a body.
func FuzzFromCBOR(f *testing.F) {
	for _, v := range []any{
		map[string]any{"schema_version": "1.0.0", "payload": map[string]any{"version": 2, "put": []any{}}},
		[]any{1, -1, uint64(math.MaxUint64), "x", true, nil, map[string]any{"a": map[string]any{}}},
	} {
		f.Add([]byte(inCBOR(f, v)))
	}
	f.Add([]byte("\x3b\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("\x9b\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, body []byte) {
		text, err := httpapi.FromCBOR(body)
		if bad := new(httpapi.BodyError); err != nil && !errors.As(err, &bad) {
			t.Fatalf("%T %v", err, err)
		}
		if err != nil {
			return
		}
		if !jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true)) {
			t.Fatalf("%x became %s", body, text)
		}
		if canon, err := record.Canonical(text); err == nil && cbor.Wellformed(body) != nil {
			t.Fatalf("%x is no CBOR, but became %s", body, canon)
		}
	})
}

// A large version comes in the coding that the client asks for, under a tag of that coding, and a
// small one as it is.
func TestOldVersionsAreCoded(t *testing.T) {
	r := realRig(t)
	key := r.begin(t)
	var p registryapi.Proposed
	r.into(
		t,
		&p,
		202,
		"POST",
		"/registry/proposals",
		strings.Replace(
			addOne(2, "large"),
			`"meta":{}`,
			fmt.Sprintf(`"meta":{"note":%q}`, strings.Repeat("abc", 5000)),
			1,
		),
	)
	r.into(t, nil, 200, "POST", "/registry/approvals/"+p.ID, text(t, key.Sign(p.PayloadB3, time.Now())))
	r.into(t, nil, 201, "POST", "/registry/commit/"+p.ID, "")
	plain := r.do("GET", "/registry/2", "", nil)
	for _, coding := range []string{"gzip", "zstd"} {
		w := r.do("GET", "/registry/2", "", header{"Accept-Encoding": coding})
		size, tag := w.Body.Len(), w.Header().Get("ETag")
		body, err := decoded(coding, w.Body.Bytes())
		if err != nil || w.Code != 200 || w.Header().Get("Content-Encoding") != coding || size > plain.Body.Len()/10 ||
			!bytes.Equal(body, plain.Body.Bytes()) {
			t.Errorf("%s: %d, %d of %d bytes, %v, %v", coding, w.Code, size, plain.Body.Len(), w.Header(), err)
		}
		if w := r.do("GET", "/registry/2", "",
			header{"Accept-Encoding": coding, "If-None-Match": tag}); tag == plain.Header().Get("ETag") ||
			w.Code != 304 {
			t.Errorf("%s: tag %s again: %d", coding, tag, w.Code)
		}
		if w := r.do("GET", "/registry/1", "", header{"Accept-Encoding": coding}); w.Header().Get("Vary") == "" {
			t.Errorf("%s: no Vary", coding)
		}
	}
}

// decoded undoes a coding of an answer.
func decoded(coding string, body []byte) ([]byte, error) {
	switch {
	case len(body) == 0:
	case coding == "gzip":
		r, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		return io.ReadAll(r)
	case coding == "zstd":
		r, err := zstd.NewReader(nil)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return r.DecodeAll(body, nil)
	}
	return body, nil
}
