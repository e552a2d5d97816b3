package httpapi

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
)

func proposeBody(extra int) string {
	return `{"schema_version":"1.0.0","payload":{"pad":"` + strings.Repeat("x", extra) + `"}}`
}

func TestBodyHeaders(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		doc, path, body string
		h               header
		status          int
		reason          string
	}{
		{"as it should be", "/registry/proposals", proposeBody(1), nil, 202, ""},
		{"with a charset", "/registry/proposals", proposeBody(1), header{"Content-Type": "application/json; charset=UTF-8"}, 202, ""},
		{"another charset", "/registry/proposals", proposeBody(1), header{"Content-Type": "application/json; charset=latin1"}, 415, "unsupported_type"},
		{"another type", "/registry/proposals", proposeBody(1), header{"Content-Type": "text/plain"}, 415, "unsupported_type"},
		{"encoded", "/registry/proposals", proposeBody(1), header{"Content-Encoding": "br"}, 415, "unsupported_type"},
		{"encoded twice", "/registry/proposals", proposeBody(1), header{"Content-Encoding": "gzip, gzip"}, 400, "malformed"},
		{"not what it says", "/registry/proposals", proposeBody(1), header{"Content-Encoding": "gzip"}, 400, "malformed"},
		{"no body", "/registry/proposals", "", nil, 411, "length_required"},
		{"2 MiB", "/registry/proposals", proposeBody(2 << 20), nil, 413, "body_cap"},
		{"a body where none belongs", "/registry/commit/" + proposal, `{}`, nil, 400, "malformed"},
	} {
		h := header{"Authorization": "Bearer good"}
		for k, v := range tt.h {
			h[k] = v
		}
		w := r.do(http.MethodPost, tt.path, tt.body, h)
		if w.Code != tt.status || tt.reason != "" && problemIn(t, w.Body.String()).Reason != tt.reason {
			t.Errorf("%s: %d %s, want %d %s", tt.doc, w.Code, w.Body, tt.status, tt.reason)
		}
	}
}

func TestNothingIsReadBeforeAuth(t *testing.T) {
	r := newRig(t)
	w := r.do(http.MethodPost, "/registry/proposals", proposeBody(2<<20), header{"Content-Type": "text/plain"})
	if w.Code != http.StatusUnauthorized {
		t.Errorf("%d, want 401 before any look at the body", w.Code)
	}
}

// A body that has arrived in full must not leave its read deadline behind, however it was framed, encoded and carried: net/http
// would take it for a client that left.
func TestReadDeadlineEndsWithTheBody(t *testing.T) {
	for _, tt := range []struct {
		doc, encoding string
		chunked       bool
	}{{"of a known length", "", false}, {"in chunks", "", true}, {"gzip", "gzip", false}, {"gzip in chunks", "gzip", true}, {"zstd in chunks", "zstd", true}} {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			overBoth(t, func(c *Settings, _ *Deps) { c.Server.ReadTimeout = unit.Duration(2 * time.Second) }, func(t *testing.T, r *rig) {
				r.wal.wait = true
				content := someTransfer
				switch tt.encoding {
				case "gzip":
					content = gzipped(t, content)
				case "zstd":
					content = zstded(t, content)
				}
				var body io.Reader = strings.NewReader(content)
				if tt.chunked {
					body = struct{ io.Reader }{body} // whose length nobody knows
				}
				req, _ := http.NewRequest(http.MethodPost, r.url+"/v1/transfer", body)
				for k, v := range map[string]string{
					"Authorization": "Bearer good", "Content-Type": typeJSON, "Content-Encoding": tt.encoding, idemHeader: someKey, "Request-Timeout": "2.5",
				} {
					if v != "" {
						req.Header.Set(k, v)
					}
				}
				resp, err := r.client.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				raw, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if p := problemIn(t, string(raw)); resp.StatusCode != http.StatusServiceUnavailable || p.Reason != reasonTimeout || r.wal.calls != 1 {
					t.Errorf("%d %s, %d calls, want 503 for the wait to end at its own deadline", resp.StatusCode, raw, r.wal.calls)
				}
			})
		})
	}
}
