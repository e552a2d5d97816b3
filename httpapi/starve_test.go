package httpapi

import (
	"fmt"
	"io/fs"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"ronbox/httpapi/front"
	"ronbox/store"
)

// Who holds no token takes none of those that who does shares.
func TestStrangersEmptyNoBucketOfWriters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, limits(Limits{RPS: 1, Burst: 4, PerIP: Rate{1, 2}}))
		for range 10 {
			if w := r.do("POST", "/registry/commit/"+proposal, "", header{"Authorization": "Bearer forged"}); w.Code != 401 {
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

// An IPv6 host owns its /64, and has the streams of one address; whom a proxy does not tell shares no book with the socket.
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
		cfg := r.live.Load().sse
		cfg.MaxPerIP = 2
		for i, p := range tt.peers {
			if got := r.streams.enter(p, cfg); got != tt.want[i] {
				t.Errorf("%s: stream %d let in %v, want %v", tt.doc, i, got, tt.want[i])
			}
		}
		for i, p := range tt.peers {
			if tt.want[i] {
				r.streams.leave(p)
			}
		}
		if r.streams.n != 0 || len(r.streams.byIP) != 0 {
			t.Errorf("%s: %d streams of %v left", tt.doc, r.streams.n, r.streams.byIP)
		}
	}
}

// Whom a proxy does not tell clearly is no one in particular, not free of limits.
func TestTheUntoldShareOneBucket(t *testing.T) {
	r := newRig(t, limits(Limits{PerIP: Rate{1, 1}}))
	for i, want := range []int{200, 429} {
		if w := r.do("GET", "/registry/head", "", nil); w.Code != want {
			t.Errorf("call %d: %d, want %d", i, w.Code, want)
		}
	}
	if w := r.socket("GET", "/registry/head", "", nil); w.Code != 200 {
		t.Errorf("the socket: %d", w.Code)
	}
}

// Who may not scrape takes no place of who may.
func TestStrangersHoldUpNoScrape(t *testing.T) {
	r := newRig(t)
	for range maxScrapes {
		r.scrapes.enter()
	}
	if w := r.as(&front.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, "GET", "/metrics", "", nil); w.Code != 401 {
		t.Errorf("%d", w.Code)
	}
}

// stuck is a collector that gives nothing until it is let go.
type stuck chan struct{}

func (s stuck) Describe(chan<- *prometheus.Desc) {}
func (s stuck) Collect(chan<- prometheus.Metric) { <-s }

// A scrape that cannot be answered is refused like anything else: in the one form, and counted as what it is.
func TestAScrapeThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newRig(t), make(stuck)
		r.metrics.Registry().MustRegister(s)
		began := time.Now()
		w := r.socket("GET", "/metrics", "", nil)
		p := problemIn(t, w.Body.String())
		if w.Code != http.StatusServiceUnavailable || p.Reason != reasonDegraded || p.RetryAfter != degradedRetry || p.Status != w.Code || time.Since(began) != 5*time.Second {
			t.Errorf("after %s: %d %+v", time.Since(began), w.Code, p)
		}
		close(s)
		synctest.Wait()
		if got := sum(t, r.metrics, "rejected_total", "reason", reasonDegraded); got != 1 || sum(t, r.metrics, "rejected_total") != 1 {
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
	for n, want := range map[int]int{maxReason: 202, maxReason + 1: 400} {
		if w := r.socket("POST", "/admin/v1/drain", `{"reason":"`+strings.Repeat("x", n)+`"}`, nil); w.Code != want {
			t.Errorf("%d bytes: %d, want %d", n, w.Code, want)
		}
	}
}
