package httpapi

import (
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

// A body that has arrived in full must not leave its read deadline behind: net/http would take it for a client that left.
func TestReadDeadlineEndsWithTheBody(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) { c.Server.ReadTimeout = unit.Duration(100 * time.Millisecond) }).listening(t)
	r.reg.wait = true
	req, _ := http.NewRequest(http.MethodPost, r.url+"/registry/proposals", strings.NewReader(proposeBody(1)))
	req.Header.Set("Authorization", "Bearer good")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Request-Timeout", "0.4")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%d, want 504: the wait must end at its own deadline", resp.StatusCode)
	}
}
