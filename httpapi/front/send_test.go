package front

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// sentFile is a file that counts the bytes which are read from it, by the program and not by the
// kernel.
type sentFile struct {
	*os.File
	read int
}

func (f *sentFile) Read(b []byte) (int, error) {
	n, err := f.File.Read(b)
	f.read += n
	return n, err
}

// download answers with a body of that size, from a file or from memory, within a send window.
type download struct {
	window time.Duration
	path   string
	inHeap []byte
	read   int        // of the file, by the program
	sent   chan error // how the body was written
}

func newDownload(t testing.TB, window time.Duration, size int) *download {
	t.Helper()
	d := &download{window: window, path: filepath.Join(t.TempDir(), "asset"), sent: make(chan error, 1)}
	for n := range size >> 16 { // no two parts alike
		d.inHeap = append(d.inHeap, bytes.Repeat(fmt.Appendf(nil, "%08d", n), 1<<13)...)
	}
	if err := os.WriteFile(d.path, d.inHeap, 0o600); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *download) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", strconv.Itoa(len(d.inHeap)))
	PeerOf(r).Serves("bank")
	if d.window > 0 {
		PeerOf(r).SendWindow(d.window)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d.window))
	}
	var err error
	switch r.URL.Path {
	case "/heap":
		_, err = w.Write(d.inHeap)
	case "/reader":
		_, err = io.Copy(w, struct{ io.Reader }{bytes.NewReader(d.inHeap)})
	default:
		file, oerr := os.Open(d.path)
		if oerr != nil {
			d.sent <- oerr
			return
		}
		defer func() { _ = file.Close() }()
		f := &sentFile{File: file}
		_, err = io.CopyN(w, f, int64(len(d.inHeap))) // as http.ServeContent does
		d.read = f.read
	}
	d.sent <- err
}

// readSlowly asks and compares the body with that of d, piece by piece with a pause after each. It
// returns an error if not all of it came.
func (d *download) readSlowly(t *testing.T, c net.Conn, path string, piece int, pause time.Duration) error {
	t.Helper()
	_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(pause)
	defer tick.Stop()
	n := 0
	for got := make([]byte, piece); n < len(d.inHeap); <-tick.C {
		m, err := io.ReadFull(resp.Body, got[:min(piece, len(d.inHeap)-n)])
		if !bytes.Equal(got[:m], d.inHeap[n:n+m]) {
			t.Fatalf("%s: other bytes at %d", path, n)
		}
		if n += m; err != nil {
			return fmt.Errorf("%s: %w after %d bytes", path, err, n)
		}
	}
	return nil
}

// inSomeWindow has a client that keeps pace with a send window try windows from least on: a machine
// that is busy keeps no pace with a short one.
func inSomeWindow(t *testing.T, least time.Duration, try func(window time.Duration) error) {
	t.Helper()
	for window := least; ; window *= 4 {
		err := try(window)
		if err == nil {
			return
		}
		if window >= 16*least {
			t.Fatal(err)
		}
		t.Logf("in a window of %s: %v", window, err)
	}
}

// A long answer arrives whole at a client that reads on, however long that takes, and a file of it
// is sent by the kernel.
func TestSendWindowOutlastsAnyTimeout(t *testing.T) {
	secure := withTLS(t)
	for _, tt := range []struct {
		path        string
		size, piece int
		change      func(*setup)
	}{
		{"/file", 64 << 20, 4 << 20, func(*setup) {}}, {"/heap", 16 << 20, 1 << 20, func(*setup) {}},
		{"/reader", 16 << 20, 1 << 20, func(*setup) {}}, {"/tls", 16 << 20, 1 << 20, secure},
	} {
		t.Run(tt.path[1:], func(t *testing.T) {
			t.Parallel()
			inSomeWindow(t, 250*time.Millisecond, func(window time.Duration) error {
				d := newDownload(t, window, tt.size)
				r := newRig(t, tt.change, func(s *setup) { s.o.Handler = d }).listening(t)
				c := r.dial(t)
				if r.tls.Enabled {
					c = shaken(t, r)
				}
				began := time.Now()
				err := d.readSlowly(t, c, tt.path, tt.piece, window/4)
				took := time.Since(began)
				_ = c.Close()
				if err := errors.Join(err, <-d.sent); err != nil {
					return err
				}
				if took < 3*window {
					t.Errorf("%s is too fast to show anything", took)
				}
				if tt.path == "/file" && d.read > 512 { // which net/http reads ahead
					t.Errorf("%d bytes of the file were read, want them sent by the kernel", d.read)
				}
				if n := r.counted("bank write"); n != 0 {
					t.Errorf("%d answers were not written in time", n)
				}
				return nil
			})
		})
	}
}

// The kernel's buffer, of which a third must be free before a writer goes on, can hold more than a
// client takes in a window.
func TestSendWindowCountsBytesTaken(t *testing.T) {
	t.Parallel()
	inSomeWindow(t, 100*time.Millisecond, func(window time.Duration) error {
		d := newDownload(t, window, 8<<20)
		r := newRig(t, func(s *setup) { s.o.Handler = d }).listening(t)
		c := r.dial(t)
		_ = c.(*net.TCPConn).SetReadBuffer(64 << 10)
		err := d.readSlowly(t, c, "/file", 128<<10, window*3/10)
		_ = c.Close()
		return errors.Join(err, <-d.sent)
	})
}

// A client that does not read is disconnected after the window and counted once.
func TestStalledClientIsCut(t *testing.T) {
	t.Parallel()
	const window = 200 * time.Millisecond
	d := newDownload(t, window, 64<<20)
	plain := newRig(t, func(s *setup) { s.o.Handler = d }).listening(t)
	secure := newRig(t, withTLS(t), func(s *setup) { s.o.Handler = d }).listening(t)
	for _, tt := range []struct {
		path string
		r    *rig
		dial func() net.Conn
	}{
		{"/file", plain, func() net.Conn { return plain.dial(t) }}, {"/heap", plain, func() net.Conn { return plain.dial(t) }},
		{"/reader", plain, func() net.Conn { return plain.dial(t) }}, {"/tls", secure, func() net.Conn { return shaken(t, secure) }},
	} {
		c := tt.dial()
		before, began := tt.r.counted("bank write"), time.Now()
		_, _ = io.WriteString(c, "GET "+tt.path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if err := <-d.sent; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", tt.path, err)
		}
		if took := time.Since(began); took < window {
			t.Errorf("%s: cut after %s", tt.path, took)
		}
		_, _ = io.Copy(io.Discard, c) // until the connection is closed
		if n := tt.r.counted("bank write") - before; n != 1 {
			t.Errorf("%s: %d answers were not written in time, want 1", tt.path, n)
		}
	}
}

// The window ends with its answer: the next one of the connection has one deadline again.
func TestSendWindowEndsWithItsAnswer(t *testing.T) {
	d := newDownload(t, time.Minute, 1<<16)
	r := newRig(t)
	r.o.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/unread" {
			r.ServeHTTP(w, req)
			return
		}
		d.ServeHTTP(w, req)
	})
	c := r.listening(t).dial(t)
	if err := errors.Join(d.readSlowly(t, c, "/file", 1<<16, time.Millisecond), <-d.sent); err != nil {
		t.Fatal(err)
	}
	unreadAnswer(t, r, c)
}

// writeCalls returns the number of system calls by which this process has written so far.
func writeCalls(t *testing.T) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/io")
	if err != nil {
		t.Skip("the kernel does not count system calls: ", err)
	}
	_, counts, _ := strings.Cut(string(b), "syscw: ")
	if _, err := fmt.Sscan(counts, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// An answer that the socket accepts costs one write, of a file two, and over TLS two for 64 KiB.
func TestAnswersCostFewWrites(t *testing.T) {
	const answers = 100
	for _, tt := range []struct {
		path   string
		size   int
		secure bool
		most   int // writes for an answer
	}{
		{"/heap", 4 << 10, false, 1}, {"/heap", 16 << 10, false, 1}, {"/heap", 64 << 10, false, 1},
		{"/file", 64 << 10, false, 2}, {"/heap", 4 << 10, true, 1}, {"/heap", 64 << 10, true, 1},
		{"/file", 64 << 10, true, 2},
	} {
		t.Run(fmt.Sprint(tt.path[1:], tt.size>>10, "K tls ", tt.secure), func(t *testing.T) {
			d := newDownload(t, time.Minute, 64<<10)
			d.inHeap = d.inHeap[:tt.size]
			change := func(*setup) {}
			if tt.secure {
				change = withTLS(t)
			}
			r := newRig(t, change, func(s *setup) { s.o.Handler = d }).listening(t)
			c := r.dial(t)
			if tt.secure {
				c = shaken(t, r)
			}
			in := bufio.NewReader(c)
			before := writeCalls(t)
			for range answers {
				_, _ = io.WriteString(c, "GET "+tt.path+" HTTP/1.1\r\nHost: x\r\n\r\n") // one write as well
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					t.Fatal(err)
				}
				n, err := io.Copy(io.Discard, resp.Body)
				if err := errors.Join(err, <-d.sent); n != int64(tt.size) || err != nil {
					t.Fatal(n, err)
				}
			}
			calls := writeCalls(t) - before
			if most := answers * (tt.most + 1); calls > most+answers/2 { // also those of the runtime
				t.Errorf("%d calls for %d answers, want %d at most", calls, answers, most)
			}
		})
	}
}

// BenchmarkDownload sends a file of 64 MiB over loopback, with and without a send window, and from
// memory.
func BenchmarkDownload(b *testing.B) {
	for _, tt := range []struct {
		path   string
		window time.Duration
	}{{"/file", 0}, {"/file", 5 * time.Second}, {"/heap", 0}, {"/heap", 5 * time.Second}} {
		b.Run(fmt.Sprint(tt.path[1:], " window ", tt.window), func(b *testing.B) {
			d := newDownload(b, tt.window, 64<<20)
			c := newRig(b, func(s *setup) { s.o.Handler = d }).listening(b).dial(b)
			in := bufio.NewReaderSize(c, 1<<20)
			b.SetBytes(64 << 20)
			for b.Loop() {
				_, _ = io.WriteString(c, "GET "+tt.path+" HTTP/1.1\r\nHost: x\r\n\r\n")
				resp, err := http.ReadResponse(in, nil)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, resp.Body); n != 64<<20 || err != nil {
					b.Fatal(n, err)
				}
				if err := <-d.sent; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
