package index

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/obs"
	"ronbox/engines/index"
	"ronbox/engines/index/name"
	"ronbox/httpapi/wire"
)

// Each route has its own slots. A full route refuses at once and does not affect the others.
func TestSlotsOfARoute(t *testing.T) {
	r := newRig(t)
	r.limits.inflight.Store(2)
	r.engine.hold = make(chan struct{})
	var inside sync.WaitGroup
	for range 2 {
		inside.Go(func() {
			if w := r.do(http.MethodGet, "/resolve/name:docs.example", "", nil); w.Code != http.StatusOK {
				t.Errorf("inside: %d", w.Code)
			}
		})
	}
	for full := false; !full; { // until both requests have a slot
		r.engine.mu.Lock()
		full = r.engine.calls == 2
		r.engine.mu.Unlock()
	}
	p := read[wire.Problem](r, r.do(http.MethodGet, "/resolve/name:docs.example", "", nil), http.StatusTooManyRequests)
	if p.Reason != "inflight" || !p.Retryable {
		t.Errorf("the third: %+v", p)
	}
	if w := r.do(http.MethodGet, "/index/peers", "", nil); w.Code != http.StatusOK {
		t.Errorf("another route: %d", w.Code)
	}
	close(r.engine.hold)
	inside.Wait()
	r.engine.mu.Lock()
	r.engine.hold = nil
	r.engine.mu.Unlock()
	if w := r.do(http.MethodGet, "/resolve/name:docs.example", "", nil); w.Code != http.StatusOK {
		t.Errorf("afterwards: %d", w.Code)
	}
	if got := scrape(t, r.metrics); !strings.Contains(
		got,
		`busy_rejections_total{endpoint="",route="/resolve/:key",service="index"} 1`,
	) {
		t.Errorf("not counted: %s", got)
	}
}

func TestQuotasAndRates(t *testing.T) {
	r := newRig(t, func(c *index.Config) { c.Quotas.ResolvesPerMin = 3 })
	statuses := func(at string, n int) (refused int) {
		for range n {
			if w := r.do(http.MethodGet, at, "", nil); w.Code == http.StatusTooManyRequests {
				refused++
			}
		}
		return refused
	}
	if n := statuses("/resolve/name:docs.example", 5); n != 2 {
		t.Errorf("%d of 5 were refused by a quota of 3", n)
	}
	if n := statuses("/providers/"+someB3, 5); n != 0 {
		t.Errorf("the quota of another kind refused %d", n)
	}
	if got := scrape(t, r.metrics); !strings.Contains(
		got,
		`quota_exhaustions_total{dimension="resolves_per_min",service="index"} 2`,
	) {
		t.Errorf("not counted: %s", got)
	}
	r = newRig(t, func(c *index.Config) { c.Quotas.ProvidersPerMin = 3 })
	if n := statuses("/providers/"+someB3, 2) + statuses("/routing/v1/providers/"+someB3, 3); n != 2 {
		t.Errorf("%d of 5 were refused by a quota of 3 over both routes of providers", n)
	}
	if got := scrape(t, r.metrics); !strings.Contains(
		got,
		`quota_exhaustions_total{dimension="providers_per_min",service="index"} 2`,
	) {
		t.Errorf("not counted: %s", got)
	}
	r = newRig(t, func(c *index.Config) { c.RateLimit = index.RateLimitConfig{RPS: 1, Burst: 4} })
	if n := statuses("/resolve/name:docs.example", 4); n != 0 {
		t.Errorf("%d of 4 were refused by a bucket of 4", n)
	}
	refused := 0
	for n := 0; refused == 0 && n < 50; n++ { // a busy machine may send only one request per second
		refused = statuses("/resolve/name:docs.example", 1)
	}
	if refused == 0 {
		t.Error("a bucket that is empty refuses nothing")
	}
}

// scrape returns the output of /metrics.
func scrape(t *testing.T, m *obs.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// A fresh lookup without a token costs ten tokens of the rate, and any other lookup one. A lookup
// for another node does not leave this node.
func TestFreshCostsMoreWithoutAToken(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		query, token string
		cost         int
	}{{"", "", 1}, {"?fresh=0", "", 1}, {"?fresh=1", "", freshCost}, {"?fresh=1", "Bearer bad", freshCost}, {"?fresh=1", "Bearer good", 1}} {
		header := http.Header{"Authorization": {tt.token}}
		if tt.token == "" {
			header = http.Header{"Authorization": nil}
		}
		r.do(http.MethodGet, "/resolve/name:docs.example"+tt.query, "", header)
		if got := r.engine.last.(name.ResolveOptions).From; got != (name.Caller{Network: loopback, Cost: tt.cost}) {
			t.Errorf("resolve%s %s: %+v", tt.query, tt.token, got)
		}
		r.do(http.MethodGet, "/providers/"+someB3+tt.query, "", header)
		if got := r.engine.last.(name.ProvidersOptions).From; got.Cost != tt.cost {
			t.Errorf("providers%s %s: %+v", tt.query, tt.token, got)
		}
	}
}

// A network is quiet for six searches a minute, and a block of addresses for four times as many.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimits(index.DefaultConfig(), obs.NewMetrics())
		quiet := func(format string, networks, each int) (n int) {
			for i := range networks * each {
				if l.Quiet(netip.MustParseAddr(fmt.Sprintf(format, i%networks))) {
					n++
				}
			}
			return n
		}
		for _, tt := range []struct {
			format                string
			networks, each, quiet int
		}{
			{"192.0.2.%d", 1, 100, quietSearches},
			{"198.51.100.%d", 150, 10, quietBlock},
			{"203.%d.113.1", 150, 10, 150 * quietSearches},
			{"2001:db8:0:%x::", 150, 10, quietBlock},
			{"2001:db9:%x::", 150, 10, 150 * quietSearches},
		} {
			if n := quiet(tt.format, tt.networks, tt.each); n != tt.quiet {
				t.Errorf("%d of %s, %d searches each: %d are quiet, want %d", tt.networks, tt.format, tt.each, n, tt.quiet)
			}
		}
		time.Sleep(time.Minute)
		if n := quiet("192.0.2.%d", 1, 100); n != quietSearches {
			t.Errorf("a minute later %d are quiet", n)
		}
	})
}

// The rate of misses is per network, has a burst of twice the rate, and is off at 0. A fresh lookup
// also charges the rate of reads.
func TestRatesOfANetwork(t *testing.T) {
	l := NewLimits(index.DefaultConfig(), obs.NewMetrics())
	took := 0
	for ok := true; ok && took < 1000; took++ {
		ok, _ = l.Admit(loopback, 1)
	}
	if took < 200 || took > 300 {
		t.Errorf("%d at once", took)
	}
	if ok, wait := l.Admit(loopback, 1); ok || wait <= 0 {
		t.Errorf("%t, %v", ok, wait)
	}
	if ok, _ := l.Admit(netip.MustParseAddr("127.0.0.2"), freshCost); !ok {
		t.Error("another network is refused")
	}
	off := index.DefaultConfig()
	off.RateLimit.MissRPS = 0
	l.Set(off)
	if ok, _ := l.Admit(loopback, 1000); !ok {
		t.Error("refused while it is off")
	}
	r := newRig(t, func(c *index.Config) { c.RateLimit = index.RateLimitConfig{RPS: 1, Burst: 15} })
	for i, want := range []int{200, 429} {
		if w := r.do(http.MethodGet, "/resolve/name:docs.example?fresh=1", "",
			http.Header{"Authorization": nil}); w.Code != want {
			t.Errorf("%d: %d", i, w.Code)
		}
	}
}

// Writes have a rate by default, which index.ratelimit.rps lowers.
func TestWritesHaveARate(t *testing.T) {
	for _, tt := range []struct{ put, rps, want int }{{500, 0, 500}, {500, 10, 10}, {500, 900, 500}, {0, 10, 10}, {0, 0, 0}} {
		c := index.DefaultConfig()
		c.RateLimit.PutRPS, c.RateLimit.RPS, c.RateLimit.Burst = tt.put, tt.rps, tt.rps
		if got := ServiceLimits(c).PerIP.RPS; got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}
