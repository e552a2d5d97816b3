package httpapi

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"ronbox/appliance/obs"
)

// collected is what a collector was sent.
func collected(t *testing.T, do func(*rig)) string {
	t.Helper()
	var mu sync.Mutex
	var got bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&got, r.Body)
	}))
	defer collector.Close()
	cfg := obs.DefaultOTelConfig()
	cfg.Exporter, cfg.Endpoint, cfg.SampleReads = "otlp", collector.URL, 0
	tracer, err := obs.NewTracer(cfg, obs.TracerID{Version: "v0"})
	if err != nil {
		t.Fatal(err)
	}
	do(newRig(t, func(_ *Settings, d *Deps) { d.Tracer = tracer }))
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return got.String()
}

func TestRequestsAreTraced(t *testing.T) {
	const traceID = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"
	parent := header{"traceparent": "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01", "X-Corr-ID": someULID}
	for _, tt := range []struct {
		doc  string
		do   func(*rig)
		want []string // nil: nothing is sent
	}{
		{"a write", func(r *rig) {
			r.do("POST", "/registry/commit/"+proposal, "", header{"Authorization": "Bearer good", "X-Corr-ID": someULID})
		}, []string{"http.request", "/registry/commit/:id", someULID}},
		{"a read that is not chosen", func(r *rig) { r.do("GET", "/registry/head", "", nil) }, nil},
		{"a read of a traced caller", func(r *rig) { r.do("GET", "/registry/head", "", parent) }, []string{traceID, "/registry/head", someULID}},
		{"a read that fails", func(r *rig) {
			r.reg.set(io.ErrUnexpectedEOF)
			r.do("GET", "/registry/2/payload", "", nil)
		}, []string{"/registry/:v/payload", "unexpected EOF"}},
	} {
		got := collected(t, tt.do)
		if tt.want == nil && got != "" {
			t.Errorf("%s: %d bytes were sent", tt.doc, len(got))
		}
		for _, w := range tt.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q lacks %q", tt.doc, got, w)
			}
		}
	}
}

func TestTracingThatIsOffAllocatesNothing(t *testing.T) {
	r := newRig(t)
	req, c := newRequest(t), &call{route: &Route{}}
	if n := testing.AllocsPerRun(100, func() {
		_, span := r.d.Tracer.StartRequest(req.Context(), req, serviceRegistry)
		endSpan(c, span, http.StatusOK, nil)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
