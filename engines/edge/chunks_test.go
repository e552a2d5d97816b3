package edge_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/fill"
)

// wireHost answers every request with the same bytes, in pieces of a given length, and ends the
// connection.
func wireHost(f *testing.F, wire func() (head, body []byte, piece int)) *host {
	f.Helper()
	c, _ := shared()
	plain := newHost(f, func(http.ResponseWriter, *http.Request) {}) // for the file of its certificate
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{c.cert}})
	if err != nil {
		f.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	done := make(chan struct{})
	f.Cleanup(func() { _ = l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			head, body, piece := wire()
			_, err = conn.Write(head)
			for ; err == nil && len(body) > 0; body = body[min(piece, len(body)):] {
				_, err = conn.Write(body[:min(piece, len(body))])
			}
			_ = conn.Close()
		}
	}()
	return &host{name: "localhost:" + port, ca: plain.ca}
}

// dechunk decodes a chunked body as in RFC 9112, section 7.1, and reports whether it is complete.
// It applies only the rules on which all readers agree. If the body is odd where readers differ,
// sure is false.
func dechunk(wire []byte) (body []byte, whole, sure bool) {
	for {
		line, rest, found := bytes.Cut(wire, []byte("\r\n"))
		size, ext, _ := strings.Cut(string(line), ";")
		n, err := strconv.ParseUint(size, 16, 31)
		odd := err != nil || len(size) > 8 || strings.ContainsAny(size, "+-_xX \t") ||
			strings.ContainsAny(ext, "\r\n\"") ||
			bytes.ContainsRune(line, '\n')
		switch {
		case !found:
			return body, false, true
		case odd:
			return body, false, false
		case n == 0:
			return body, bytes.HasPrefix(rest, []byte("\r\n")), bytes.HasPrefix(rest, []byte("\r\n")) || len(rest) < 2
		case uint64(len(rest)) < n+2:
			return append(body, rest[:min(n, uint64(len(rest)))]...), false, true
		case string(rest[n:n+2]) != "\r\n":
			return body, false, false
		}
		body = append(body, rest[:n]...)
		wire = rest[n+2:]
	}
}

// An object is stored only if its chunked body is complete, with exactly its bytes, however the
// chunks are cut. A part of a body is never served, and only a partial for a later try remains.
func FuzzChunks(f *testing.F) {
	for _, seed := range []string{
		"4\r\nbody\r\n0\r\n\r\n", "2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n", "4;a=b\r\nbody\r\n0\r\nX: y\r\n\r\n",
		"4\r\nbody\r\n0\r\n", "4\r\nbody\r\n", "4\r\nbo", "4\r\n", "4", "",
		"0\r\n\r\n", "4\nbody\n0\n\n", "+4\r\nbody\r\n0\r\n\r\n", "0x4\r\nbody\r\n0\r\n\r\n", "-1\r\n\r\n",
		"ffffffffffffffff\r\nbody", "7fffffff\r\nbody", "fffffffffffffffff\r\n",
		"4\r\nbodyX\r\n0\r\n\r\n", "5\r\nbody\r\n0\r\n\r\n", "4 \r\nbody\r\n0\r\n\r\n",
		"4\r\nbody\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "1\r\n\r\r\n0\r\n\r\n", "00004\r\nbody\r\n000\r\n\r\n",
		"2\r\n\r\n\r\n0\r\n\r\n",
	} {
		for _, piece := range []byte{1, 3, 255} {
			f.Add([]byte(seed), piece)
		}
	}
	type answer struct {
		body  []byte
		piece int
	}
	var now atomic.Pointer[answer]
	h := wireHost(f, func() (head, body []byte, piece int) {
		a := now.Load()
		// without close, what follows the body may be read as the answer to the next request
		head = []byte("HTTP/1.1 200 OK\r\nConnection: close\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\r\n")
		return head, a.body, a.piece
	})
	r := newRig(f, on(h, func(c *config.Config) { c.Ingress.RPSLimit = 1_000_000 })).start()
	f.Fuzz(func(t *testing.T, body []byte, piece byte) {
		if len(body) > 64<<10 {
			t.Skip("the body is longer than a chunk of the test host")
		}
		r.t = t
		now.Store(&answer{body, max(1, int(piece))})
		url := "https://" + h.name + "/x"
		filled, err := r.e.Fill(context.Background(), fill.Request{URL: url, Refresh: true})
		want, whole, sure := dechunk(body)
		switch {
		case sure && whole && (err != nil || filled.Digest != b3.Sum(want)):
			t.Errorf("a whole body of %d bytes: %+v, %v", len(want), filled, err)
		case sure && !whole && err == nil:
			t.Errorf("a cut body is stored: %+v", filled)
		case err != nil && reason(err) == "":
			t.Errorf("%v", err)
		}
		if err == nil {
			o, err := r.e.Asset(context.Background(), h.name+"/x", "")
			if err != nil {
				t.Fatal(err)
			}
			got := o.Bytes
			if o.Close(); b3.Sum(got) != filled.Digest {
				t.Errorf("%d bytes are served under another digest", len(got))
			}
		}
		r.e.Fills().Shed()
		if _, reserved := r.e.Content().Held(); reserved != 0 {
			t.Errorf("%d bytes stay reserved", reserved)
		}
		r.noTemps()
	})
}
