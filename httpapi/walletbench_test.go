package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"ronbox/engines/ledger/record"
	"ronbox/httpapi/front"
)

// BenchmarkWallet is what a payment, a balance and a batch of 1,000 payments cost above the wallet: all stages, no network.
func BenchmarkWallet(b *testing.B) {
	rate := func(c *Settings, _ *Deps) {
		c.Limits[serviceWallet] = Limits{Inflight: 1024, PerPrincipal: Rate{RPS: 1_000_000_000, Burst: 1_000_000}}
	}
	many := batchOf("atomic", 1000)
	for _, bb := range []struct{ name, method, target, kind, body string }{
		{"transfer", "POST", "/v1/transfer", typeJSON, someTransfer},
		{"balance", "GET", "/v1/balance?account=alice&asset=ron", "", ""},
		{"batch1000", "POST", "/v1/batch", typeJSON, many},
		{"batch1000cbor", "POST", "/v1/batch", typeCBOR, toCBOR(b, many)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := newRig(b, rate)
			w := &recorder{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				req, _ := http.NewRequest(bb.method, bb.target, strings.NewReader(bb.body))
				req.RequestURI = bb.target
				req.Header = http.Header{"Authorization": {"Bearer good"}, idemHeader: {someKey}, "Content-Type": {bb.kind}}
				clear(w.header)
				w.body.Reset()
				r.router.ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), &front.Peer{})))
			}
			if answer := w.body.String(); strings.Contains(answer, "urn:ronbox:problem") {
				b.Fatal(answer)
			}
		})
	}
}

// BenchmarkWalletWire pays and reads over loopback on 64 connections, with a wallet that answers at once: what the stack alone
// would bear. It holds the client's share too.
func BenchmarkWalletWire(b *testing.B) {
	const clients, perRound = 64, 6400
	r := newRig(b)
	paid := string(receiptOf(aTransfer(), someKey))
	body := strings.Replace(someTransfer, `,"valid_until":"2100-01-01T02:00:00+02:00"`, "", 1)
	pay := "POST /v1/transfer HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Type: application/json\r\nIdempotency-Key: " + someKey +
		"\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
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

// BenchmarkOrders reads bodies, by the operation.
func BenchmarkOrders(b *testing.B) {
	many := batchOf("atomic", 1000)
	packed := []byte(toCBOR(b, many))
	for name, read := range map[string]func() (int, error){
		"transfer": func() (int, error) {
			o := orderReader{in: newJSONReader([]byte(someTransfer))}
			_, err := o.single(record.OpTransfer)
			return 1, err
		},
		"json": func() (int, error) { x, err := readBatch(newJSONReader([]byte(many))); return len(x.ops), err },
		"cbor": func() (int, error) { x, err := readBatch(newCBORReader(packed)); return len(x.ops), err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				ops, err := read()
				if err != nil {
					b.Fatal(err)
				}
				n += ops
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/order")
		})
	}
}
