package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"ronbox/httpapi/front"
)

// Whatever stands in the headers that the stages read, a call is answered by a success or a refusal, never by a fault.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{
		"", "Bearer good", "Bearer  x", "gzip", "gzip, gzip", "zstd", "1.5", "1e9", "-1", "2999-01-01T00:00:00Z", someULID, "*", "W/\"x\"",
		"application/json; charset=", "application/json;;", "https://a.example", "\x00", "99999999999999999999", "text/event-stream",
	} {
		for _, name := range []string{"Authorization", "Content-Encoding", "Request-Timeout", "Deadline", "X-Corr-Id", "If-None-Match", "Content-Type",
			"Origin", "Last-Event-Id", "Traceparent"} {
			f.Add(name, s)
		}
	}
	r := newRig(f, func(c *Settings, _ *Deps) { c.Server.CORS.AllowOrigins = []string{"https://a.example"} })
	f.Fuzz(func(t *testing.T, name, value string) {
		for _, target := range [][2]string{{"POST", "/registry/proposals"}, {"GET", "/registry/head"}, {"HEAD", "/registry/stream"}, {"OPTIONS", "/registry/head"}} {
			req := httptest.NewRequest(target[0], target[1], nil)
			req.Header = http.Header{"Authorization": {"Bearer good"}, http.CanonicalHeaderKey(name): {value}}
			w := httptest.NewRecorder()
			r.router.ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), &front.Peer{})))
			if w.Code >= http.StatusInternalServerError && w.Code != http.StatusGatewayTimeout {
				t.Errorf("%s %s with %s: %q: %d %s", target[0], target[1], name, value, w.Code, w.Body)
			}
		}
	})
}
