package front

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/flow"
)

// A file is sent by the kernel only through the connection itself.
var _ io.ReaderFrom = (*tcpConn)(nil)

// wire asks HEAD over one kept connection, with as little of a client as there can be.
type wire struct {
	c  net.Conn
	in *bufio.Reader
}

func (w *wire) head() error {
	if _, err := io.WriteString(w.c, "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		return err
	}
	for {
		line, err := w.in.ReadSlice('\n')
		if err != nil || len(line) == 2 {
			return err
		}
	}
}

// round sends n requests over all wires and returns the duration.
func round(b *testing.B, all []*wire, n int) time.Duration {
	began := time.Now()
	var wg sync.WaitGroup
	for _, w := range all {
		wg.Go(func() {
			for range n / len(all) {
				if err := w.head(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

func wires(b *testing.B, addr string, n int) (all []*wire) {
	for range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		all = append(all, &wire{c: c, in: bufio.NewReader(c)})
	}
	return all
}

// BenchmarkHead asks HEAD over loopback through the front and, in turns with it, of bare net/http
// with the same handler. ratio is the throughput of the first over that of the second.
func BenchmarkHead(b *testing.B) {
	const clients, perRound = 8, 4000
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header()["Content-Type"] = nil })
	r := newRig(b, func(s *setup) { s.o.Handler = handler }).listening(b)
	bare := &http.Server{Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = bare.Serve(l) }()
	b.Cleanup(func() { _ = bare.Close(); <-served })
	ours, plain := wires(b, r.Addr(), clients), wires(b, l.Addr().String(), clients)
	var tOurs, tPlain time.Duration
	n := 0
	for b.Loop() {
		tPlain += round(b, plain, perRound)
		tOurs += round(b, ours, perRound)
		n += perRound
	}
	b.ReportMetric(float64(tPlain)/float64(tOurs), "ratio")
	b.ReportMetric(float64(n)/tOurs.Seconds(), "front-req/s")
	b.ReportMetric(float64(n)/tPlain.Seconds(), "bare-req/s")
}

// BenchmarkConnect opens a connection, asks once and closes, below the caps and above.
func BenchmarkConnect(b *testing.B) {
	for _, tt := range []struct {
		name  string
		perIP int
	}{{"admitted", 1 << 20}, {"rejected", 1}} {
		b.Run(tt.name, func(b *testing.B) {
			r := newRig(b, noReserve, func(s *setup) { s.cfg.PerIP = tt.perIP }).listening(b)
			ask(b, r.dial(b), "/")
			for b.Loop() {
				c, err := net.Dial("tcp", r.Addr())
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		})
	}
}

// BenchmarkFlood is what ten quiet clients, which connect and ask once every 10 ms, wait for beside
// 300 that keep coming from one address, 1,500 times a second in all, against the same without
// those.
func BenchmarkFlood(b *testing.B) {
	r := newRig(b, noReserve).listening(b)
	stop := make(chan struct{})
	var flood sync.WaitGroup
	for b.Loop() {
		calm := quiet(b, r)
		for i := range 300 {
			flood.Go(func() { bother(r.Addr(), time.Duration(i)*time.Second/1500, stop) })
		}
		b.ReportMetric(float64(quiet(b, r).Microseconds()), "flood-p99-µs")
		b.ReportMetric(float64(calm.Microseconds()), "calm-p99-µs")
		close(stop)
		flood.Wait()
		stop = make(chan struct{})
	}
}

// bother connects and asks, time and again, from its own moment on.
func bother(addr string, from time.Duration, stop chan struct{}) {
	<-time.After(from)
	pause := time.NewTicker(200 * time.Millisecond)
	defer pause.Stop()
	for {
		if c, err := net.Dial("tcp", addr); err == nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			_, _ = c.Read(make([]byte, 512))
			_ = c.Close()
		}
		select {
		case <-stop:
			return
		case <-pause.C:
		}
	}
}

// quiet is the 99th percentile of 10 clients with 100 requests each.
func quiet(b *testing.B, r *rig) time.Duration {
	var mu sync.Mutex
	var all []time.Duration
	var clients sync.WaitGroup
	for i := range 10 {
		clients.Go(func() {
			pause := time.NewTicker(10 * time.Millisecond)
			defer pause.Stop()
			for range 100 {
				<-pause.C
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i))}}
				began := time.Now()
				c, err := d.DialContext(b.Context(), "tcp", r.Addr())
				if err != nil {
					b.Error(err)
					return
				}
				status, _, _ := ask(b, c, "/")
				took := time.Since(began)
				_ = c.Close()
				if status != http.StatusOK {
					b.Errorf("client %d: %d", i, status)
				}
				mu.Lock()
				all = append(all, took)
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	slices.Sort(all)
	return all[len(all)*99/100]
}

// BenchmarkConnTable acquires and releases a slot.
func BenchmarkConnTable(b *testing.B) {
	table := newConnTable(flow.NewCatalog(nil, nil), limits{total: 1024, perIP: 256})
	c := &conn{e: &endpoint{conns: table}, key: netip.MustParseAddr("192.0.2.1")}
	b.ReportAllocs()
	for b.Loop() {
		table.acquire(c, false, false)
		table.release(c)
	}
}

// BenchmarkForwarded reads the client of a proxied request.
func BenchmarkForwarded(b *testing.B) {
	for i, h := range []http.Header{
		{"X-Forwarded-For": {"203.0.113.9, 192.0.2.1, 10.0.0.1"}},
		{"Forwarded": {`for=203.0.113.9, for="[2001:db8::1]:4711";proto=https, for=10.0.0.1`}},
	} {
		b.Run(fmt.Sprint(i), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				forwarded(h, proxies)
			}
		})
	}
}
