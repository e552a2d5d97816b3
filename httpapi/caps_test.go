package httpapi

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"ronbox/appliance/unit"
	"ronbox/httpapi/front"
)

// padded is text encoded into as many bytes as are wanted: the rest is what the encoding lets a reader skip.
func padded(t *testing.T, encoding, text string, size int) string {
	t.Helper()
	out := skipping(t, encoding, text, 0)
	if out = skipping(t, encoding, text, size-len(out)); len(out) != size {
		t.Fatalf("%s: %d bytes for %d", encoding, len(out), size)
	}
	return out
}

// skipping encodes text behind that many bytes to be skipped.
func skipping(t *testing.T, encoding, text string, pad int) string {
	t.Helper()
	if encoding == "zstd" {
		frame := binary.LittleEndian.AppendUint32([]byte{0x50, 0x2a, 0x4d, 0x18}, uint32(pad))
		return string(frame) + strings.Repeat("x", pad) + zstded(t, text)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Extra = make([]byte, max(pad, 0))
	_, _ = io.WriteString(w, text)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// sized is a proposal of so many bytes, of which an encoding leaves few, or most.
func sized(t *testing.T, size int, fill func(int) string) string {
	t.Helper()
	return fill(size - len(fill(0)))
}

// sendChunked sends a payment in a body whose length nobody tells.
func sendChunked(r *rig, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/v1/transfer", struct{ io.Reader }{strings.NewReader(body)})
	req.ContentLength = -1
	req.Header = http.Header{"Content-Type": {typeJSON}, "Authorization": {"Bearer good"}}
	keyed(req)
	return r.answer(&front.Peer{}, req)
}

// A body may be as long as the cap, to the byte: of a known length, in chunks, and encoded, of which what is sent counts.
func TestBodyCapToTheByte(t *testing.T) {
	encoded := func(encoding string) func(*rig, int) *httptest.ResponseRecorder {
		text := noisyBody(30_000)
		return func(r *rig, size int) *httptest.ResponseRecorder {
			body := padded(t, encoding, text, size)
			return r.do("POST", "/registry/proposals", body, header{"Authorization": "Bearer good", "Content-Encoding": encoding})
		}
	}
	for doc, send := range map[string]func(*rig, int) *httptest.ResponseRecorder{
		"of a known length": func(r *rig, size int) *httptest.ResponseRecorder {
			return r.do("POST", "/registry/proposals", sized(t, size, proposeBody), writer)
		},
		"in chunks": func(r *rig, size int) *httptest.ResponseRecorder {
			return sendChunked(r, strings.Repeat(" ", size-len(someTransfer))+someTransfer)
		},
		"gzip": encoded("gzip"), "zstd": encoded("zstd"),
	} {
		most := 1 << 20 // the default
		r := newRig(t)
		if doc == "gzip" || doc == "zstd" { // whose bytes take longer to make
			most = 64 << 10
			r = newRig(t, func(c *Settings, _ *Deps) { c.Server.MaxBody = 64 << 10 })
		}
		for size, fits := range map[int]bool{most - 1: true, most: true, most + 1: false} {
			w := send(r, size)
			if fits != (w.Code < 300) || !fits && (w.Code != http.StatusRequestEntityTooLarge || problemIn(t, w.Body.String()).Reason != reasonBodyCap) {
				t.Errorf("%s, %d bytes: %d %.300s", doc, size, w.Code, w.Body)
			}
		}
		if r.reg.calls+r.wal.calls != 2 {
			t.Errorf("%s: %d calls of an engine, want 2", doc, r.reg.calls+r.wal.calls)
		}
	}
}

// A token's own cap is held to the byte too.
func TestTokensBodyCapToTheByte(t *testing.T) {
	r := newRig(t, func(_ *Settings, d *Deps) { d.Auth = capped{200} })
	for size, want := range map[int]int{199: 202, 200: 202, 201: 413} {
		if w := r.do("POST", "/registry/proposals", sized(t, size, proposeBody), writer); w.Code != want {
			t.Errorf("%d bytes: %d, want %d", size, w.Code, want)
		}
	}
}

// A body may unfold to ten times what is sent, and to the absolute cap, to the byte.
func TestInflationCapsToTheByte(t *testing.T) {
	const sent, most = 400, 1 << 20
	for _, encoding := range []string{"gzip", "zstd"} {
		r := newRig(t)
		send := func(body string) *httptest.ResponseRecorder {
			return r.do("POST", "/registry/proposals", body, header{"Authorization": "Bearer good", "Content-Encoding": encoding})
		}
		held := func(doc string, w *httptest.ResponseRecorder, reason string) {
			t.Helper()
			if reason == "" && w.Code == http.StatusAccepted {
				return
			}
			if w.Code != http.StatusBadRequest || problemIn(t, w.Body.String()).Reason != reason {
				t.Errorf("%s, %s: %d %.300s", encoding, doc, w.Code, w.Body)
			}
		}
		for size, reason := range map[int]string{10*sent - 1: "", 10 * sent: "", 10*sent + 1: reasonRatioCap} {
			held("the ratio", send(padded(t, encoding, sized(t, size, proposeBody), sent)), reason)
		}
		cfg := testSettings()
		cfg.Server.MaxBody, cfg.Server.AbsCap, cfg.Server.RatioCap = most, unit.Size(most), 2
		r.reload(t, cfg)
		for size, reason := range map[int]string{most - 1: "", most: "", most + 1: reasonInflateCap} {
			held("the absolute cap", send(skipping(t, encoding, sized(t, size, noisyBody), 0)), reason)
		}
	}
}

// As many calls of the wallet may be inside as its limit says, reads and writes together; who comes beyond is refused, and nothing begun.
func TestWalletInflightToTheCall(t *testing.T) {
	const most = 3
	r := newRig(t, func(c *Settings, _ *Deps) { c.Limits[serviceWallet] = Limits{Inflight: most} })
	inside := r.services[serviceWallet].inflight
	ask := func() []int {
		return []int{
			r.do("POST", "/v1/transfer", someTransfer, writer).Code,
			r.do("GET", "/v1/balance?account=a&asset=ron", "", writer).Code,
		}
	}
	for held := range most + 2 {
		want := http.StatusOK
		if held >= most {
			want = http.StatusTooManyRequests
		}
		for i, got := range ask() {
			if got != want {
				t.Errorf("call %d with %d inside: %d, want %d", i, held, got, want)
			}
		}
		if took := inside.enter(); took != (held < most) {
			t.Errorf("place %d: given %v", held+1, took)
		}
	}
	if n := inside.n.Load(); n != most || r.wal.calls != 2*most {
		t.Errorf("%d places taken and %d calls, want %d and %d", n, r.wal.calls, most, 2*most)
	}
	inside.leave()
	if got := ask(); got[0] != http.StatusOK || got[1] != http.StatusOK {
		t.Errorf("%v once a place is free", got)
	}
}
