package httpapi

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

func limits(l Limits) func(*Settings, *Deps) {
	l.Inflight = 8
	return func(c *Settings, _ *Deps) { c.Limits[serviceRegistry] = l }
}

// Reads and writes have buckets of their own; who finds one empty is told when to come back, and nothing is enqueued. Each
// request is of another network, lest the share of one be met first.
func TestServiceBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits(Limits{RPS: 1, Burst: 2, ReadRPS: 3}))
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
		if w.Code != 429 || p.Reason != "rate_limit" || p.RetryAfter != 1 || !p.Retryable || w.Header().Get("Retry-After") != "1" {
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
		r := newRig(t, limits(Limits{RPS: 1, Burst: 10, ReadRPS: 20}))
		greedy, other := &front.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, &front.Peer{Addr: netip.MustParseAddr("192.0.2.2")}
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

// Who is refused by the share of his network hears it at once, and is not heard again for a moment; a stop does not wait
// for that.
func TestConnectionsOfAFloodRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits(Limits{RPS: 1, Burst: 1, ReadRPS: 1}))
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
		if status, took := read(); status != 429 || took < floodRest/2 || took >= floodRest*3/2 {
			t.Errorf("over it: %d after %s", status, took)
		}
		r.SetGate(GateDraining)
		time.AfterFunc(time.Millisecond, func() { r.SetGate(GateClosed) })
		if status, took := read(); status != 429 || took != time.Millisecond {
			t.Errorf("at a stop: %d after %s", status, took)
		}
	})
}

func TestProbesAndUnmatchedHaveNoBucket(t *testing.T) {
	r := newRig(t, limits(Limits{RPS: 1, Burst: 1, ReadRPS: 1}))
	for range 10 {
		if a, b := r.do("GET", "/healthz", "", nil), r.do("GET", "/openapi.json", "", nil); a.Code != 200 || b.Code != 200 {
			t.Fatalf("%d %d", a.Code, b.Code)
		}
	}
}

func TestFinerBuckets(t *testing.T) {
	near, far := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	six, sixToo := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::ffff")
	for _, tt := range []struct {
		doc    string
		limits Limits
		who    []netip.Addr
		tokens []string
		want   []int
	}{
		{"by address", Limits{PerIP: Rate{1, 1}}, []netip.Addr{near, near, far}, []string{"good", "good", "good"}, []int{201, 429, 201}},
		{"an IPv6 host owns its /64", Limits{PerIP: Rate{1, 1}}, []netip.Addr{six, sixToo}, []string{"good", "good"}, []int{201, 429}},
		{"IPv4 in IPv6 is IPv4", Limits{PerIP: Rate{1, 1}}, []netip.Addr{near, netip.AddrFrom16(near.As16())}, []string{"good", "good"}, []int{201, 429}},
		{"by tenant", Limits{PerTenant: Rate{1, 1}}, []netip.Addr{near, near, near, near}, []string{"good a@x", "good b@x", "good a@y", "good a"}, []int{201, 429, 201, 201}},
		{"by principal", Limits{PerPrincipal: Rate{1, 1}}, []netip.Addr{near, far, near}, []string{"good a@x", "good a@y", "good b@x"}, []int{201, 429, 201}},
		{"a token that does not stand takes none", Limits{PerPrincipal: Rate{1, 1}}, []netip.Addr{near, near}, []string{"forged", "good a"}, []int{401, 201}},
	} {
		r := newRig(t, limits(tt.limits))
		for i, ip := range tt.who {
			w := r.as(&front.Peer{Addr: ip}, "POST", "/registry/commit/"+proposal, "", header{"Authorization": "Bearer " + tt.tokens[i]})
			if w.Code != tt.want[i] {
				t.Errorf("%s: call %d: %d, want %d", tt.doc, i, w.Code, tt.want[i])
			}
		}
	}
}

// Who fails too often from one address is refused before any look at the token; who holds a good one elsewhere is not.
func TestFailuresAreLimitedByAddress(t *testing.T) {
	r := newRig(t, func(_ *Settings, d *Deps) { d.Auth = auth.New(auth.DefaultConfig(), d.Metrics) })
	got := map[int]int{}
	var last http.Header
	for i := range 30 {
		w := r.as(&front.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, "POST", "/registry/commit/"+proposal, "", header{"Authorization": "Bearer forged" + strconv.Itoa(i)})
		got[w.Code]++
		last = w.Header()
	}
	if got[401] < 20 || got[429] == 0 || got[401]+got[429] != 30 || last.Get("Retry-After") == "" {
		t.Errorf("answers %v, Retry-After %q", got, last.Get("Retry-After"))
	}
	if n := sum(t, r.metrics, "rejected_total", "reason", "rate_limit"); n != float64(got[429]) || r.reg.calls != 0 {
		t.Errorf("rejected_total{rate_limit} = %v of %d, %d calls of the engine", n, got[429], r.reg.calls)
	}
	if w := r.as(&front.Peer{Addr: netip.MustParseAddr("192.0.2.2")}, "POST", "/registry/commit/"+proposal, "", header{"Authorization": "Bearer forged"}); w.Code != 401 {
		t.Errorf("another address: %d", w.Code)
	}
}
