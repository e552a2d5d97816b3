package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"ronbox/httpapi/front"
	"strings"
	"sync"
	"testing"
	"time"
)

// headBody is as large as a HEAD is.
var headBody = `{"version":9,"payload_b3":"b3:` + strings.Repeat("a", 64) + `","committed_at":"2026-01-01T00:00:00.000Z","hash":"b3:` +
	strings.Repeat("b", 64) + `","epoch":1,"min_version":1,"checkpoint_size":0,"incarnation":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}`

// bareHandler is what net/http alone does with the same bytes.
func bareHandler(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, headBody)
}

// wireClient asks on one kept connection and reads answers of one size, so that the client costs next to nothing.
type wireClient struct {
	c    net.Conn
	ask  []byte
	size int
	buf  []byte
}

func newWireClient(b *testing.B, addr string) *wireClient {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	w := &wireClient{c: c, ask: []byte("GET /registry/head HTTP/1.1\r\nHost: x\r\n\r\n")}
	counted := &countingReader{r: c}
	if _, err := c.Write(w.ask); err != nil {
		b.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(counted), nil)
	if err != nil {
		b.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != headBody {
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

// round spreads n requests over the clients and says how long they took.
func round(b *testing.B, all []*wireClient, n int) time.Duration {
	var wg sync.WaitGroup
	began := time.Now()
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
	return time.Since(began)
}

// BenchmarkHead reads HEAD over loopback through the whole middleware and, in turns with it, the same bytes from a bare
// handler. ratio is the throughput of the first over that of the second.
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
		full, plain = append(full, newWireClient(b, r.Addr())), append(plain, newWireClient(b, l.Addr().String()))
	}
	var tFull, tPlain time.Duration
	n := 0
	for b.Loop() {
		tPlain += round(b, plain, perRound)
		tFull += round(b, full, perRound)
		n += perRound
	}
	b.ReportMetric(float64(tPlain)/float64(tFull), "ratio")
	b.ReportMetric(float64(n)/tFull.Seconds(), "full-req/s")
	b.ReportMetric(float64(n)/tPlain.Seconds(), "bare-req/s")
}

// BenchmarkStage is what each stage adds to a read, without a network.
func BenchmarkStage(b *testing.B) {
	r := newRig(b)
	route := &Route{
		Method: http.MethodGet, Pattern: "/x", Service: serviceRegistry, Class: ClassRead, Deadline: defaultDeadline,
		Endpoint: endpointRead, Scope: "registry.read",
	}
	req, _ := http.NewRequest(http.MethodGet, "/x", nil)
	req.Header.Set("Authorization", "Bearer good")
	for _, st := range stages() {
		b.Run(st.name, func(b *testing.B) {
			bd := r.bind(&Route{Method: "GET", Pattern: "/x", Service: serviceRegistry, handle: func(*call) error { return nil }}, "GET")
			bd.route = route
			h := st.wrap(r.Server, bd, func(*call) error { return nil })
			benchCall(b, req, route, h)
		})
	}
	b.Run("all", func(b *testing.B) {
		all, _ := r.router.registry[http.MethodGet].match("/registry/head")
		benchCall(b, req, all.route, all.run)
	})
}

func benchCall(b *testing.B, req *http.Request, route *Route, h handler) {
	w := &recorder{header: http.Header{}}
	b.ReportAllocs()
	for b.Loop() {
		w.body.Reset()
		c := &call{w: w, r: req, route: route, peer: &front.Peer{}, started: time.Now()}
		if err := h(c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDispatch finds the row of a path.
func BenchmarkDispatch(b *testing.B) {
	set := newRig(b).router.registry[http.MethodGet]
	for _, path := range []string{"/registry/head", "/registry/123", "/registry/proposals/" + proposal + "/payload"} {
		b.Run(path, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if row, _ := set.match(path); row == nil {
					b.Fatal("no row")
				}
			}
		})
	}
}
