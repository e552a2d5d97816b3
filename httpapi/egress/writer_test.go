package egress

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write is one write to a recorder.
type write struct {
	size int
	at   time.Duration // since the request
}

// recorder is the output of a Writer: a pipe that records the writes.
type recorder struct {
	net.Conn
	began  time.Time
	writes []write
	fail   error // of the next write
}

func (r *recorder) WriteBoth(first, second []byte) (int64, error) {
	if r.fail != nil {
		return 0, r.fail
	}
	all := slices.Concat(first, second)
	r.writes = append(r.writes, write{len(all), time.Since(r.began)})
	n, err := r.Conn.Write(all)
	return int64(n), err
}

// served is a connection that net/http serves with a Writer.
type served struct {
	*recorder
	w *Writer
}

func (c served) Write(b []byte) (int, error) { return c.w.Write(b) }

// once is a listener with one connection.
type once struct {
	net.Listener
	c net.Conn
}

func (l *once) Accept() (net.Conn, error) {
	if c := l.c; c != nil {
		l.c = nil
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l *once) Close() error { return nil }

// ask serves one request and returns what the client has got.
func ask(t *testing.T, rec *recorder, method string, h func(http.ResponseWriter)) (body []byte) {
	t.Helper()
	here, there := net.Pipe()
	rec.Conn, rec.began = there, time.Now()
	c := served{rec, NewWriter(rec)}
	s := http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		c.w.Begin()
		h(rw)
	})}
	_ = s.Serve(&once{c: c})
	defer func() { _ = s.Close() }()
	_, _ = io.WriteString(here, method+" / HTTP/1.1\r\nHost: x\r\n\r\n")
	head, err := http.ReadResponse(bufio.NewReader(here), &http.Request{Method: method})
	if err != nil {
		t.Fatal(err)
	}
	body, _ = io.ReadAll(head.Body)
	synctest.Wait()
	_ = here.Close()
	return body
}

// announced writes the pieces of an answer that has a Content-Length.
func announced(rw http.ResponseWriter, total int, pieces ...int) {
	rw.Header().Set("Content-Length", strconv.Itoa(total))
	for _, n := range pieces {
		_, _ = rw.Write(make([]byte, n))
	}
}

// An answer that announces its length is written at once, unless its handler flushes or pauses.
func TestAnswersAreWrittenAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name, method string
		handler      func(http.ResponseWriter)
		body         int
		at           []time.Duration // of the writes
	}{
		{"4 KiB", "GET", func(rw http.ResponseWriter) { announced(rw, 4<<10, 4<<10) }, 4 << 10, []time.Duration{0}},
		{"16 KiB", "GET", func(rw http.ResponseWriter) { announced(rw, 16<<10, 16<<10) }, 16 << 10, []time.Duration{0}},
		{"1 MiB", "GET", func(rw http.ResponseWriter) { announced(rw, 1<<20, 1<<20) }, 1 << 20, []time.Duration{0}},
		{"in pieces", "GET", func(rw http.ResponseWriter) { announced(rw, 6<<10, 3<<10, 3<<10) }, 6 << 10,
			[]time.Duration{0}},
		{"HEAD", "HEAD", func(rw http.ResponseWriter) { announced(rw, 16<<10, 16<<10) }, 0, []time.Duration{0}},
		{"HEAD with a long head", "HEAD", func(rw http.ResponseWriter) {
			rw.Header().Set("X-Long", strings.Repeat("x", 5<<10))
			announced(rw, 16<<10, 16<<10)
		}, 0, []time.Duration{0, 0}},
		{"304", "GET", func(rw http.ResponseWriter) {
			rw.Header().Set("Content-Length", "16384")
			rw.WriteHeader(http.StatusNotModified)
		}, 0, []time.Duration{0}},
		{"no length", "GET", func(rw http.ResponseWriter) { _, _ = rw.Write(make([]byte, 6<<10)) }, 6 << 10,
			[]time.Duration{0, 0}},
		{"flushed", "GET", func(rw http.ResponseWriter) {
			announced(rw, 8<<10, 6<<10)
			_ = http.NewResponseController(rw).Flush()
			time.Sleep(time.Second)
			announced(rw, 8<<10, 2<<10)
		}, 8 << 10, []time.Duration{0, time.Second}},
		{"a pause", "GET", func(rw http.ResponseWriter) {
			announced(rw, 7<<10, 6<<10)
			time.Sleep(time.Second)
			announced(rw, 7<<10, 1<<10)
		}, 7 << 10, []time.Duration{holdFor, time.Second}},
		{"a pause without an end", "GET", func(rw http.ResponseWriter) {
			announced(rw, 8<<10, 6<<10)
			time.Sleep(time.Second)
			panic(http.ErrAbortHandler)
		}, 6 << 10, []time.Duration{holdFor, time.Second}},
		{"an end before its length", "GET", func(rw http.ResponseWriter) { announced(rw, 8<<10, 6<<10) }, 6 << 10,
			[]time.Duration{0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rec := &recorder{}
				body := ask(t, rec, tt.method, tt.handler)
				var at []time.Duration
				for _, w := range rec.writes {
					at = append(at, w.at)
				}
				if len(body) != tt.body || !slices.Equal(at, tt.at) {
					t.Errorf("%d bytes in writes at %v, want %d at %v", len(body), at, tt.body, tt.at)
				}
			})
		})
	}
}

// An answer that fills the buffer of net/http exactly is complete, and not held.
func TestFullBufferIsNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{}
		ask(t, rec, "GET", func(rw http.ResponseWriter) { announced(rw, 2<<10, 2<<10) })
		body := httpBuffer - (rec.writes[0].size - 2<<10) // the head has the same length
		rec = &recorder{}
		got := ask(t, rec, "GET", func(rw http.ResponseWriter) { announced(rw, body, body) })
		if len(got) != body || len(rec.writes) != 1 || rec.writes[0] != (write{httpBuffer, 0}) {
			t.Errorf("%d bytes of %d in %v", len(got), body, rec.writes)
		}
	})
}

// The error of a part that was written late is that of the next write.
func TestErrorOfAHeldPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{fail: io.ErrClosedPipe}
		w := NewWriter(rec)
		w.Begin()
		b := append([]byte("HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"), make([]byte, httpBuffer)...)
		if n, err := w.Write(b[:httpBuffer]); n != httpBuffer || err != nil {
			t.Fatal(n, err)
		}
		time.Sleep(time.Second)
		if n, err := w.Write(b[httpBuffer:]); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
			t.Error(n, err)
		}
	})
}

// The head of an answer to HEAD may be held when the next answer begins: both arrive, in order.
func TestNextAnswerFollowsWhatIsHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := net.Pipe()
		w := NewWriter(&recorder{Conn: there, began: time.Now()})
		part := func(fill string) []byte {
			head := "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nX-Fill: "
			return []byte(head + strings.Repeat(fill, httpBuffer-len(head)-4) + "\r\n\r\n")
		}
		got := make(chan []byte, 1)
		go func() {
			all, _ := io.ReadAll(here)
			got <- all
		}()
		want := slices.Concat(part("a"), part("b"), []byte("more"))
		for _, b := range [][]byte{part("a"), part("b")} {
			w.Begin()
			if n, err := w.Write(b); n != len(b) || err != nil {
				t.Error(n, err)
			}
		}
		if _, err := w.Write([]byte("more")); err != nil {
			t.Error(err)
		}
		_ = there.Close()
		if all := <-got; string(all) != string(want) {
			t.Errorf("%d bytes arrived of %d", len(all), len(want))
		}
	})
}
