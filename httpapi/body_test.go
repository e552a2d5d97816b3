package httpapi_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	registryapi "ronbox/httpapi/wire/registry"
)

// shortRead is soon over, yet long enough for the headers to arrive on a busy machine.
const shortRead = unit.Duration(time.Second)

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

// A body that has arrived in full must not leave its read deadline behind, however it was framed,
// encoded and carried: net/http would take it for a client that left.
func TestReadDeadlineEndsWithTheBody(t *testing.T) {
	for _, tt := range []struct {
		doc, encoding string
		chunked       bool
	}{{"of a known length", "", false}, {"in chunks", "", true}, {"gzip", "gzip", false}, {"gzip in chunks", "gzip", true}, {"zstd in chunks", "zstd", true}} {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			overBoth(
				t,
				func(c *httpapi.Settings, _ *deps) { c.Server.ReadTimeout = shortRead },
				func(t *testing.T, r *rig) {
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
						body = struct{ io.Reader }{body} // of unknown length
					}
					req, _ := http.NewRequest(http.MethodPost, r.url+"/v1/transfer", body)
					for k, v := range map[string]string{
						"Authorization": "Bearer good", "Content-Type": httpapi.TypeJSON, "Content-Encoding": tt.encoding, "Idempotency-Key": someKey, "Request-Timeout": "1.5",
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
					if p := problemIn(
						t,
						string(raw),
					); resp.StatusCode != http.StatusServiceUnavailable || p.Reason != httpapi.ReasonTimeout ||
						r.wal.calls != 1 {
						t.Errorf("%d %s, %d calls, want 503 for the wait to end at its own deadline", resp.StatusCode,
							raw, r.wal.calls)
					}
				},
			)
		})
	}
}

const proposeHead = "POST /registry/proposals HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Type: application/json\r\n"

func chunk(n int) string { return fmt.Sprintf("%x\r\n%s\r\n", n, strings.Repeat("x", n)) }

// What arrives on the wire and is no whole body is refused, counted once, ends its connection, and
// reaches no engine.
func TestHostileBodies(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	for _, tt := range []struct {
		doc, raw string
		gone     bool // the client closes its side
		status   int
		reason   string
	}{
		{"2 MiB told ahead", proposeHead + "Content-Length: 2097152\r\n\r\n", false, 413, "body_cap"},
		{"chunks beyond the cap", proposeHead + "Transfer-Encoding: chunked\r\n\r\n" + chunk(1<<20) + chunk(1<<20), false, 413, "body_cap"},
		{"a few chunks", proposeHead + "Transfer-Encoding: chunked\r\n\r\n" + chunk(10) + "0\r\n\r\n", false, 411, "length_required"},
		{"a length beside chunks", proposeHead + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(10) + "0\r\n\r\n", false, 411, "length_required"},
		{"a chunk that is none", proposeHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", false, 400, "malformed"},
		{"begun and never sent", proposeHead + "Content-Length: 100\r\n\r\n{", false, 408, "timeout"},
		{"a chunk begun and never sent", proposeHead + "Transfer-Encoding: chunked\r\n\r\n5\r\nab", false, 408, "timeout"},
		{"cut short by a client that still listens", proposeHead + "Content-Length: 100\r\n\r\n{", true, 400, "malformed"},
		{"a length that is less than it sends", proposeHead + "Content-Length: 5\r\n\r\n" + proposeBody(1), false, 400, "schema"},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(c *httpapi.Settings, _ *deps) {
				if tt.status == http.StatusRequestTimeout {
					c.Server.ReadTimeout = shortRead
				}
			}).listening(t)
			c := r.dial(t)
			sent := make(chan struct{})
			go func() { // the server may answer before it has read all
				defer close(sent)
				_, _ = io.WriteString(c, tt.raw)
				if tt.gone {
					_ = c.(*net.TCPConn).CloseWrite()
				}
			}()
			resp, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatalf("%s: %v", tt.doc, err)
			}
			body, _ := io.ReadAll(resp.Body)
			if p := problemIn(t, string(body)); resp.StatusCode != tt.status || p.Reason != tt.reason ||
				tt.reason != "schema" && !resp.Close {
				t.Errorf("%s: %d %s close %v, want %d %s", tt.doc, resp.StatusCode, p.Reason, resp.Close, tt.status,
					tt.reason)
			}
			if got := sum(t, r.metrics, "rejected_total", "reason", tt.reason, "service", "registry"); got != 1 ||
				r.reg.calls != 0 {
				t.Errorf("%s: counted %v times, %d calls of the engine", tt.doc, got, r.reg.calls)
			}
			late := 0.
			if tt.status == http.StatusRequestTimeout {
				late = 1
			}
			if got := sum(t, r.metrics, "io_timeouts_total", "op", "read", "service", "registry"); got != late {
				t.Errorf("%s: %v were not read in time", tt.doc, got)
			}
			_ = c.Close()
			<-sent
		})
	}
}

// A client that leaves in the middle of a body is counted, and nothing is enqueued.
func TestClientGoneInTheMiddleOfABody(t *testing.T) {
	r := newRig(t).listening(t)
	c := r.dial(t)
	_, _ = io.WriteString(c, proposeHead+"Content-Length: 100\r\n\r\n{\"schema")
	waitFor(t, "call to begin",
		func() bool { return sum(t, r.metrics, "inflight_requests", "route", "/registry/proposals") == 1 })
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	waitFor(t, "refusal", func() bool { return sum(t, r.metrics, "rejected_total", "reason", "malformed") == 1 })
	if r.reg.calls != 0 {
		t.Errorf("the engine was called %d times", r.reg.calls)
	}
}

// A body is the same, wherever the network splits it.
func TestABodySplitAnywhereIsReadAsOne(t *testing.T) {
	r := newRig(t).listening(t)
	body := proposeBody(8)
	raw := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", proposeHead, len(body), body)
	for at := len(raw) - len(body) - 4; at < len(raw); at++ {
		c := r.dial(t)
		_, _ = io.WriteString(c, raw[:at])
		_, _ = io.WriteString(c, raw[at:])
		if got := readStatus(t, c); got != http.StatusAccepted {
			t.Errorf("split at %d: %d", at, got)
		}
		_ = c.Close()
	}
	req := httptest.NewRequest(http.MethodPost, "/registry/proposals", iotest.OneByteReader(strings.NewReader(body)))
	req.ContentLength = int64(len(body))
	req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer good"}}
	w := httptest.NewRecorder()
	r.Router().ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), &front.Peer{})))
	if w.Code != http.StatusAccepted {
		t.Errorf("byte by byte: %d %s", w.Code, w.Body)
	}
}

// A body that drips is cut at the read timeout, however alive it looks.
func TestADripIsCut(t *testing.T) {
	t.Parallel()
	r := newRig(
		t,
		func(c *httpapi.Settings, _ *deps) { c.Server.ReadTimeout = shortRead },
	).listening(t)
	c := r.dial(t)
	_, _ = io.WriteString(c, proposeHead+"Content-Length: 1000\r\n\r\n")
	drip, stopped := time.NewTicker(20*time.Millisecond), make(chan struct{})
	defer drip.Stop()
	go func() {
		defer close(stopped)
		for range drip.C {
			if _, err := io.WriteString(c, "x"); err != nil {
				return
			}
		}
	}()
	if got := readStatus(t, c); got != http.StatusRequestTimeout || r.reg.calls != 0 {
		t.Errorf("%d, %d calls of the engine", got, r.reg.calls)
	}
	_ = c.Close()
	<-stopped
}

// What the listeners refuse before there is a call has the one form, and is counted once.
func TestRefusalsOfTheListenersHaveTheOneForm(t *testing.T) {
	for _, tt := range []struct {
		doc, raw string
		status   int
		reason   string
	}{
		{"no request at all", "\x16\x03\x01 hello\r\n\r\n", 400, "malformed"},
		{"two lengths", proposeHead + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n{}", 400, "malformed"},
		{"a header without a colon", "GET /healthz HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400, "malformed"},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", 400, "malformed"},
		{"headers beyond the cap", "GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", 431, "bad_header"},
		{"an unknown transfer coding", "POST /registry/proposals HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "malformed"},
	} {
		r := newRig(t).listening(t)
		c := r.dial(t)
		_, _ = io.WriteString(c, tt.raw)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", tt.doc, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		if p := problemIn(t, string(body)); resp.StatusCode != tt.status || p.Reason != tt.reason || p.CorrID == "" ||
			resp.Header.Get("X-Corr-ID") != p.CorrID {
			t.Errorf("%s: %d %s %v", tt.doc, resp.StatusCode, body, resp.Header)
		}
		r.described(httptest.NewRequest(http.MethodGet, "/nowhere", nil), resp.StatusCode, resp.Header, body)
		if got := sum(t, r.metrics, "rejected_total"); got != 1 ||
			sum(t, r.metrics, "rejected_total", "reason", tt.reason) != 1 {
			t.Errorf("%s: counted %v times", tt.doc, got)
		}
	}
}

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
		var in registryapi.Propose
		err := httpapi.Decode([]byte(tt.body), &in)
		var be *httpapi.BodyError
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
	var in registryapi.Propose
	if err := httpapi.Decode(nest(httpapi.MaxDepth), &in); err != nil {
		t.Errorf("depth %d: %v", httpapi.MaxDepth, err)
	}
	if err := httpapi.Decode(nest(httpapi.MaxDepth+1), &in); err == nil {
		t.Errorf("depth %d was taken", httpapi.MaxDepth+1)
	}
}

func TestDecodeKeepsRawBytes(t *testing.T) {
	var in registryapi.Propose
	raw := `{ "b": 1,  "a": "ü\u0041" }`
	if err := httpapi.Decode([]byte(`{"payload":`+raw+`}`), &in); err != nil {
		t.Fatal(err)
	}
	if string(in.Payload) != raw {
		t.Errorf("payload = %s, want the bytes as sent", in.Payload)
	}
}

func TestBodyErrorsClipWhatTheyRepeat(t *testing.T) {
	err := httpapi.Decode([]byte(`{"`+strings.Repeat("x", 10_000)+`":1}`), new(registryapi.Propose))
	if len(err.Error()) > 200 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

// What httpapi.Decode takes is one JSON object with no null, no repeat, known members, and decodes
// the same when written again.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"schema_version":"1.0.0","payload":{"a":[1,2,{"b":null}]},"payload_b3":"b3:"}`, `{"payload":1e400}`,
		`{"payload":{"a":1,"a":2}}`, "{\"payload\":\"\xff\"}", `[[[[`, `{"x":`, ``, `{"payload":"\ud800"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var in registryapi.Propose
		if err := httpapi.Decode(body, &in); err != nil {
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
		var back registryapi.Propose
		if err := httpapi.Decode(again, &back); err != nil {
			t.Fatalf("%q became %q, refused: %v", body, again, err)
		}
	})
}

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
		r := newRig(t, func(c *httpapi.Settings, _ *deps) { c.Server.AbsCap = 1250 << 10 })
		w := r.do("POST", "/registry/proposals", tt.body,
			header{"Authorization": "Bearer good", "Content-Encoding": tt.encoding})
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

// A chunked decompression bomb is stopped by the same limits.
func TestAChunkedBombIsStopped(t *testing.T) {
	r := newRig(t)
	bomb := strings.NewReader(gzipped(t, strings.Repeat("x", 64<<20)))
	req := httptest.NewRequest("POST", "/admin/v1/registry/genesis", bomb)
	req.ContentLength = -1
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Content-Encoding", "gzip")
	w := httptest.NewRecorder()
	r.Router().ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), &front.Peer{Socket: true, UID: 7})))
	if w.Code != 400 || problemIn(t, w.Body.String()).Reason != "ratio_cap" || r.reg.calls != 0 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// What is to be decompressed waits for a place as long as its deadline, and no longer.
func TestDecompressionHasItsPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for r.Expanding().TryAcquire() {
		}
		send := func() int {
			return r.do("POST", "/registry/proposals", gzipped(t, proposeBody(1)),
				header{"Authorization": "Bearer good", "Content-Encoding": "gzip"}).Code
		}
		began := time.Now()
		if got := send(); got != http.StatusGatewayTimeout || time.Since(began) != 5*time.Second {
			t.Errorf("%d after %s", got, time.Since(began))
		}
		r.Expanding().Release()
		if got := send(); got != http.StatusAccepted || r.Expanding().Used() != r.Expanding().Cap()-1 {
			t.Errorf("%d, %d of %d places taken", got, r.Expanding().Used(), r.Expanding().Cap())
		}
	})
}

// capped is an authority with tokens that permit small bodies only.
type capped struct{ most int64 }

func (a capped) Check(string, auth.Request) (engines.Actor, error) {
	g := &engines.Grant{}
	g.NarrowBytes(a.most)
	return engines.Actor{CapID: "tid", Principal: "p", Grant: g}, nil
}

func TestATokenCanNarrowTheBodyCap(t *testing.T) {
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.Auth = capped{200} })
	for n, want := range map[int]int{10: 202, 300: 413} {
		if w := r.do("POST", "/registry/proposals", proposeBody(n), writer); w.Code != want {
			t.Errorf("%d bytes of padding: %d, want %d", n, w.Code, want)
		}
	}
	r.do(http.MethodPost, "/registry/proposals", gzipped(t, proposeBody(150)),
		header{"Authorization": "Bearer good", "Content-Encoding": "gzip"})
	if r.reg.calls != 2 {
		t.Errorf("%d calls: the cap is of what is sent", r.reg.calls)
	}
}
