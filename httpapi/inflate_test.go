package httpapi

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

func gzipped(t testing.TB, s string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func zstded(t testing.TB, s string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	return string(w.EncodeAll([]byte(s), nil))
}

// noise is text that no encoding shrinks by much.
func noise(n int) string {
	const digits = "0123456789abcdef"
	r, b := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
	for i := range b {
		b[i] = digits[r.IntN(len(digits))]
	}
	return string(b)
}

func noisyBody(n int) string {
	return `{"schema_version":"1.0.0","payload":{"pad":"` + noise(n) + `"}}`
}

func TestEncodedBodies(t *testing.T) {
	for _, tt := range []struct {
		doc, encoding, body string
		status              int
		reason              string
	}{
		{"gzip", "gzip", gzipped(t, noisyBody(1000)), 202, ""},
		{"zstd", "zstd", zstded(t, noisyBody(1000)), 202, ""},
		{"upper case", "GZIP", gzipped(t, noisyBody(1000)), 202, ""},
		{"more than the body cap after it", "gzip", gzipped(t, noisyBody(1200<<10)), 202, ""},
		{"ratio bomb", "gzip", gzipped(t, proposeBody(1<<20)), 400, "ratio_cap"},
		{"ratio bomb, zstd", "zstd", zstded(t, proposeBody(1<<20)), 400, "ratio_cap"},
		{"beyond the absolute cap", "gzip", gzipped(t, noisyBody(1300<<10)), 400, "decompress_cap"},
		{"one in the other", "gzip", gzipped(t, gzipped(t, proposeBody(100))), 400, "schema"},
		{"two told", "gzip, zstd", gzipped(t, proposeBody(100)), 400, "malformed"},
		{"unknown", "br", proposeBody(100), 415, "unsupported_type"},
		{"empty", "", proposeBody(100), 415, "unsupported_type"},
		{"not what it says", "zstd", gzipped(t, proposeBody(100)), 400, "malformed"},
		{"cut short", "gzip", gzipped(t, noisyBody(1000))[:500], 400, "malformed"},
		{"bytes after it", "gzip", gzipped(t, noisyBody(1000)) + "x", 400, "malformed"},
		{"too much on the wire", "gzip", noise(1<<20 + 1), 413, "body_cap"},
	} {
		r := newRig(t, func(c *Settings, _ *Deps) { c.Server.AbsCap = 1250 << 10 })
		w := r.do("POST", "/registry/proposals", tt.body, header{"Authorization": "Bearer good", "Content-Encoding": tt.encoding})
		if w.Code != tt.status || tt.reason != "" && problemIn(t, w.Body.String()).Reason != tt.reason {
			t.Errorf("%s: %d %s, want %d %s", tt.doc, w.Code, w.Body, tt.status, tt.reason)
		}
		calls, counted := 0, 1.0
		if tt.status == 202 {
			calls, counted = 1, 0
		}
		if got := sum(t, r.metrics, "rejected_total"); got != counted || r.reg.calls != calls {
			t.Errorf("%s: %v refusals, %d calls of the engine", tt.doc, got, r.reg.calls)
		}
		if tt.status == 415 && w.Header().Get("Accept-Encoding") != "gzip, zstd" {
			t.Errorf("%s: Accept-Encoding %q", tt.doc, w.Header().Get("Accept-Encoding"))
		}
	}
}

// A chunked bomb is stopped by the same counts, whatever it says of its length.
func TestAChunkedBombIsStopped(t *testing.T) {
	r := newRig(t)
	bomb := strings.NewReader(gzipped(t, strings.Repeat("x", 64<<20)))
	req := httptest.NewRequest("POST", "/admin/v1/registry/genesis", bomb)
	req.ContentLength = -1
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	w := httptest.NewRecorder()
	r.router.ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), &front.Peer{Socket: true, UID: 7})))
	if w.Code != 400 || problemIn(t, w.Body.String()).Reason != "ratio_cap" || r.reg.calls != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// What is to be decompressed waits for a place as long as its deadline, and no longer.
func TestDecompressionHasItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for range cap(r.expanding) {
			r.expanding <- struct{}{}
		}
		send := func() int {
			return r.do("POST", "/registry/proposals", gzipped(t, proposeBody(1)), header{"Authorization": "Bearer good", "Content-Encoding": "gzip"}).Code
		}
		began := time.Now()
		if got := send(); got != http.StatusGatewayTimeout || time.Since(began) != proposeDeadline {
			t.Errorf("%d after %s", got, time.Since(began))
		}
		<-r.expanding
		if got := send(); got != http.StatusAccepted || len(r.expanding) != cap(r.expanding)-1 {
			t.Errorf("%d, %d of %d places taken", got, len(r.expanding), cap(r.expanding))
		}
	})
}

// capped is an authority whose tokens allow small bodies only.
type capped struct{ most int64 }

func (a capped) Check(string, auth.Request) (engines.Actor, error) {
	g := &engines.Grant{}
	g.NarrowBytes(a.most)
	return engines.Actor{CapID: "tid", Principal: "p", Grant: g}, nil
}

func TestATokenCanNarrowTheBodyCap(t *testing.T) {
	r := newRig(t, func(_ *Settings, d *Deps) { d.Auth = capped{200} })
	for n, want := range map[int]int{10: 202, 300: 413} {
		if w := r.do("POST", "/registry/proposals", proposeBody(n), writer); w.Code != want {
			t.Errorf("%d bytes of padding: %d, want %d", n, w.Code, want)
		}
	}
	r.do(http.MethodPost, "/registry/proposals", gzipped(t, proposeBody(150)), header{"Authorization": "Bearer good", "Content-Encoding": "gzip"})
	if r.reg.calls != 2 {
		t.Errorf("%d calls: the cap is of what is sent", r.reg.calls)
	}
}
