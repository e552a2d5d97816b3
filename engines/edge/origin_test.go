package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/origin"
)

// A host that is not in edge.allow is never called.
func TestListedHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(r *rig) { r.cfg.Mode, r.cfg.Allow = config.ModeLive, []string{"example.com", "example.net:8443"} })
	for _, host := range []string{
		"example.org", "example.com:443", "example.com:8443", "example.net", "EXAMPLE.com", "",
	} {
		if err := r.e.Ask(context.Background(), host, upstream.Request{URL: "https://" + host + "/"}, nil); !errors.Is(
			err,
			origin.ErrHost,
		) {
			t.Errorf("%s: %v", host, err)
		}
	}
	for _, u := range []string{
		"https://example.org/", "http://example.com/", "https://example.com:444/", "https://u:p@example.com/",
		"https://127.0.0.1/",
	} {
		if err := r.e.Ask(context.Background(), "example.com", upstream.Request{URL: u}, nil); !errors.Is(err,
			upstream.ErrURL) {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// The breaker opens for a host that fails repeatedly, and is counted.
func TestBreaker(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	r := newRig(t, on(h)).start()
	for i := range 40 {
		_, _, err := r.read(fmt.Sprintf("%s/%d", h.name, i))
		if errors.Is(err, upstream.ErrOpen) {
			break
		}
	}
	asked := h.asked.Load()
	if _, _, err := r.read(h.name + "/x"); reason(err) != asset.UpstreamUnavailable || h.asked.Load() != asked ||
		asked >= 120 {
		t.Errorf("%v, asked %d times, then %d", err, asked, h.asked.Load())
	}
	if n := r.count("circuit_open_total", "svc", h.name); n != 1 {
		t.Errorf("opened %v times", n)
	}
}

// The breaker admits a call after its cooldown, and closes if the call succeeds. A truncated
// body does not count against the host, because its header arrived.
func TestBreakerClosesAgain(t *testing.T) {
	t.Parallel()
	var ill atomic.Bool
	ill.Store(true)
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
		switch {
		case strings.HasPrefix(q.URL.Path, "/cut/"):
			w.Header().Set("Content-Length", "10")
			serve(w, "body")
			cut(w)
		case ill.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			echo(w, q)
		}
	})
	r := newRig(t, on(h))
	const cooldown = 2 * time.Second
	*r.e.Cooldown() = cooldown
	r.cfg.Retry.LiveFill.MaxMS++ // so that the reload makes another breaker
	r.e.Reload(r.cfg)
	r.start()
	for i := range 40 {
		if _, _, err := r.read(fmt.Sprintf("%s/cut/%d", h.name, i)); reason(err) != asset.UpstreamTruncated {
			t.Fatalf("a body that breaks off, %d: %v", i, err)
		}
	}
	opened, last := time.Time{}, time.Now() // opened is the time before the call that opened the breaker
	for i := 0; opened.IsZero(); i++ {
		before := time.Now()
		switch _, _, err := r.read(fmt.Sprintf("%s/%d", h.name, i)); {
		case errors.Is(err, upstream.ErrOpen):
			opened = last
		case i > 100:
			t.Fatalf("never opened: %v", err)
		}
		last = before
	}
	ill.Store(false)
	for asked := h.asked.Load(); ; time.Sleep(50 * time.Millisecond) {
		_, _, err := r.read(h.name + "/well")
		if after := time.Since(opened); err == nil {
			if after < cooldown {
				t.Errorf("closed after %s", after)
			}
			break
		} else if reason(err) != asset.UpstreamUnavailable || h.asked.Load() != asked || after > 30*time.Second {
			t.Fatalf("%s after it has opened: %v, asked %d times", after, err, h.asked.Load()-asked)
		}
	}
	r.want(h.name+"/again", "of again")
}

// The digest of an object is computed from its bytes, even if the host claims another one.
func TestHostsWordIsNotTaken(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Repr-Digest", "sha-256=:AAAA:")
		w.Header().Set("ETag", `"b3:`+strings.Repeat("0", 64)+`"`)
		w.Header().Set("Content-Type", "text/html; =")
		_, _ = io.WriteString(w, "body")
	})
	r := newRig(t, on(h)).start()
	if o := r.want(h.name+"/x", "body"); o.Digest != b3.Sum([]byte("body")) || o.Type != "application/octet-stream" {
		t.Errorf("%+v", o)
	}
}

// A host that accepts a connection and sends no byte is a time-out of the connection.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	_, port, _ := net.SplitHostPort(silent.Addr().String())
	h := &host{name: "localhost:" + port}
	r := newRig(t, on(h, func(c *config.Config) { c.Ingress.TimeoutSecs = 1 })).start()
	_, err = r.e.Fills().Get(context.Background(), asset.Target{URL: "https://" + h.name + "/x", Host: h.name}, "", r.cfg.Timeout())
	if reason(err) != asset.Timeout {
		t.Error(err)
	}
	if n := r.count("io_timeouts_total", "op", "connect"); n != 3 {
		t.Errorf("%v time-outs", n)
	}
	if n := r.count("io_timeouts_total", "op", "fill"); n != 0 {
		t.Errorf("%v time-outs of fills", n)
	}
}

// TestUncacheable has hosts that forbid shared caches: their answers are refused with the reason,
// and the next request asks again.
func TestUncacheable(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, value, want string }{
		{"Cache-Control", "private", "private"}, {"Cache-Control", "max-age=60, No-Store", "No-Store"},
		{"Cache-Control", `private="set-cookie, x"`, "private"},
		{"Cache-Control", "no-store=1", "no-store"}, {"Set-Cookie", "a=b", "cookie"},
		{"Vary", "Accept-Encoding, *", "Vary"},
		{"Cache-Control", "public, max-age=1, no-cache", ""}, {"Cache-Control", "privately, x-no-store", ""},
		{"Vary", "Accept-Encoding", ""}, {"Cache-Control", "", ""},
	} {
		h := newHost(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(tt.name, tt.value)
			serve(w, "body")
		})
		r := newRig(t, on(h)).start()
		for n := range 2 {
			_, _, err := r.read(h.name + "/x")
			if tt.want == "" {
				if err != nil {
					t.Errorf("%s: %s: %v", tt.name, tt.value, err)
				}
				break
			}
			if reason(err) != asset.NotCacheable || !strings.Contains(err.Error(), tt.want) || h.asked.Load() != int64(n+1) {
				t.Errorf("%s: %s: %v, asked %d times", tt.name, tt.value, err, h.asked.Load())
			}
		}
		has, _ := r.e.Content().Held()
		if (has.Objects == 0) != (tt.want != "") {
			t.Errorf("%s: %s: %d objects", tt.name, tt.value, has.Objects)
		}
		if err := r.post(h); tt.want != "" && reason(err) != asset.NotCacheable || tt.want == "" && err != nil {
			t.Errorf("%s: %s, a POST: %v", tt.name, tt.value, err)
		}
		r.sound()
	}
}

// A refresh leaves the stored object unchanged if its answer may not be stored.
func TestUncacheableRefresh(t *testing.T) {
	t.Parallel()
	cookie := false
	h := newHost(t, func(w http.ResponseWriter, _ *http.Request) {
		if cookie {
			w.Header().Set("Set-Cookie", "a=b")
		}
		serve(w, fmt.Sprint("body ", cookie))
	})
	r := newRig(t, on(h)).start()
	r.want(h.name+"/x", "body false")
	cookie = true
	var failed *asset.FillError
	if _, err := r.e.Fill(context.Background(),
		fill.Request{URL: "https://" + h.name + "/x", Refresh: true}); !errors.As(err, &failed) ||
		failed.Reason != asset.NotCacheable {
		t.Errorf("%v", err)
	}
	r.want(h.name+"/x", "body false")
	r.sound()
}

func (r *rig) post(h *host) error {
	_, err := r.e.Fill(context.Background(), fill.Request{URL: "https://" + h.name + "/x"})
	return err
}
