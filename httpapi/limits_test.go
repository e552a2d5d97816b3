package httpapi_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/prometheus/client_golang/prometheus"

	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/store"
)

// If two concurrent requests compete for one free slot, one gets it. A refused request never takes
// a slot temporarily.
func TestAFreePlaceIsGiven(t *testing.T) {
	const rounds = 100_000
	l := httpapi.NewSlots(1)
	l.Acquire()
	var begun, ended atomic.Int64
	var other bool
	joined := make(chan struct{})
	defer func() { begun.Store(-1); <-joined }()
	go func() {
		defer close(joined)
		for i := int64(1); i <= rounds; i++ {
			for begun.Load() != i {
				if begun.Load() < 0 {
					return
				}
				runtime.Gosched()
			}
			other = l.Acquire()
			ended.Store(i)
		}
	}()
	for i := int64(1); i <= rounds; i++ {
		begun.Store(i)
		l.Release()
		mine := l.Acquire()
		for ended.Load() != i {
			runtime.Gosched()
		}
		if mine == other {
			t.Fatalf("round %d: I got in: %v, the other: %v, and there is one place", i, mine, other)
		}
	}
}

func TestGateLetsIn(t *testing.T) {
	type want struct{ bypass, read, write, stream, status, snapshot, drain int }
	for _, tt := range []struct {
		gates []httpapi.Gate
		want  want
	}{
		{[]httpapi.Gate{}, want{200, 503, 503, 503, 503, 503, 503}},
		{[]httpapi.Gate{httpapi.GateOpen}, want{200, 200, 201, 200, 200, 200, 202}},
		{[]httpapi.Gate{httpapi.GateOpen, httpapi.GateDraining}, want{200, 200, 503, 503, 200, 503, 202}},
		{[]httpapi.Gate{httpapi.GateOpen, httpapi.GateDraining, httpapi.GateClosed}, want{200, 503, 503, 503, 503, 503, 503}},
		{[]httpapi.Gate{httpapi.GateClosed, httpapi.GateOpen}, want{200, 503, 503, 503, 503, 503, 503}},
	} {
		r := newRig(t)
		r.Reopen()
		for _, g := range tt.gates {
			r.SetGate(g)
		}
		got := want{
			r.do("GET", "/healthz", "", nil).Code,
			r.do("GET", "/registry/head", "", nil).Code,
			r.do("POST", "/registry/commit/"+proposal, "", writer).Code,
			r.do("HEAD", "/registry/stream", "", nil).Code,
			r.socket("GET", "/admin/v1/status", "", nil).Code,
			r.socket("POST", "/admin/v1/db/snapshot", `{"dir":"/x"}`, nil).Code,
			r.socket("POST", "/admin/v1/drain", "", nil).Code,
		}
		if got != tt.want {
			t.Errorf("gates %v: %+v, want %+v", tt.gates, got, tt.want)
		}
	}
}

func TestDrainClosesConnectionsAndSaysWhenToComeBack(t *testing.T) {
	r := newRig(t)
	r.SetGate(httpapi.GateDraining)
	read, write := r.do("GET", "/registry/head", "", nil), r.do("POST", "/registry/commit/"+proposal, "", writer)
	if read.Code != http.StatusOK || read.Header().Get("Connection") != "close" ||
		write.Header().Get("Connection") != "close" {
		t.Errorf("read %d %q, write %q", read.Code, read.Header().Get("Connection"), write.Header().Get("Connection"))
	}
	p := problemIn(t, write.Body.String())
	if p.Reason != "draining" || p.RetryAfter != 10 || r.reg.calls != 0 {
		t.Errorf("told %+v after %d calls of the engine", p, r.reg.calls)
	}
}

func TestDrainRetryAfterCountsDown(t *testing.T) {
	now := time.Unix(1000, 0)
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.Now = func() time.Time { return now } })
	r.SetGate(httpapi.GateDraining)
	for _, tt := range []struct {
		after time.Duration
		want  int
	}{{0, 10}, {2 * time.Second, 8}, {time.Minute, 5}} {
		now = time.Unix(1000, 0).Add(tt.after)
		if got := r.DrainRetry(); got != tt.want {
			t.Errorf("%s into the drain: Retry-After %d, want %d", tt.after, got, tt.want)
		}
	}
}

func TestReadyzFollowsTheGate(t *testing.T) {
	r := newRig(t)
	r.Reopen()
	for _, tt := range []struct {
		gate              httpapi.Gate
		all, read, writes int
	}{
		{httpapi.GateStarting, 503, 503, 503}, {httpapi.GateOpen, 200, 200, 200}, {httpapi.GateDraining, 503, 200, 503}, {httpapi.GateClosed, 503, 503, 503},
	} {
		r.SetGate(tt.gate)
		all, read, writes := r.do("GET", "/readyz", "", nil), r.do("GET", "/readyz?plane=read", "", nil), r.do("GET",
			"/readyz?plane=write", "", nil)
		if all.Code != tt.all || read.Code != tt.read || writes.Code != tt.writes {
			t.Errorf("%v: readyz %d, read %d, write %d; want %d %d %d", tt.gate, all.Code, read.Code, writes.Code,
				tt.all, tt.read, tt.writes)
		}
		if all.Code == 503 && all.Header().Get("Retry-After") == "" {
			t.Errorf("%v: no Retry-After", tt.gate)
		}
	}
}

func limits(l httpapi.Limits) func(*httpapi.Settings, *deps) {
	l.Inflight = 8
	return func(c *httpapi.Settings, _ *deps) { c.Limits[serviceRegistry] = l }
}

// Reads and writes have separate buckets. A refusal has Retry-After, and nothing is enqueued. Each
// request comes from another network, so that shares are not exhausted first.
func TestServiceBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits(httpapi.Limits{RPS: 1, Burst: 2, ReadRPS: 3}))
		network := netip.MustParseAddr("192.0.2.1")
		do := func(method, path string) *httptest.ResponseRecorder {
			network = network.Next()
			return r.as(&front.Peer{Addr: network}, method, path, "", writer)
		}
		write := func() int { return do("POST", "/registry/commit/"+proposal).Code }
		read := func() int { return do("GET", "/registry/head").Code }
		for i, want := range []int{201, 201, 429, 429} {
			if got := write(); got != want {
				t.Errorf("write %d: %d, want %d", i, got, want)
			}
		}
		for i, want := range []int{200, 200, 200, 429} {
			if got := read(); got != want {
				t.Errorf("read %d: %d, want %d", i, got, want)
			}
		}
		w := do("POST", "/registry/commit/"+proposal)
		p := problemIn(t, w.Body.String())
		if w.Code != 429 || p.Reason != "rate_limit" || p.RetryAfter != 1 || !p.Retryable ||
			w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d %+v", w.Code, p)
		}
		if r.reg.calls != 2 {
			t.Errorf("the engine was called %d times", r.reg.calls)
		}
		if got := sum(t, r.metrics, "rejected_total", "reason", "rate_limit"); got != 4 {
			t.Errorf("rejected_total{rate_limit} = %v, want 4", got)
		}
		if got := sum(t, r.metrics, "busy_rejections_total", "endpoint", "commit"); got != 3 {
			t.Errorf("busy_rejections_total{commit} = %v, want 3", got)
		}
		time.Sleep(time.Second)
		if write() != 201 || write() != 429 {
			t.Error("a second gives one token")
		}
	})
}

// One network that asks for all it can get leaves half of the rate to the others.
func TestOneNetworkCannotEmptyTheBucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits(httpapi.Limits{RPS: 1, Burst: 10, ReadRPS: 20}))
		greedy, other := &front.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, &front.Peer{
			Addr: netip.MustParseAddr("192.0.2.2"),
		}
		let := func(who *front.Peer, method, path string) int { // all at one moment
			var all sync.WaitGroup
			var in atomic.Int64
			for range 100 {
				all.Go(func() {
					if r.as(who, method, path, "", writer).Code < 300 {
						in.Add(1)
					}
				})
			}
			all.Wait()
			return int(in.Load())
		}
		for _, tt := range []struct {
			who          *front.Peer
			method, path string
			want         int
		}{
			{greedy, "POST", "/registry/commit/" + proposal, 5}, {other, "POST", "/registry/commit/" + proposal, 5},
			{greedy, "GET", "/registry/head", 10}, {other, "GET", "/registry/head", 10},
		} {
			if got := let(tt.who, tt.method, tt.path); got != tt.want {
				t.Errorf("%s of %s: %d let in, want %d", tt.method, tt.who, got, tt.want)
			}
		}
	})
}

// Who is refused by the share of his network hears it at once, and is not heard again for a moment;
// a stop does not wait for that.
func TestConnectionsOfAFloodRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits(httpapi.Limits{RPS: 1, Burst: 1, ReadRPS: 1}))
		read := func() (status int, took time.Duration) {
			begun := time.Now()
			w := r.do("GET", "/registry/head", "", nil)
			if w.Code == 429 && !w.Flushed {
				t.Error("the refusal waits with the connection")
			}
			return w.Code, time.Since(begun)
		}
		if status, took := read(); status != 200 || took != 0 {
			t.Errorf("within the share: %d after %s", status, took)
		}
		if status, took := read(); status != 429 || took < (400*time.Millisecond)/2 ||
			took >= (400*time.Millisecond)*3/2 {
			t.Errorf("over it: %d after %s", status, took)
		}
		r.SetGate(httpapi.GateDraining)
		time.AfterFunc(time.Millisecond, func() { r.SetGate(httpapi.GateClosed) })
		if status, took := read(); status != 429 || took != time.Millisecond {
			t.Errorf("at a stop: %d after %s", status, took)
		}
	})
}

func TestProbesAndUnmatchedHaveNoBucket(t *testing.T) {
	r := newRig(t, limits(httpapi.Limits{RPS: 1, Burst: 1, ReadRPS: 1}))
	for range 10 {
		if a, b := r.do("GET", "/healthz", "", nil), r.do("GET", "/openapi.json", "", nil); a.Code != 200 ||
			b.Code != 200 {
			t.Fatalf("%d %d", a.Code, b.Code)
		}
	}
}

func TestFinerBuckets(t *testing.T) { synctest.Test(t, finerBuckets) }

func finerBuckets(t *testing.T) {
	near, far := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	six, sixToo := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::ffff")
	for _, tt := range []struct {
		doc    string
		limits httpapi.Limits
		who    []netip.Addr
		tokens []string
		want   []int
	}{
		{"by address", httpapi.Limits{PerIP: httpapi.Rate{1, 1}}, []netip.Addr{near, near, far}, []string{"good", "good", "good"}, []int{201, 429, 201}},
		{"an IPv6 host owns its /64", httpapi.Limits{PerIP: httpapi.Rate{1, 1}}, []netip.Addr{six, sixToo}, []string{"good", "good"}, []int{201, 429}},
		{"IPv4 in IPv6 is IPv4", httpapi.Limits{PerIP: httpapi.Rate{1, 1}}, []netip.Addr{near, netip.AddrFrom16(near.As16())}, []string{"good", "good"}, []int{201, 429}},
		{"by tenant", httpapi.Limits{PerTenant: httpapi.Rate{1, 1}}, []netip.Addr{near, near, near, near}, []string{"good a@x", "good b@x", "good a@y", "good a"}, []int{201, 429, 201, 201}},
		{"by principal", httpapi.Limits{PerPrincipal: httpapi.Rate{1, 1}}, []netip.Addr{near, far, near}, []string{"good a@x", "good a@y", "good b@x"}, []int{201, 429, 201}},
		{"a token that does not stand takes none", httpapi.Limits{PerPrincipal: httpapi.Rate{1, 1}}, []netip.Addr{near, near}, []string{"forged", "good a"}, []int{401, 201}},
	} {
		r := newRig(t, limits(tt.limits))
		for i, ip := range tt.who {
			w := r.as(&front.Peer{Addr: ip}, "POST", "/registry/commit/"+proposal, "",
				header{"Authorization": "Bearer " + tt.tokens[i]})
			if w.Code != tt.want[i] {
				t.Errorf("%s: call %d: %d, want %d", tt.doc, i, w.Code, tt.want[i])
			}
		}
	}
}

// Who fails too often from one address is refused before any look at the token; who holds a good
// one elsewhere is not.
func TestFailuresAreLimitedByAddress(t *testing.T) { synctest.Test(t, failuresAreLimited) }

func failuresAreLimited(t *testing.T) {
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.Auth = auth.New(auth.DefaultConfig(), d.Metrics) })
	got := map[int]int{}
	var last http.Header
	for i := range 30 {
		w := r.as(&front.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, "POST", "/registry/commit/"+proposal, "",
			header{"Authorization": "Bearer forged" + strconv.Itoa(i)})
		got[w.Code]++
		last = w.Header()
	}
	if got[401] < 20 || got[429] == 0 || got[401]+got[429] != 30 || last.Get("Retry-After") == "" {
		t.Errorf("answers %v, Retry-After %q", got, last.Get("Retry-After"))
	}
	if n := sum(t, r.metrics, "rejected_total", "reason", "rate_limit"); n != float64(got[429]) || r.reg.calls != 0 {
		t.Errorf("rejected_total{rate_limit} = %v of %d, %d calls of the engine", n, got[429], r.reg.calls)
	}
	if w := r.as(&front.Peer{Addr: netip.MustParseAddr("192.0.2.2")}, "POST", "/registry/commit/"+proposal, "",
		header{"Authorization": "Bearer forged"}); w.Code != 401 {
		t.Errorf("another address: %d", w.Code)
	}
}

// padded encodes text in exactly size bytes, with padding that decoders skip.
func padded(t *testing.T, encoding, text string, size int) string {
	t.Helper()
	out := skipping(t, encoding, text, 0)
	if out = skipping(t, encoding, text, size-len(out)); len(out) != size {
		t.Fatalf("%s: %d bytes for %d", encoding, len(out), size)
	}
	return out
}

// skipping encodes text after pad bytes of padding.
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

// sendChunked sends a payment in a chunked body.
func sendChunked(r *rig, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/v1/transfer", struct{ io.Reader }{strings.NewReader(body)})
	req.ContentLength = -1
	req.Header = http.Header{"Content-Type": {httpapi.TypeJSON}, "Authorization": {"Bearer good"}}
	keyed(req)
	return r.answer(&front.Peer{}, req)
}

// The body cap is exact, with a known length, in chunks, and encoded, where it applies before
// decompression.
func TestBodyCapToTheByte(t *testing.T) {
	encoded := func(encoding string) func(*rig, int) *httptest.ResponseRecorder {
		text := noisyBody(30_000)
		return func(r *rig, size int) *httptest.ResponseRecorder {
			body := padded(t, encoding, text, size)
			return r.do("POST", "/registry/proposals", body,
				header{"Authorization": "Bearer good", "Content-Encoding": encoding})
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
		if doc == "gzip" || doc == "zstd" { // because creating its bytes takes longer
			most = 64 << 10
			r = newRig(t, func(c *httpapi.Settings, _ *deps) { c.Server.MaxBody = 64 << 10 })
		}
		for size, fits := range map[int]bool{most - 1: true, most: true, most + 1: false} {
			w := send(r, size)
			if fits != (w.Code < 300) ||
				!fits &&
					(w.Code != http.StatusRequestEntityTooLarge || problemIn(t, w.Body.String()).Reason != httpapi.ReasonBodyCap) {
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
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.Auth = capped{200} })
	for size, want := range map[int]int{199: 202, 200: 202, 201: 413} {
		if w := r.do("POST", "/registry/proposals", sized(t, size, proposeBody), writer); w.Code != want {
			t.Errorf("%d bytes: %d, want %d", size, w.Code, want)
		}
	}
}

// The decompression ratio of ten and the absolute cap are exact.
func TestInflationCapsToTheByte(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	const sent, most = 400, 1 << 20
	for _, encoding := range []string{"gzip", "zstd"} {
		r := newRig(t)
		send := func(body string) *httptest.ResponseRecorder {
			return r.do("POST", "/registry/proposals", body,
				header{"Authorization": "Bearer good", "Content-Encoding": encoding})
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
		for size, reason := range map[int]string{10*sent - 1: "", 10 * sent: "", 10*sent + 1: httpapi.ReasonRatioCap} {
			held("the ratio", send(padded(t, encoding, sized(t, size, proposeBody), sent)), reason)
		}
		cfg := testSettings()
		cfg.Server.MaxBody, cfg.Server.AbsCap, cfg.Server.RatioCap = most, unit.Size(most), 2
		r.reload(t, cfg)
		for size, reason := range map[int]string{most - 1: "", most: "", most + 1: httpapi.ReasonInflateCap} {
			held("the absolute cap", send(skipping(t, encoding, sized(t, size, noisyBody), 0)), reason)
		}
	}
}

// The inflight limit of the wallet is exact for reads and writes together. Further requests are
// refused without effect.
func TestWalletInflightToTheCall(t *testing.T) {
	const most = 3
	r := newRig(t, func(c *httpapi.Settings, _ *deps) { c.Limits[serviceWallet] = httpapi.Limits{Inflight: most} })
	inside := r.Inflight(serviceWallet)
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
		if took := inside.Acquire(); took != (held < most) {
			t.Errorf("place %d: given %v", held+1, took)
		}
	}
	if n := inside.Taken(); n != most || r.wal.calls != 2*most {
		t.Errorf("%d places taken and %d calls, want %d and %d", n, r.wal.calls, most, 2*most)
	}
	inside.Release()
	if got := ask(); got[0] != http.StatusOK || got[1] != http.StatusOK {
		t.Errorf("%v once a place is free", got)
	}
}

// One network holds no more calls than its limit says, whatever is free; others and the socket are
// let in, and a call that ended gives its place back.
func TestInflightOfANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(
			t,
			func(c *httpapi.Settings, _ *deps) { c.Limits["edge"] = httpapi.Limits{Inflight: 8, NetworkInflight: 2} },
		)
		release := make(chan struct{})
		r.edge.hold = release
		var all sync.WaitGroup
		ask := func(p *front.Peer) (code func() int) {
			got := 0
			all.Go(func() { got = r.as(p, "GET", "/edge/assets/"+fakeAsset, "", nil).Code })
			synctest.Wait()
			return func() int { return got }
		}
		from := func(a string) *front.Peer { return &front.Peer{Addr: netip.MustParseAddr(a)} }
		for i, want := range []int{0, 0, 429, 429} { // 0: it is inside
			if got := ask(from("192.0.2.1"))(); got != want {
				t.Errorf("call %d: %d, want %d", i, got, want)
			}
		}
		for i, p := range []*front.Peer{from("192.0.2.2"), from("2001:db8::1"), from("2001:db8::2"), {Socket: true}} {
			if got := ask(p)(); got != 0 {
				t.Errorf("peer %d: %d", i, got)
			}
		}
		if got := ask(from("2001:db8::3"))(); got != 429 { // the third of one /64
			t.Errorf("%d", got)
		}
		close(release)
		all.Wait()
		r.edge.hold = nil
		if got := ask(from("192.0.2.1"))(); got != 200 {
			t.Errorf("after it: %d", got)
		}
		all.Wait()
	})
}

// Requests without a token take no tokens from the buckets of others.
func TestStrangersEmptyNoBucketOfWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits(httpapi.Limits{RPS: 1, Burst: 4, PerIP: httpapi.Rate{1, 2}}))
		for range 10 {
			if w := r.do("POST", "/registry/commit/"+proposal, "",
				header{"Authorization": "Bearer forged"}); w.Code != 401 {
				t.Fatalf("a stranger: %d", w.Code)
			}
		}
		for i, want := range []int{201, 201, 429} {
			if w := r.do("POST", "/registry/commit/"+proposal, "", writer); w.Code != want {
				t.Errorf("writer %d: %d, want %d", i, w.Code, want)
			}
		}
	})
}

// An IPv6 /64 has the stream slots of one address. Clients that a proxy does not name do not share
// slots with the socket.
func TestStreamsAreBoundedByNetwork(t *testing.T) {
	addr := func(s string) *front.Peer { return &front.Peer{Addr: netip.MustParseAddr(s)} }
	untold, socket := &front.Peer{}, &front.Peer{Socket: true, UID: 7}
	for _, tt := range []struct {
		doc   string
		peers []*front.Peer
		want  []bool
	}{
		{"one address", []*front.Peer{addr("192.0.2.1"), addr("192.0.2.1"), addr("192.0.2.1")}, []bool{true, true, false}},
		{"one /64", []*front.Peer{addr("2001:db8::1"), addr("2001:db8::2"), addr("2001:db8::3")}, []bool{true, true, false}},
		{"IPv4 in IPv6", []*front.Peer{addr("192.0.2.1"), addr("::ffff:192.0.2.1"), addr("192.0.2.1")}, []bool{true, true, false}},
		{"the socket", []*front.Peer{socket, socket, socket, untold, untold, untold}, []bool{true, true, true, true, true, false}},
	} {
		r := newRig(t)
		cfg := r.LimitsOf(serviceRegistry).Streams
		cfg.PerNetwork = 2
		for i, p := range tt.peers {
			if got := r.OpenStreams(serviceRegistry).Acquire(p, cfg); got != tt.want[i] {
				t.Errorf("%s: stream %d let in %v, want %v", tt.doc, i, got, tt.want[i])
			}
		}
		for i, p := range tt.peers {
			if tt.want[i] {
				r.OpenStreams(serviceRegistry).Release(p)
			}
		}
		if r.OpenStreams(serviceRegistry).Count() != 0 || r.OpenStreams(serviceRegistry).Networks() != 0 {
			t.Errorf("%s: %v streams left", tt.doc, r.OpenStreams(serviceRegistry).Count())
		}
	}
}

// Whom a proxy does not tell clearly is no one in particular, not free of limits.
func TestTheUntoldShareOneBucket(t *testing.T) { synctest.Test(t, untoldShareOneBucket) }

func untoldShareOneBucket(t *testing.T) {
	r := newRig(t, limits(httpapi.Limits{PerIP: httpapi.Rate{1, 1}}))
	commit := "/registry/commit/" + proposal
	for i, want := range []int{201, 429} {
		if w := r.do("POST", commit, "", writer); w.Code != want {
			t.Errorf("call %d: %d, want %d", i, w.Code, want)
		}
	}
	if w := r.socket("POST", commit, "", nil); w.Code != 201 {
		t.Errorf("the socket: %d", w.Code)
	}
}

// Peers that may not scrape do not use the slots of those that may.
func TestStrangersHoldUpNoScrape(t *testing.T) {
	r := newRig(t)
	for range httpapi.MaxScrapes {
		r.Scrapes().Acquire()
	}
	if w := r.as(&front.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, "GET", "/metrics", "", nil); w.Code != 401 {
		t.Errorf("%d", w.Code)
	}
}

// stuck is a collector that gives nothing until it is let go.
type stuck chan struct{}

func (s stuck) Describe(chan<- *prometheus.Desc) {}
func (s stuck) Collect(chan<- prometheus.Metric) { <-s }

// A scrape that cannot be answered is refused with a problem and counted.
func TestAScrapeThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(t), make(stuck)
		r.metrics.Registry().MustRegister(s)
		began := time.Now()
		w := r.socket("GET", "/metrics", "", nil)
		p := problemIn(t, w.Body.String())
		if w.Code != http.StatusServiceUnavailable || p.Reason != httpapi.ReasonDegraded ||
			p.RetryAfter != httpapi.NodeRetry ||
			p.Status != w.Code ||
			time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %d %+v", time.Since(began), w.Code, p)
		}
		close(s)
		synctest.Wait()
		if got := sum(t, r.metrics, "rejected_total", "reason", httpapi.ReasonDegraded); got != 1 ||
			sum(t, r.metrics, "rejected_total") != 1 {
			t.Errorf("counted %v times", got)
		}
	})
}

// A folder without room is no mistake of who named it.
func TestASnapshotWithoutRoom(t *testing.T) {
	r := newRig(t)
	r.node.err = fmt.Errorf("%w: %w", store.ErrFull, &fs.PathError{Op: "write", Path: "/d", Err: syscall.ENOSPC})
	if w := r.socket("POST", "/admin/v1/db/snapshot", `{"dir":"/d"}`, nil); w.Code != http.StatusInsufficientStorage {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A reason is for people, and goes onto a chain that is kept: it has a bound.
func TestTheReasonOfADrainIsShort(t *testing.T) {
	r := newRig(t)
	for n, want := range map[int]int{1024: 202, 1024 + 1: 400} {
		if w := r.socket("POST", "/admin/v1/drain", `{"reason":"`+strings.Repeat("x", n)+`"}`, nil); w.Code != want {
			t.Errorf("%d bytes: %d, want %d", n, w.Code, want)
		}
	}
}
