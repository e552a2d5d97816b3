package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"

	"ronbox/httpapi/front"
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

// spent is what requests took, by the clock and of the processor. The second is the same on a busy machine.
type spent struct{ wall, cpu time.Duration }

// sofar is what this process has used.
func sofar(b *testing.B) spent {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return spent{wall: time.Duration(time.Now().UnixNano()), cpu: time.Duration(u.Utime.Nano() + u.Stime.Nano())}
}

// round spreads n requests over the clients and adds what they took to total.
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

// BenchmarkHead reads HEAD over loopback through the whole middleware and, in turns with it, the same bytes from a bare
// handler. ratio is the throughput of the first over that of the second, cpu-ratio the same by processor time; both hold
// the client's share too.
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
		full, plain = append(full, newWireClient(b, r.Addr(), askHead, headBody)), append(plain, newWireClient(b, l.Addr().String(), askHead, headBody))
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

// BenchmarkStages is what each stage adds to a read and to a write with a token, without a network: the bare handler, then
// each stage around it that the route has, outermost last, as what it costs together with all before it.
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
	bd, _ := r.router.all[method].match(strings.Replace(pattern, ":id", proposal, 1))
	h := bd.route.handle
	b.Run("handler", func(b *testing.B) { benchCall(b, r, req, bd.route, h) })
	all := stages()
	for i := len(all) - 1; i >= 0; i-- {
		if !all[i].on(bd.route) {
			continue
		}
		h = all[i].wrap(r.Server, bd, h)
		b.Run("+"+all[i].name, func(b *testing.B) { benchCall(b, r, req, bd.route, h) })
	}
}

func benchCall(b *testing.B, r *rig, req *http.Request, route *Route, h handler) {
	w, peer, now := &recorder{header: http.Header{}}, &front.Peer{}, r.live.Load()
	params := httprouter.Params{{Key: paramProposal, Value: proposal}}
	b.ReportAllocs()
	for b.Loop() {
		w.body.Reset()
		c := &call{w: w, r: req, route: route, peer: peer, live: now, base: req.Context(), params: params, started: time.Now()}
		if err := h(c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkDispatch finds the row of a path.
func BenchmarkDispatch(b *testing.B) {
	set := newRig(b).router.all[http.MethodGet]
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
