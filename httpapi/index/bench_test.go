package index

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/httpapi"
)

// BenchmarkResolve resolves a cached key over 50 connections through the whole middleware and,
// alternating with it, fetches the same bytes from a bare handler. ratio is the throughput of the
// first divided by that of the second.
func BenchmarkResolve(b *testing.B) {
	const conns, perConn = 50, 200
	r := realRig(b, nil)
	r.doc = nil
	if w := r.do(
		http.MethodPut,
		"/index/names/name:docs.example",
		`{"manifest":"`+someB3+`"}`,
		nil,
	); w.Code != http.StatusCreated {
		b.Fatal(w.Code)
	}
	var body []byte
	for range 100 { // until it is in the cache
		w := r.do(http.MethodGet, "/resolve/name:docs.example", "", nil)
		if body = w.Body.Bytes(); bytes.Contains(body, []byte(`"source":"cache"`)) {
			break
		}
	}
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", httpapi.TypeJSON)
		_, _ = w.Write(body)
	}))
	defer bare.Close()
	open := func(url string) []*bufio.ReadWriter {
		var all []*bufio.ReadWriter
		for range conns {
			c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = c.Close() })
			all = append(all, bufio.NewReadWriter(bufio.NewReader(c), bufio.NewWriter(c)))
		}
		return all
	}
	round := func(all []*bufio.ReadWriter) time.Duration {
		begun := time.Now()
		var wg sync.WaitGroup
		for _, c := range all {
			wg.Go(func() {
				for range perConn {
					_, _ = c.WriteString("GET /resolve/name:docs.example HTTP/1.1\r\nHost: x\r\n\r\n")
					_ = c.Flush()
					if err := skipAnswer(c.Reader); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(begun)
	}
	full, plain := open(r.url), open(bare.URL)
	var tFull, tPlain time.Duration
	n := 0
	for b.Loop() {
		tPlain += round(plain)
		tFull += round(full)
		n += conns * perConn
	}
	b.ReportMetric(float64(tPlain)/float64(tFull), "ratio")
	b.ReportMetric(float64(n)/tFull.Seconds(), "full-req/s")
	b.ReportMetric(float64(n)/tPlain.Seconds(), "bare-req/s")
}

// skipAnswer reads and discards an answer of 200.
func skipAnswer(in *bufio.Reader) error {
	length := 0
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200 ")):
			return fmt.Errorf("answered %q", line)
		case len(line) == 2:
			_, err := in.Discard(length)
			return err
		case bytes.HasPrefix(line, []byte("Content-Length: ")):
			if _, err := fmt.Sscanf(string(line[16:]), "%d", &length); err != nil {
				return err
			}
		}
	}
}
