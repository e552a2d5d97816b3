package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/fill"
)

// flush sends the bytes written so far.
func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// cut closes the connection in the middle of an answer.
func cut(w http.ResponseWriter) { raw("")(w, nil) }

// raw writes text and ends the connection as TLS requires.
func raw(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(c, text)
			_ = c.Close()
		}
	}
}

// hang sends no further byte and does not end the answer.
func hang(q *http.Request) {
	<-q.Context().Done()
	panic(http.ErrAbortHandler)
}

// statuses answers with each status in turn, and then with body.
func statuses(codes ...int) http.HandlerFunc {
	var n atomic.Int64
	return func(w http.ResponseWriter, _ *http.Request) {
		if i := n.Add(1); i <= int64(len(codes)) {
			w.WriteHeader(codes[i-1])
			return
		}
		serve(w, "body")
	}
}

// withETag answers with body and the given ETag.
func withETag(etags ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Etag"] = etags
		_, _ = io.WriteString(w, "body")
	}
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != "/x" {
			serve(w, "body")
			return
		}
		http.Redirect(w, q, to, http.StatusFound)
	}
}

// upstreamFault is a fault of a host, with the exact outcome and the number of calls.
type upstreamFault struct {
	doc    string
	h      http.HandlerFunc
	change func(*config.Config)
	reason asset.Reason // "" if the object is stored
	asked  int64
	late   float64 // io_timeouts_total of fills
}

// upstreamFaults returns new faults, because some handlers count.
func upstreamFaults() []upstreamFault {
	return []upstreamFault{
		{"whole", func(w http.ResponseWriter, _ *http.Request) { serve(w, "body") }, nil, "", 1, 0},
		{"short body", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "10")
			serve(w, "body")
			cut(w)
		}, nil, asset.UpstreamTruncated, 1, 0},
		{"chunks without an end", func(w http.ResponseWriter, _ *http.Request) {
			serve(w, "body")
			flush(w)
			cut(w)
		}, nil, asset.UpstreamTruncated, 1, 0},
		{
			"reset before the header",
			func(w http.ResponseWriter, _ *http.Request) { cut(w) },
			nil,
			asset.UpstreamTruncated,
			1,
			0,
		},
		{"no HTTP", raw("SSH-2.0-x\r\n"), nil, asset.UpstreamTruncated, 1, 0},
		{
			"longer than its Content-Length",
			raw("HTTP/1.1 200 OK\r\nETag: \"a\"\r\nContent-Length: 4\r\n\r\nbody, and more"),
			nil,
			"",
			1,
			0,
		},
		{"ended by its connection", raw("HTTP/1.1 200 OK\r\nETag: \"a\"\r\n\r\nbo"), nil, asset.UpstreamUnframed, 1, 0},
		{
			"ended by its connection, HTTP/1.0",
			raw("HTTP/1.0 200 OK\r\nETag: \"a\"\r\nConnection: close\r\n\r\nbo"),
			nil,
			asset.UpstreamUnframed,
			1,
			0,
		},
		{
			"larger than allowed, announced",
			func(w http.ResponseWriter, _ *http.Request) { serve(w, strings.Repeat("x", 1025)) },
			func(c *config.Config) { c.Fill.MaxObjectBytes = 1 << 10 },
			asset.ObjectCap,
			1,
			0,
		},
		{"larger than allowed, in chunks", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"a"`)
			for range 33 {
				_, _ = io.WriteString(w, strings.Repeat("x", 32))
				flush(w)
			}
		}, func(c *config.Config) { c.Fill.MaxObjectBytes = 1 << 10 }, asset.ObjectCap, 1, 0},
		{"stalled header", func(_ http.ResponseWriter, q *http.Request) { hang(q) }, nil, asset.Timeout, 3, 3},
		{"stalled body", func(w http.ResponseWriter, q *http.Request) {
			serve(w, "bo")
			flush(w)
			hang(q)
		}, nil, asset.Timeout, 3, 3},
		{"drip", func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("ETag", `"a"`)
			for q.Context().Err() == nil {
				_, _ = io.WriteString(w, ".")
				flush(w)
				time.Sleep(20 * time.Millisecond)
			}
			panic(http.ErrAbortHandler)
		}, nil, asset.Timeout, 3, 3},
		{"no ETag", withETag(), nil, asset.ETagInvalid, 1, 0},
		{"weak ETag", withETag(`W/"a"`), nil, asset.ETagInvalid, 1, 0},
		{"bare ETag", withETag(`a`), nil, asset.ETagInvalid, 1, 0},
		{"ETag with a space", withETag(`"a b"`), nil, asset.ETagInvalid, 1, 0},
		{"two ETags", withETag(`"a"`, `"b"`), nil, asset.ETagInvalid, 1, 0},
		{"gzip that was not asked for", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			serve(w, "body")
		}, nil, asset.NotCacheable, 1, 0},
		{"a part that was not asked for", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"a"`)
			w.WriteHeader(http.StatusPartialContent)
			_, _ = io.WriteString(w, "body")
		}, nil, asset.NotCacheable, 1, 0},
		{"304 that was not asked for", statuses(304), nil, asset.NotCacheable, 1, 0},
		{"404", statuses(404), nil, asset.UpstreamNotFound, 1, 0},
		{"410", statuses(410), nil, asset.UpstreamNotFound, 1, 0},
		{"403", statuses(403), nil, asset.Upstream4xx, 1, 0},
		{"429", statuses(429), nil, asset.Upstream4xx, 1, 0},
		{"500", statuses(500), nil, asset.Upstream5xx, 1, 0},
		{"502", statuses(502), nil, asset.Upstream5xx, 1, 0},
		{"503 once", statuses(503), nil, "", 2, 0},
		{"503 twice", statuses(503, 503), nil, "", 3, 0},
		{"503 three times", statuses(503, 503, 503), nil, asset.UpstreamUnavailable, 3, 0},
		{"504, then 503", statuses(504, 503), nil, "", 3, 0},
		{"503, then 404", statuses(503, 404), nil, asset.UpstreamNotFound, 2, 0},
		{"a redirect on the host", redirect("/y"), nil, "", 2, 0},
		{"a redirect in a circle", redirect("/x"), nil, asset.RedirectLoop, 4, 0},
		{"a redirect off the list", redirect("https://example.com/y"), nil, asset.NotAllowed, 1, 0},
		{"a redirect to another port", redirect("https://localhost:1/y"), nil, asset.NotAllowed, 1, 0},
		{"a redirect to http", redirect("http://localhost/y"), nil, asset.NotAllowed, 1, 0},
		{"a redirect to an address", redirect("https://127.0.0.1/y"), nil, asset.NotAllowed, 1, 0},
		{"a redirect with a password", redirect("https://a:b@localhost/y"), nil, asset.NotAllowed, 1, 0},
		{"a private address", func(w http.ResponseWriter, _ *http.Request) { serve(w, "body") },
			func(c *config.Config) { c.AllowPrivate = nil }, asset.NotAllowed, 0, 0},
		{"an unknown certificate", func(w http.ResponseWriter, _ *http.Request) { serve(w, "body") },
			func(c *config.Config) { c.CAFile = "" }, asset.UpstreamConnect, 0, 0},
	}
}

// For every fault of a host the outcome and the number of calls are exact, and only a complete
// object is stored.
func TestUpstreamFaults(t *testing.T) {
	t.Parallel()
	for _, tt := range upstreamFaults() {
		t.Run(tt.doc, func(t *testing.T) {
			t.Parallel()
			h := newHost(t, tt.h)
			r := newRig(t, on(h, func(c *config.Config) {
				if tt.change != nil {
					tt.change(c)
				}
				if tt.late > 0 {
					c.Ingress.TimeoutSecs = 2
				}
			})).start()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			path := h.name + "/x"
			_, err := r.e.Fills().Get(ctx, asset.Target{URL: "https://" + path, Host: h.name}, path, r.cfg.Timeout())
			if reason(err) != tt.reason || tt.reason == "" && err != nil {
				t.Errorf("%v, want %q", err, tt.reason)
			}
			late := r.count("io_timeouts_total", "op", "fill")
			if tt.late > 0 { // on a busy machine the connection may take the whole try
				late += r.count("io_timeouts_total", "op", "connect")
			}
			if n := h.asked.Load(); n != tt.asked && (tt.late == 0 || n > tt.asked) {
				t.Errorf("asked %d times, want %d", n, tt.asked)
			}
			var failed *asset.FillError
			if errors.As(err, &failed) && int64(failed.Tries) != max(1, tt.asked) && failed.Reason != asset.RedirectLoop {
				t.Errorf("says %d tries", failed.Tries)
			}
			if late != tt.late {
				t.Errorf("%v time-outs, want %v", late, tt.late)
			}
			has, _ := r.e.Content().Held()
			if tt.reason == "" {
				r.want(path, "body")
			}
			if (has.Objects == 1) != (tt.reason == "") {
				t.Errorf("%d objects", has.Objects)
			}
			r.sound()
		})
	}
}

// Retries are counted, and the pauses between them follow the formula.
func TestRetriesAreCounted(t *testing.T) {
	t.Parallel()
	h := newHost(t, statuses(503, 503))
	r := newRig(t, on(h)).start()
	r.want(h.name+"/x", "body")
	if n := r.count("backoff_retries_total", "op", "live_fill"); n != 2 {
		t.Errorf("%v retries", n)
	}
}

// refusing is localhost with a port that is reserved and on which no server listens.
func refusing(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("localhost:", at.(*unix.SockaddrInet4).Port)
}

// An expired certificate and a missing server fail as upstream_connect.
func TestNoConnection(t *testing.T) {
	t.Parallel()
	cert, ca := certificate(t, time.Now().Add(-time.Hour))
	old := newHostWith(t, cert, ca, echo)
	gone := &host{name: refusing(t), ca: old.ca}
	for doc, h := range map[string]*host{"expired": old, "gone": gone} {
		r := newRig(t, on(h)).start()
		if _, _, err := r.read(h.name + "/x"); reason(err) != asset.UpstreamConnect || h.asked.Load() != 0 {
			t.Errorf("%s: %v, asked %d times", doc, err, h.asked.Load())
		}
		r.sound()
	}
}

// stalled is how long a try lasts in the tests of a stalled disk, on a connection that is there.
const stalled = 3 * time.Second

// connect leaves the client with a connection to h. On a busy machine it may take long to make one.
func (r *rig) connect(h *host) {
	r.t.Helper()
	err := r.e.Ask(r.t.Context(), h.name, upstream.Request{URL: "https://" + h.name + "/", Max: 100},
		func(a *upstream.Answer) error { _, err := io.Copy(io.Discard, a.Body); return err })
	if err != nil {
		r.t.Fatal(err)
	}
	h.asked.Store(0)
}

// A fill that finds no room in time does not count against its host: the host is not called again,
// and no time-out is counted.
func TestStalledWriter(t *testing.T) {
	t.Parallel()
	h := newHost(t, echo)
	r := newRig(t, on(h, func(c *config.Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes = 2000, 2000 }))
	for _, task := range r.e.Tasks() {
		if task.Name == fill.TaskName {
			r.sup.Start(task)
		}
	}
	if err := r.e.Content().Room().Reserve(t.Context(), 2000); err != nil {
		t.Fatal(err)
	}
	r.connect(h)
	_, err := r.e.Fills().Get(context.Background(), asset.Target{URL: "https://" + h.name + "/x", Host: h.name}, "", stalled)
	if !errors.Is(err, context.DeadlineExceeded) || reason(err) != "" || h.asked.Load() != 1 {
		t.Errorf("%v, asked %d times", err, h.asked.Load())
	}
	if n := r.count("io_timeouts_total"); n != 0 {
		t.Errorf("%v time-outs of the host", n)
	}
}

// A disk that stalls while an object is written does not count against the host either.
func TestStalledDisk(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"a"`)
		for range 2 {
			_, _ = io.WriteString(w, "half")
			flush(w)
		}
	})
	var once sync.Once
	r := newRig(t, on(h), func(r *rig) {
		r.faults = func(op string) error {
			if op == "write" {
				once.Do(func() { time.Sleep(stalled + time.Second) })
			}
			return nil
		}
	}).start()
	r.connect(h)
	path := h.name + "/x"
	_, err := r.e.Fills().Get(context.Background(), asset.Target{URL: "https://" + path, Host: h.name}, path, stalled)
	// both halves may arrive together
	if err != nil && (!errors.Is(err, context.DeadlineExceeded) || reason(err) != "") || h.asked.Load() != 1 {
		t.Errorf("%v, asked %d times", err, h.asked.Load())
	}
	if n := r.count("io_timeouts_total") + r.count("upstream_fail_total") + r.count("backoff_retries_total"); n != 0 {
		t.Errorf("%v faults of the host", n)
	}
	r.noTemps()
}
