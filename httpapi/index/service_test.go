package index

import (
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/flow"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
	indexapi "ronbox/httpapi/wire/index"
	"ronbox/store"
)

func TestResolveRoute(t *testing.T) {
	r := newRig(t)
	for _, key := range []string{"name:docs.example", "name:Docs.Example.", "name:docs.example@1.2.0", someB3, name.CIDText(someCID)} {
		w := r.do(http.MethodGet, "/resolve/"+key, "", nil)
		got := read[indexapi.Resolved](r, w, http.StatusOK)
		if got.Manifest != someCID.String() || got.Source != "stale" || got.Age != 90 || got.ETag != someCID.String() ||
			got.Record != nil {
			t.Errorf("%s: %+v", key, got)
		}
		again := r.do(http.MethodGet, "/resolve/"+key, "", http.Header{"If-None-Match": {w.Header().Get("Etag")}})
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d %s", key, again.Code, again.Body)
		}
	}
	if got := read[indexapi.Resolved](r, r.do(http.MethodGet, "/resolve/name:docs.example", "", http.Header{hopHeader: {"0"}}),
		http.StatusOK); string(
		got.Record,
	) != "signed" {
		t.Errorf("another node gets %+v", got)
	}
	if r.do(http.MethodGet, "/resolve/name:docs.example?fresh=1", "",
		nil); r.engine.last != (name.ResolveOptions{Fresh: true, From: name.Caller{Network: loopback, Cost: 1}}) {
		t.Errorf("asked with %+v", r.engine.last)
	}
}

// Malformed requests are refused before the engine is called.
func TestMalformedRequests(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("a", 64)
	for _, tt := range []struct {
		method, target, body string
		status               int
		field                string
	}{
		{"GET", "/resolve/name:a_b", "", 400, "key"},
		{"GET", "/resolve/name:..", "", 400, "key"},
		{"GET", "/resolve/name:" + long, "", 400, "key"},
		{"GET", "/resolve/name:a@1", "", 400, "key"},
		{"GET", "/resolve/name:a@1.0.0+x", "", 400, "key"},
		{"GET", "/resolve/docs.example", "", 400, "key"},
		{"GET", "/resolve/b3:" + strings.ToUpper(long), "", 400, "key"},
		{"GET", "/resolve/name:a?fresh=yes", "", 400, "fresh"},
		{"GET", "/resolve/name:a?later=1", "", 400, ""},
		{"GET", "/providers/b3:00", "", 400, "cid"},
		{"GET", "/providers/" + long, "", 400, "cid"},
		{"GET", "/providers/" + someB3 + "?limit=33", "", 400, "limit"},
		{"GET", "/providers/" + someB3 + "?region=EU", "", 400, "region"},
		{"GET", "/routing/v1/providers/nonsense", "", 400, "cid"},
		{"PUT", "/index/names/name:a", `{"manifest":"b3:00"}`, 400, "manifest"},
		{"PUT", "/index/names/name:a", `{"manifest":"` + someB3 + `","more":1}`, 400, "more"},
		{"PUT", "/index/names/name:a", `{}`, 400, "manifest"},
		{"PUT", "/index/names/name:a", ``, 415, ""},
		{"POST", "/index/providers", `{"providers":[]}`, 400, "providers"},
		{"POST", "/index/providers", `{"providers":[{"cid":"x","addrs":["/ip4/192.0.2.1"]}]}`, 400, "providers.0.cid"},
		{"POST", "/index/providers", `{"providers":[{"cid":"` + someB3 + `","record":"AAAA"}]}`, 400, "providers.0"},
		{"POST", "/index/providers", `{"providers":[{"cid":"` + someB3 + `","ttl_s":99999999999}]}`, 400, "providers.0.ttl_s"},
		{"POST", "/index/providers", `{"providers":[` + strings.Repeat(`{},`, name.MaxAnnouncements) + `{}]}`, 400, "providers"},
		{"POST", "/index/reindex", `{"keys":[` + strings.Repeat(`"name:a",`, maxReindex) + `"name:a"]}`, 400, "keys"},
		{"DELETE", "/index/providers/b3:00", "", 400, "cid"},
		{"GET", "/index/names?limit=1001", "", 400, "limit"},
		{"GET", "/resolve/", "", 404, ""},
		{"GET", "/resolve/a/b", "", 404, ""},
		{"POST", "/resolve/name:a", "", 405, ""},
	} {
		w := r.do(tt.method, tt.target, tt.body, nil)
		p := read[wire.Problem](r, w, tt.status)
		if got, _ := p.Details["field"].(string); got != tt.field && tt.field != "" {
			t.Errorf("%s %s %s: field %q, want %q: %s", tt.method, tt.target, tt.body, got, tt.field, w.Body)
		}
	}
	if r.engine.calls > 0 {
		t.Errorf("the engine was asked %d times", r.engine.calls)
	}
}

// Each error of the engine has a status, a reason and a wait. Its answer does not repeat input of
// the caller.
func TestErrors(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		err    error
		status int
		reason string
		retry  bool
		waits  bool
	}{
		{name.ErrNotFound, 404, "not_found", false, false},
		{&name.SilentError{Peers: 2}, 404, "not_found", false, false},
		{name.ErrTimeout, 504, "timeout", true, false},
		{name.ErrUpstream, 503, "upstream", true, true},
		{&name.BreakerOpenError{RetryAfter: time.Second}, 503, "breaker_open", true, true},
		{&name.ConflictError{Has: someCID}, 409, "conflict", false, false},
		{&name.RecordError{Field: "addrs", Reason: "x"}, 400, "malformed", false, false},
		{flow.ErrBusy, 429, "busy", true, true},
		{&name.RateError{Wait: time.Second}, 429, "rate_limit", true, true},
		{&store.RowError{Bucket: "index/name", Key: []byte("name:docs.example"), Cause: errors.New("x")}, 500, "corrupt", false, false},
		{flow.ErrClosed, 503, "draining", true, true},
		{flow.ErrCanceled, 503, "canceled", true, true},
		{name.ErrInternal, 500, "internal", false, false},
		{errors.New("a bug"), 500, "internal", false, false},
	} {
		r.engine.err = fmt.Errorf("wrapped: %w", tt.err)
		for _, at := range []string{"/resolve/name:docs.example", "/providers/" + someB3} {
			method, body := http.MethodGet, ""
			if tt.status == http.StatusConflict { // only writes return it
				method, at, body = http.MethodPut, "/index/names/name:docs.example@1.0.0", `{"manifest":"`+someB3+`"}`
			}
			w := r.do(method, at, body, nil)
			p := read[wire.Problem](r, w, tt.status)
			if p.Reason != tt.reason || p.Retryable != tt.retry || (w.Header().Get("Retry-After") != "") != tt.waits ||
				p.Service != service {
				t.Errorf("%v: %s", tt.err, w.Body)
			}
			if _, silent := tt.err.(*name.SilentError); silent != (p.Details["silent"] == 2.0) {
				t.Errorf("%v: %s", tt.err, w.Body)
			}
		}
	}
}

func TestProvidersRoutes(t *testing.T) {
	r := newRig(t)
	r.engine.set.Providers = []name.Provider{
		{
			Peer:      somePeer,
			Addrs:     []string{someAddr},
			Region:    "eu-west-1",
			Verified:  true,
			ExpiresMS: 9,
			Record:    []byte("signed"),
		},
		{Peer: somePeer, Addrs: []string{}},
	}
	got := read[indexapi.Providers](r, r.do(http.MethodGet, "/providers/"+someB3+"?region=eu-west-1&limit=7", "", nil),
		http.StatusOK)
	if len(got.Providers) != 2 || got.CID != someB3 || got.Source != "peer" || !got.Providers[0].Valid ||
		got.Providers[0].ExpiresMS != 9 {
		t.Errorf("providers: %+v", got)
	}
	if r.engine.last != (name.ProvidersOptions{Region: "eu-west-1", Limit: 7, From: name.Caller{Network: loopback, Cost: 1}}) {
		t.Errorf("asked with %+v", r.engine.last)
	}
	target := "/routing/v1/providers/" + someB3 + "?filter-addrs=ip4,unknown&whatever=1"
	w := r.do(http.MethodGet, target, "", http.Header{hopHeader: {"0"}})
	doc := read[indexapi.Routing](r, w, http.StatusOK)
	if len(doc.Providers) != 2 || doc.Providers[0].Schema != "peer" || doc.Providers[0].ID != somePeer ||
		string(doc.Providers[0].Ron) != "signed" ||
		doc.Providers[1].Ron != nil {
		t.Errorf("routing: %+v", doc)
	}
	if w.Header().Get("Access-Control-Allow-Origin") != "*" || !slices.Contains(w.Header()["Vary"], "Accept") {
		t.Errorf("headers: %v", w.Header())
	}
	w = r.do(http.MethodGet, target, "", http.Header{"Accept": {"application/x-ndjson, application/json;q=0.5"}})
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	var one indexapi.PeerRecord
	if err := json.Unmarshal([]byte(lines[0]), &one); err != nil || len(lines) != 2 || one.ID != somePeer ||
		w.Header().Get("Content-Type") != httpapi.TypeLines {
		t.Errorf("lines: %v, %q", err, lines)
	}
	// The standard requires an empty answer for an unknown provider and for a hash of another kind.
	r.engine.err, r.engine.set = name.ErrNotFound, name.ProviderSet{}
	for _, cid := range []string{someB3, "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"} {
		w = r.do(http.MethodGet, "/routing/v1/providers/"+cid, "", nil)
		if doc := read[indexapi.Routing](r, w, http.StatusOK); doc.Providers == nil || len(doc.Providers) > 0 {
			t.Errorf("%s: %s", cid, w.Body)
		}
		if w = r.do(http.MethodGet, "/providers/"+cid, "", nil); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", cid, w.Code)
		}
	}
}

func TestWriteRoutes(t *testing.T) {
	r := newRig(t)
	put := func(m string) int {
		w := r.do(http.MethodPut, "/index/names/name:docs.example", `{"manifest":"`+m+`"}`, nil)
		return w.Code
	}
	if a, b := put(someCID.String()), put(someB3); a != http.StatusCreated || b != http.StatusOK {
		t.Errorf("new %d, changed %d", a, b)
	}
	if w := r.do(http.MethodDelete, "/index/names/name:docs.example", "", nil); w.Code != http.StatusNoContent {
		t.Errorf("delete: %d", w.Code)
	}
	w := r.do(
		http.MethodPost,
		"/index/providers",
		`{"providers":[{"cid":"`+someB3+`","addrs":["`+someAddr+`"],"ttl_s":60},{"record":"AAAA"}]}`,
		nil,
	)
	got := read[indexapi.AnnounceResults](r, w, http.StatusOK)
	if len(got.Results) != 2 || !got.Results[0].Accepted || got.Results[0].CID != someB3 || got.Results[1].Accepted ||
		got.Results[1].Reason == "" {
		t.Errorf("announce: %s", w.Body)
	}
	if w := r.do(http.MethodDelete, "/index/providers/"+someB3, "", nil); w.Code != http.StatusNoContent {
		t.Errorf("withdraw: %d", w.Code)
	}
	if got := read[indexapi.Reindexed](
		r,
		r.do(http.MethodPost, "/index/reindex", `{"keys":["name:a","name:b"]}`, nil),
		http.StatusAccepted,
	); got.Queued != 2 {
		t.Errorf("reindex: %+v", got)
	}
	if got := read[indexapi.Reindexed](
		r,
		r.do(http.MethodPost, "/index/reindex", `{}`, nil),
		http.StatusAccepted,
	); got.Queued != 0 {
		t.Errorf("reindex of the hot keys: %+v", got)
	}
	if got := read[indexapi.NameList](r, r.do(http.MethodGet, "/index/names?prefix=name:&limit=2", "", nil),
		http.StatusOK); len(got.Names) != 2 || got.Next != "name:docs.example" ||
		got.Damaged[0] != "name:x\uFFFD" {
		t.Errorf("names: %+v", got)
	}
	if got := read[indexapi.NameRow](r, r.do(http.MethodGet, "/index/names/name:docs.example", "", nil),
		http.StatusOK); got.Seq != 7 {
		t.Errorf("name: %+v", got)
	}
	if got := read[indexapi.PeerList](r, r.do(http.MethodGet, "/index/peers", "", nil), http.StatusOK); len(got.Peers) != 1 ||
		got.Peers[0].RetryAfterMS != 1000 {
		t.Errorf("peers: %+v", got)
	}
	if got := read[indexapi.NodeIdentity](r, r.do(http.MethodGet, "/index/identity", "", nil),
		http.StatusOK); got.Peer != somePeer ||
		len(got.Key) != 64 {
		t.Errorf("identity: %+v", got)
	}
}

// Reads need no token. A write without a token reaches neither the body nor the engine.
func TestWhoMay(t *testing.T) {
	r := newRig(t)
	nobody := http.Header{"Authorization": nil}
	for _, route := range r.routes {
		if route.Page {
			continue // a refusal
		}
		target := strings.NewReplacer(":key", "name:docs.example", ":cid", someB3).Replace(route.Pattern)
		w := r.do(route.Method, target, "", nobody)
		if route.Method == http.MethodGet && w.Code != http.StatusOK ||
			route.Method != http.MethodGet && w.Code != http.StatusUnauthorized {
			t.Errorf("%s %s for nobody: %d", route.Method, route.Pattern, w.Code)
		}
		if route.Writes() == (route.Scope == "") {
			t.Errorf("%s %s has the scope %q", route.Method, route.Pattern, route.Scope)
		}
	}
}

// If reads are not public, each one needs a token with the scope index.read.
func TestClosedReads(t *testing.T) {
	r := newRig(t, func(c *index.Config) { c.PublicReads = false })
	for _, route := range r.routes {
		if route.Method != http.MethodGet || route.Page {
			continue
		}
		target := strings.NewReplacer(":key", "name:docs.example", ":cid", someB3).Replace(route.Pattern)
		if w := r.do(route.Method, target, "", http.Header{"Authorization": nil}); w.Code != http.StatusUnauthorized ||
			route.Scope != "index.read" {
			t.Errorf("%s for nobody: %d; its scope is %q", target, w.Code, route.Scope)
		}
		if w := r.do(route.Method, target, "", nil); w.Code != http.StatusOK ||
			strings.Contains(w.Header().Get("Cache-Control"), "public") {
			t.Errorf("%s: %d, %q", target, w.Code, w.Header().Get("Cache-Control"))
		}
	}
	if r.engine.calls == 0 {
		t.Error("no read reached the engine")
	}
}

// No body crashes the node or passes invalid values to the engine.
func FuzzDTOJSON(f *testing.F) {
	for _, s := range []string{
		`{"manifest":"` + someB3 + `"}`, `{"providers":[{"cid":"` + someB3 + `","addrs":["` + someAddr + `"],"ttl_s":60}]}`, `{"providers":[{"record":"AAAA"}]}`,
		`{"keys":["name:a"]}`, `{"keys":["a"],"x":1}`, `{"keys":null}`, `{"manifest":1e999}`, `{`, ``, `[]`, "\xff", strings.Repeat(`{"keys":[`, 40),
	} {
		f.Add(s)
	}
	r := newRig(f)
	f.Fuzz(func(t *testing.T, body string) {
		for _, at := range [][2]string{{"PUT", "/index/names/name:docs.example"}, {"POST", "/index/providers"}, {"POST", "/index/reindex"}} {
			r.t = t
			before := r.engine.calls
			w := r.do(at[0], at[1], body, nil)
			ok := w.Code >= 200 && w.Code < 300
			if !ok && (w.Code < 400 || w.Code >= 500) || ok != (r.engine.calls == before+1) {
				t.Errorf("%v %q: %d after %d calls", at, body, w.Code, r.engine.calls-before)
			}
		}
	})
}

// Bodies are bounded before and after decompression.
func TestBodyBombs(t *testing.T) {
	r := newRig(t)
	big := `{"keys":["` + strings.Repeat("a", 1<<20) + `"]}`
	if w := r.do(http.MethodPost, "/index/reindex", big, nil); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("1 MiB and more: %d", w.Code)
	}
	if w := r.do(http.MethodPost, "/index/reindex", gzipped(t, big[:1<<19]),
		http.Header{"Content-Encoding": {"gzip"}}); w.Code != http.StatusBadRequest {
		t.Errorf("a body that unfolds by far more than 10: %d", w.Code)
	}
	if r.engine.calls > 0 {
		t.Error("the engine was asked")
	}
}

func gzipped(t *testing.T, s string) string {
	t.Helper()
	var out strings.Builder
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestForgetRoute(t *testing.T) {
	r := newRig(t)
	if w := r.do(http.MethodDelete, "/index/names/name:docs.example?forget=1", "",
		nil); w.Code != http.StatusNoContent ||
		r.engine.last != "forget name:docs.example" {
		t.Errorf("%d, %v", w.Code, r.engine.last)
	}
	if r.do(http.MethodDelete, "/index/names/name:docs.example?forget=0", "",
		nil); r.engine.last == "forget name:docs.example" {
		t.Error("forgotten unasked")
	}
}
