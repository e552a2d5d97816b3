package appliance

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"ronbox/appliance/config"
	"ronbox/appliance/unit"
)

const shortRead = 300 * time.Millisecond

func quickReads(cfg *config.Config) { cfg.Server.ReadTimeout = unit.Duration(shortRead) }

// Headers that do not come are cut without a word, a body that does not come is told so; none of them has a call inside
// meanwhile that holds a place in a queue.
func slowClients(t *testing.T) {
	s := besiege(t, quickReads)
	half := s.post("/registry/proposals", s.propose("x"))
	for _, tt := range []struct{ doc, raw string }{
		{"nothing at all", ""},
		{"half a request line", "GET /hea"},
		{"half open headers", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "},
		{"headers of a write", half[:200]},
	} {
		s.counted(tt.doc, map[string]float64{"rejected_total reason=timeout": 1, "store_commands_total": 0}, func() {
			c := s.dial(s.attacker())
			_, _ = io.WriteString(c, tt.raw)
			s.await("the connection", func() bool { return s.metric("conns_open") == 1 })
			if inside := s.metric("inflight_requests"); inside != 0 {
				t.Errorf("%s: %v calls are inside", tt.doc, inside)
			}
			if err := gone(c); err != nil {
				t.Errorf("%s: %v", tt.doc, err)
			}
		})
	}
	s.counted("dripping headers", map[string]float64{"rejected_total reason=timeout": 1}, func() {
		c := s.dial(s.attacker())
		s.drip(c, "GET /healthz HTTP/1.1\r\nX-Slow: "+strings.Repeat("x", 1000))
		if err := gone(c); err != nil {
			t.Errorf("dripping headers: %v", err)
		}
	})
	for _, tt := range []struct{ doc, raw string }{
		{"a body that was begun", s.write("/registry/proposals", "Content-Length: 100") + "\r\n{"},
		{"a body that never comes", s.write("/registry/proposals", "Content-Length: 100") + "\r\n"},
		{"half a chunk", s.write("/registry/proposals", "Transfer-Encoding: chunked") + "\r\n5\r\nab"},
	} {
		s.counted(tt.doc, map[string]float64{"rejected_total reason=timeout": 1, "store_commands_total": 0}, func() {
			got := s.ask(s.attacker(), tt.raw)
			s.told(tt.doc, got, http.StatusRequestTimeout, "timeout")
			if !got.closed || got.problem.Details["outcome"] != "none" {
				t.Errorf("%s: %v", tt.doc, got.problem.Details)
			}
		})
	}
	s.holds()
}

// drip sends byte by byte until the node has had enough.
func (s *siege) drip(c net.Conn, text string) {
	pace := time.NewTicker(10 * time.Millisecond)
	defer pace.Stop()
	for i := range len(text) {
		<-pace.C
		if _, err := io.WriteString(c, text[i:i+1]); err != nil {
			return
		}
	}
	s.t.Errorf("%d bytes dripped in and the connection is still open", len(text))
}

// A body is the same wherever the network splits it; one that is cut short is refused if anyone listens, and counted if
// nobody does.
func brokenBodies(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) { cfg.Registry.Limits.RPS = 0 })
	whole, id := s.pending("split")
	raw := s.post("/registry/proposals", whole)
	from := s.attacker()
	s.look()
	for at := range len(raw) - 1 {
		c := s.dial(from)
		_, _ = io.WriteString(c, raw[:at+1])
		got := s.exchange(c, raw[at+1:])
		_ = c.Close()
		if got.status != http.StatusAccepted || !bytes.Contains(got.body, []byte(id)) || got.header.Get("Idempotent-Replayed") != "true" {
			t.Fatalf("split at %d: %d %s, want %s again", at+1, got.status, got.body, id)
		}
	}
	begun := s.write("/registry/proposals", "Content-Length: 500") + "\r\n" + s.propose("cut")
	s.counted("cut short", map[string]float64{"rejected_total reason=malformed": 1, "store_commands_total": 0}, func() {
		c := s.dial(s.attacker())
		_, _ = io.WriteString(c, begun)
		must(t, c.CloseWrite())
		s.told("cut short", s.exchange(c, ""), http.StatusBadRequest, "malformed")
	})
	s.counted("client gone", map[string]float64{"rejected_total reason=malformed": 1, "store_commands_total": 0}, func() {
		c := s.dial(s.attacker())
		_, _ = io.WriteString(c, begun)
		s.await("the call to begin", func() bool { return s.metric("inflight_requests") == 1 })
		must(t, c.SetLinger(0))
		must(t, c.Close())
	})
	s.holds()
}

// One connection too many of an address, and of all, is told so and closed; probes have places of their own.
func connectionFlood(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) {
		cfg.Server.MaxConns, cfg.Server.PerIP, cfg.Server.Reserved = 5, 3, 2
		cfg.Server.HealthCIDRs = []string{quietHost + "/32"}
	})
	greedy := s.attacker()
	var held []net.Conn
	hold := func(from string, n int) {
		for range n {
			held = append(held, s.dial(from))
		}
		s.await("the connections", func() bool { return int(s.metric("conns_open")) == len(held) })
	}
	hold(greedy, 3)
	s.counted("one too many of an address", map[string]float64{"conn_rejects_total reason=per_ip": 1, "rejected_total reason=conn_cap": 1}, func() {
		got := s.ask(greedy, "")
		s.told("one too many of an address", got, http.StatusTooManyRequests, "conn_cap")
		if !got.closed {
			t.Error("it does not close")
		}
	})
	hold(s.attacker(), 2)
	s.counted("one too many of all", map[string]float64{"conn_rejects_total reason=total": 1, "rejected_total reason=conn_cap": 1}, func() {
		got := s.ask(s.attacker(), "")
		s.told("one too many of all", got, http.StatusServiceUnavailable, "conn_cap")
		if !got.closed {
			t.Error("it does not close")
		}
	})
	s.probe()
	for _, c := range held {
		_ = c.Close()
	}
	s.holds()
}

// What says less than it sends, or sends more than it may, is refused; the connection does not outlive it.
func lyingBodies(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) { cfg.Server.AdminOnTCP = true })
	body := s.propose("lying")
	chunk := func(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }
	for _, tt := range []struct {
		doc, raw, reason string
		status           int
	}{
		{"2 MiB told ahead", s.write("/registry/proposals", "Content-Length: 2097152") + "\r\n" + strings.Repeat("x", 2<<20), "body_cap", 413},
		{"a length beyond all numbers", s.write("/registry/proposals", "Content-Length: 99999999999999999999") + "\r\n", "malformed", 400},
		{"a negative length", s.write("/registry/proposals", "Content-Length: -1") + "\r\n", "malformed", 400},
		{"two lengths", s.write("/registry/proposals", "Content-Length: 3", "Content-Length: 4") + "\r\n{}", "malformed", 400},
		{"chunks where a length is asked for", s.write("/registry/proposals", "Transfer-Encoding: chunked") + "\r\n" + chunk(body) + "0\r\n\r\n", "length_required", 411},
		{"chunks beyond the cap", s.write("/registry/proposals", "Transfer-Encoding: chunked") + "\r\n" + chunk(strings.Repeat("x", 1<<20)) + chunk("x"), "body_cap", 413},
		{"a chunk that is none", s.write("/registry/proposals", "Transfer-Encoding: chunked") + "\r\nzz\r\n", "malformed", 400},
		{"a coding that is none", s.write("/registry/proposals", "Transfer-Encoding: gzip") + "\r\n", "malformed", 501},
	} {
		s.counted(tt.doc, map[string]float64{"rejected_total reason=" + tt.reason: 1, "store_commands_total": 0}, func() {
			got := s.ask(s.attacker(), tt.raw)
			s.told(tt.doc, got, tt.status, tt.reason)
			if !got.closed {
				t.Errorf("%s: the connection lives on", tt.doc)
			}
		})
	}
	s.tooShort(body)
	s.endless()
	s.bothFramings()
	s.holds()
}

// tooShort sends more than it says: what it says is read, and the rest is no request.
func (s *siege) tooShort(body string) {
	s.t.Helper()
	want := map[string]float64{"rejected_total reason=schema": 1, "rejected_total reason=malformed": 1, "store_commands_total": 0}
	s.counted("less than it sends", want, func() {
		c := s.dial(s.attacker())
		_, _ = io.WriteString(c, s.write("/registry/proposals", "Content-Length: 5")+"\r\n"+body+"\r\n\r\n")
		in := bufio.NewReader(c)
		s.told("what it says", s.read(in), http.StatusBadRequest, "schema")
		got := s.read(in)
		s.told("the rest", got, http.StatusBadRequest, "malformed")
		if !got.closed {
			s.t.Error("the connection lives on")
		}
		_ = c.Close()
	})
}

// endless sends chunks without end: the node stops reading near its cap.
func (s *siege) endless() {
	s.t.Helper()
	const most = 64 << 20 // the cap is 1 MiB; the rest is what the kernel takes in on both sides
	c, sent, over := s.dial(s.attacker()), 0, make(chan struct{})
	s.counted("chunks without end", map[string]float64{"rejected_total reason=body_cap": 1}, func() {
		go func() {
			defer close(over)
			_, _ = io.WriteString(c, s.write("/registry/proposals", "Transfer-Encoding: chunked")+"\r\n")
			piece := fmt.Sprintf("%x\r\n%s\r\n", 64<<10, strings.Repeat("x", 64<<10))
			for sent < most {
				n, err := io.WriteString(c, piece)
				if sent += n; err != nil {
					return
				}
			}
		}()
		got := s.read(bufio.NewReader(c))
		s.told("chunks without end", got, http.StatusRequestEntityTooLarge, "body_cap")
		_ = c.Close()
		<-over
	})
	if sent >= most {
		s.t.Errorf("the node took %d bytes", sent)
	}
}

// bothFramings sends a length beside chunks: it is read as chunks, by the node as by net/http, and what hides behind it
// is no request, since the connection ends.
func (s *siege) bothFramings() {
	s.t.Helper()
	body := fmt.Sprintf(`{"token":%q,"scope":"registry.propose"}`, s.token)
	hidden := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	raw := s.write("/admin/v1/tokens/verify", "Content-Length: 4", "Transfer-Encoding: chunked") + "\r\n" +
		fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) + hidden
	c := s.dial(s.attacker())
	_, _ = io.WriteString(c, raw)
	in := bufio.NewReader(c)
	if got := s.read(in); got.status != http.StatusOK || !got.closed || !bytes.Contains(got.body, []byte(`"allowed":true`)) {
		s.t.Errorf("both framings: %d %s, closes %v", got.status, got.body, got.closed)
	}
	if got := s.read(in); got.status != 0 {
		s.t.Errorf("what hides behind both framings is answered with %d", got.status)
	}
	_ = c.Close()
}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = io.WriteString(w, text)
	_ = w.Close()
	return b.String()
}

func zstded(t *testing.T, text string) string {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	must(t, err)
	defer func() { _ = w.Close() }()
	return string(w.EncodeAll([]byte(text), nil))
}

// noise is text that no encoding shrinks by much.
func noise(n int) string {
	r, b := rand.New(rand.NewPCG(1, 2)), make([]byte, n)
	for i := range b {
		b[i] = "0123456789abcdef"[r.IntN(16)]
	}
	return string(b)
}

// What inflates by too much, to too much, twice, or to nothing is refused while it streams.
func bombs(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) { cfg.Server.AbsCap = 1250 << 10 })
	flat := `{"schema_version":"1.0.0","payload":{"pad":"` + strings.Repeat("x", 8<<20) + `"}}`
	noisy := `{"schema_version":"1.0.0","payload":{"pad":"` + noise(1300<<10) + `"}}`
	small := s.propose("packed")
	for _, tt := range []struct {
		doc, coding, body, reason string
		status                    int
	}{
		{"gzip that inflates a thousandfold", "gzip", gzipped(flat), "ratio_cap", 400},
		{"zstd that inflates a thousandfold", "zstd", zstded(t, flat), "ratio_cap", 400},
		{"gzip beyond the absolute cap", "gzip", gzipped(noisy), "decompress_cap", 400},
		{"zstd beyond the absolute cap", "zstd", zstded(t, noisy), "decompress_cap", 400},
		{"one packed in the other", "gzip", gzipped(gzipped(small)), "schema", 400},
		{"two codings told", "gzip, gzip", gzipped(gzipped(small)), "malformed", 400},
		{"a coding told twice", "gzip\r\nContent-Encoding: zstd", gzipped(small), "malformed", 400},
		{"not what it says", "zstd", gzipped(small), "malformed", 400},
		{"cut in the middle", "gzip", gzipped(small)[:60], "malformed", 400},
		{"a sum that is wrong", "gzip", gzipped(small)[:len(gzipped(small))-8] + "12345678", "malformed", 400},
		{"an unknown coding", "br", small, "unsupported_type", 415},
	} {
		s.counted(tt.doc, map[string]float64{"rejected_total reason=" + tt.reason: 1, "store_commands_total": 0}, func() {
			got := s.ask(s.attacker(), s.post("/registry/proposals", tt.body, "Content-Encoding: "+tt.coding))
			s.told(tt.doc, got, tt.status, tt.reason)
		})
	}
	if got := s.ask(quietHost, s.post("/registry/proposals", gzipped(small), "Content-Encoding: gzip")); got.status != http.StatusAccepted {
		t.Errorf("an honest packed body: %d %s", got.status, got.body)
	}
	s.look()
	s.holds()
}
