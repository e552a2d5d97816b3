package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ronbox/httpapi"
	"ronbox/httpapi/front"
)

// headBody is as large as a HEAD is.
var headBody = `{"version":9,"payload_b3":"b3:` + strings.Repeat(
	"a",
	64,
) + `","committed_at":"2026-01-01T00:00:00.000Z","hash":"b3:` +
	strings.Repeat(
		"b",
		64,
	) + `","epoch":1,"min_version":1,"checkpoint_size":0,"incarnation":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}`

// bareHandler is what net/http alone does with the same bytes.
func bareHandler(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, headBody)
}

// wireClient asks on one kept connection and reads answers of one size, so that the client costs
// next to nothing.
type wireClient struct {
	c    net.Conn
	ask  []byte
	size int
	buf  []byte
}

const askHead = "GET /registry/head HTTP/1.1\r\nHost: x\r\n\r\n"

func newWireClient(b *testing.B, addr, ask, want string) *wireClient {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	w := &wireClient{c: c, ask: []byte(ask)}
	counted := &countingReader{r: c}
	if _, err := c.Write(w.ask); err != nil {
		b.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(counted), nil)
	if err != nil {
		b.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != want {
		b.Fatalf("answer %d %q %v", resp.StatusCode, body, err)
	}
	_ = resp.Body.Close()
	w.size = counted.n
	w.buf = make([]byte, w.size)
	return w
}

type countingReader struct {
	r io.Reader
	n int
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += n
	return n, err
}

func (w *wireClient) get() error {
	if _, err := w.c.Write(w.ask); err != nil {
		return err
	}
	_, err := io.ReadFull(w.c, w.buf)
	return err
}

// spent is what requests took, by the clock and of the processor. The second is the same on a busy
// machine.
type spent struct{ wall, cpu time.Duration }

// sofar is what this process has used.
func sofar(b *testing.B) spent {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return spent{wall: time.Duration(time.Now().UnixNano()), cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano())}
}

// round spreads n requests over the clients and adds their durations to total.
func round(b *testing.B, all []*wireClient, n int, total *spent) {
	var wg sync.WaitGroup
	began := sofar(b)
	for _, c := range all {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range n / len(all) {
				if err := c.get(); err != nil {
					b.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	ended := sofar(b)
	total.wall += ended.wall - began.wall
	total.cpu += ended.cpu - began.cpu
}

// BenchmarkHead reads HEAD over loopback through the whole middleware and, in turns with it, the
// same bytes from a bare handler. ratio is the throughput of the first over that of the second,
// cpu-ratio the same by processor time; both hold the client's share too.
func BenchmarkHead(b *testing.B) {
	const clients, perRound = 8, 2000
	r := newRig(b)
	r.reg.head.JSON = []byte(headBody)
	r.listening(b)
	bare := &http.Server{Handler: http.HandlerFunc(bareHandler)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan struct{})
	go func() { defer close(served); _ = bare.Serve(l) }()
	b.Cleanup(func() { _ = bare.Close(); <-served })
	var full, plain []*wireClient
	for range clients {
		full, plain = append(full, newWireClient(b, r.Addr(), askHead, headBody)), append(
			plain,
			newWireClient(b, l.Addr().String(), askHead, headBody),
		)
	}
	var tFull, tPlain spent
	n := 0
	for b.Loop() {
		round(b, plain, perRound, &tPlain)
		round(b, full, perRound, &tFull)
		n += perRound
	}
	b.ReportMetric(float64(tPlain.wall)/float64(tFull.wall), "ratio")
	b.ReportMetric(float64(tPlain.cpu)/float64(tFull.cpu), "cpu-ratio")
	b.ReportMetric(float64(tFull.cpu.Nanoseconds())/float64(n), "full-cpu-ns/req")
	b.ReportMetric(float64(n)/tFull.wall.Seconds(), "full-req/s")
	b.ReportMetric(float64(n)/tPlain.wall.Seconds(), "bare-req/s")
}

// BenchmarkStages measures a read and a write with a token, without a network: the bare handler,
// then with each further stage of the route.
func BenchmarkStages(b *testing.B) {
	for _, path := range []string{"GET /registry/head", "POST /registry/commit/:id"} {
		method, pattern, _ := strings.Cut(path, " ")
		b.Run(path, func(b *testing.B) { benchStages(b, method, pattern) })
	}
}

func benchStages(b *testing.B, method, pattern string) {
	r := newRig(b)
	req, _ := http.NewRequest(method, pattern, nil)
	req.Header.Set("Authorization", "Bearer good")
	names, handlers, route := r.StagesOf(method, strings.Replace(pattern, ":id", proposal, 1))
	for i, name := range names {
		b.Run(name, func(b *testing.B) { benchCall(b, r, req, route, handlers[i]) })
	}
}

func benchCall(b *testing.B, r *rig, req *http.Request, route *httpapi.Route, h httpapi.Handler) {
	w, peer := &recorder{header: http.Header{}}, &front.Peer{}
	b.ReportAllocs()
	for b.Loop() {
		w.body.Reset()
		c := r.NewRequest(w, req, route, peer)
		c.SetParam("id", proposal)
		if err := h(c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDispatch finds the row of a path.
func BenchmarkDispatch(b *testing.B) {
	r := newRig(b)
	for _, path := range []string{"/registry/head", "/registry/123", "/registry/proposals/" + proposal + "/payload"} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := r.Match(http.MethodGet, path); !ok {
					b.Fatal("no row")
				}
			}
		})
	}
}

// BenchmarkWallet measures a payment, a balance and a batch of 1,000 payments through all stages,
// without a network and ledger.
func BenchmarkWallet(b *testing.B) {
	rate := func(c *httpapi.Settings, _ *deps) {
		c.Limits[serviceWallet] = httpapi.Limits{
			Inflight:     1024,
			PerPrincipal: httpapi.Rate{RPS: 1_000_000_000, Burst: 1_000_000},
		}
	}
	many := batchOf("atomic", 1000)
	for _, bb := range []struct{ name, method, target, kind, body string }{
		{"transfer", "POST", "/v1/transfer", httpapi.TypeJSON, someTransfer},
		{"balance", "GET", "/v1/balance?account=alice&asset=ron", "", ""},
		{"batch1000", "POST", "/v1/batch", httpapi.TypeJSON, many},
		{"batch1000cbor", "POST", "/v1/batch", httpapi.TypeCBOR, toCBOR(b, many)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := newRig(b, rate)
			w := &recorder{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				req, _ := http.NewRequest(bb.method, bb.target, strings.NewReader(bb.body))
				req.RequestURI = bb.target
				req.Header = http.Header{
					"Authorization":   {"Bearer good"},
					"Idempotency-Key": {someKey},
					"Content-Type":    {bb.kind},
				}
				clear(w.header)
				w.body.Reset()
				r.Router().ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), &front.Peer{})))
			}
			if answer := w.body.String(); strings.Contains(answer, "urn:ronbox:problem") {
				b.Fatal(answer)
			}
		})
	}
}

// BenchmarkWalletWire pays and reads over loopback on 64 connections, with a wallet that answers at
// once. The result includes the client's share.
func BenchmarkWalletWire(b *testing.B) {
	const clients, perRound = 64, 6400
	r := newRig(b)
	paid := string(receiptOf(aTransfer(), someKey))
	body := strings.Replace(someTransfer, `,"valid_until":"2100-01-01T02:00:00+02:00"`, "", 1)
	pay := "POST /v1/transfer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Type: application/json\r\nIdempotency-Key: " + someKey +
		"\r\nContent-Length: " + strconv.Itoa(
		len(body),
	) + "\r\n\r\n" + body
	look := "GET /v1/balance?account=alice&asset=ron HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n"
	balance := r.do("GET", "/v1/balance?account=alice&asset=ron", "", writer).Body.String()
	r.listening(b)
	for _, bb := range []struct{ name, ask, want string }{{"transfer", pay, paid}, {"balance", look, balance}} {
		b.Run(bb.name, func(b *testing.B) {
			var all []*wireClient
			for range clients {
				all = append(all, newWireClient(b, r.Addr(), bb.ask, bb.want))
			}
			var total spent
			n := 0
			for b.Loop() {
				round(b, all, perRound, &total)
				n += perRound
			}
			b.ReportMetric(float64(n)/total.wall.Seconds(), "req/s")
			b.ReportMetric(float64(total.cpu.Nanoseconds())/float64(n), "cpu-ns/req")
		})
	}
}
