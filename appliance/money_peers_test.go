package appliance

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
)

// peerService names the environment's variable with the address and the token, a space between them, of a service that answers single
// payments and batches as the wallet does: that of testdata/bench/postgres.
const peerService = "RONBOX_BENCH_POSTGRES"

// benchmarkPeer pays through a service that is not ours, with the callers that pay through a node. Its accounts have money already.
func benchmarkPeer(b *testing.B, service string) {
	addr, token, _ := strings.Cut(service, " ")
	for _, tt := range []struct {
		name     string
		accounts int
		callers  func(*bank) []*caller
	}{
		{"single/uniform", payAccounts, (*bank).singles},
		{"single/hot", hotAccounts, (*bank).hots},
		{"batch/json", payAccounts, func(k *bank) []*caller { return k.batches(jsonBatch) }},
	} {
		b.Run(tt.name, func(b *testing.B) {
			run := strconv.FormatInt(time.Now().UnixNano(), 36) + "-" // or its keys would be those of the run before
			k := &bank{b: b, addr: addr, token: token, accounts: tt.accounts, run: run, nonces: make([]atomic.Uint64, tt.accounts)}
			callers := tt.callers(k)
			wave(b, callers) // connections, caches, plans
			var sum tally
			for b.Loop() {
				sum = sum.and(wave(b, callers))
			}
			sum.report(b, "transfers")
			for _, c := range callers {
				c.hangUp()
			}
		})
	}
}

// beBare is the body of a helper that answers at once, with as many bytes as the wallet, and does nothing else: what is measured through
// it is what net/http, the router, the callers and the machine let any service do.
func beBare(t *testing.T) {
	balance := (&wire.Balance{Account: payer(payAccounts - 1), Asset: "ron", AmountMinor: strconv.Itoa(funds), PostedMinor: strconv.Itoa(funds),
		HeldMinor: "0", AsOf: time.Now().UTC(), AsOfSeq: payAccounts}).AppendJSON(nil)
	receipt := (&record.Receipt{TxID: record.NewTxID(time.Now().UnixNano(), payAccounts, 1), Op: record.OpTransfer, From: payer(payAccounts - 1),
		To: payer(0), Asset: "ron", Amount: engines.AmountOf(0, 1), Nonce: 100, Idem: "t9999-100", At: time.Now().UnixNano(), Seq: payAccounts,
		Batch: payAccounts, Version: record.ReceiptVersion}).AppendJSON(nil)
	router := httprouter.New()
	router.GET("/v1/balance", func(w http.ResponseWriter, _ *http.Request, _ httprouter.Params) { send(w, balance) })
	router.POST("/v1/:op", func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
		_, _ = io.Copy(io.Discard, r.Body)
		send(w, receipt)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	srv, ended := &http.Server{Handler: router}, make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(l)
	}()
	fmt.Println(l.Addr(), os.Getpid(), "none")
	_, _ = io.Copy(io.Discard, os.Stdin)
	must(t, srv.Close())
	<-ended
}

func send(w http.ResponseWriter, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
