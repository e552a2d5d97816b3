package load

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/julienschmidt/httprouter"
	bolt "go.etcd.io/bbolt"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/httpapi/wire"
	walletapi "ronbox/httpapi/wire/wallet"
)

// Sizes of the payment benchmark. Its peers in testdata/bench use the same sizes.
const (
	payAccounts       = 10_000
	hotAccounts       = 10
	payConns          = 64
	batchConns        = 4
	batchSize         = 1000
	funds       int64 = 1_000_000_000_000 // of each account
)

// BenchmarkMoney pays over HTTP through a node in another process. The node has the default disk
// settings, tokens, limits and metrics, except the rate limit of one principal. A wave lasts one
// second. Use -benchtime=10s for comparable figures.
func BenchmarkMoney(b *testing.B) {
	for _, tt := range []struct {
		name, role string
		accounts   int
		unit       string
		callers    func(*bank) []*caller
	}{
		{"single/uniform", "bank", payAccounts, "transfers", (*bank).singles},
		{"single/hot", "bank", hotAccounts, "transfers", (*bank).hots},
		{"batch/json", "bank", payAccounts, "transfers", func(k *bank) []*caller { return k.batches(jsonBatch) }},
		{"batch/hot", "bank", hotAccounts, "transfers", func(k *bank) []*caller { return k.batches(jsonBatch) }},
		{"batch/cbor", "bank", payAccounts, "transfers", func(k *bank) []*caller { return k.batches(cborBatch) }},
		{"balance", "bank", payAccounts, "reads", (*bank).balances},
		{"tx", "bank", payAccounts, "reads", (*bank).receipts},
		{"replay", "bank", payAccounts, "reads", (*bank).replays},
		{"bare/get", "bare", payAccounts, "requests", (*bank).balances}, // what any service can do at most
		{"bare/post", "bare", payAccounts, "requests", (*bank).singles},
	} {
		b.Run(tt.name, func(b *testing.B) {
			k := openBank(b, tt.role, tt.accounts)
			defer k.peer.end()
			callers := tt.callers(k)
			wave(b, callers) // warms connections, caches and maps
			k.measure(b, tt.unit, callers)
			for _, c := range callers {
				c.hangUp()
			}
		})
	}
	b.Run("single/70", benchmarkPaced)
	if service := os.Getenv(peerService); service != "" {
		b.Run("postgres", func(b *testing.B) { benchmarkPeer(b, service) })
	}
}

// peerService names the environment variable with the address and the token, separated by a space,
// of a service that answers single payments and batches like the wallet: that of
// testdata/bench/postgres.
const peerService = "RONBOX_BENCH_POSTGRES"

// benchmarkPeer measures another service with the callers that measure a node. The accounts of the
// service are already funded.
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
			k := &bank{
				b:        b,
				addr:     addr,
				token:    token,
				accounts: tt.accounts,
				run:      run,
				nonces:   make([]atomic.Uint64, tt.accounts),
			}
			callers := tt.callers(k)
			wave(b, callers) // warms connections, caches and plans
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

// beBare is the body of a helper that answers at once with as many bytes as the wallet. It shows
// the limit that net/http, the router, the callers and the machine set for any service.
func beBare(t *testing.T) {
	balance := (&walletapi.Balance{Account: payer(payAccounts - 1), Asset: "ron", AmountMinor: strconv.FormatInt(funds, 10),
		PostedMinor: strconv.FormatInt(funds, 10),
		HeldMinor:   "0", AsOf: wire.Instant{Time: time.Now().UTC()}, AsOfSeq: payAccounts}).AppendJSON(
		nil,
	)
	receipt := (&record.Receipt{TxID: record.NewTxID(time.Now().UnixNano(), payAccounts, 1), Op: record.OpTransfer,
		From: payer(payAccounts - 1),
		To:   payer(0), Asset: "ron", Amount: engines.AmountOf(0, 1), Nonce: 100, Idem: "t9999-100",
		At: time.Now().UnixNano(), Seq: payAccounts,
		Batch: payAccounts, Version: record.ReceiptVersion}).AppendJSON(
		nil,
	)
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

const (
	pacedShare = 0.7 // share of the node's maximum rate
	rawValue   = 350 // size of the record of a transfer, in bytes
)

// benchmarkPaced sends payments at pacedShare of the node's maximum rate and reports the latencies.
// For comparison it measures a bare server at the same rate, and a bbolt loop that commits one row
// at a time. The three take turns of one second, because the speed of a disk and a machine varies
// over time.
func benchmarkPaced(b *testing.B) {
	k, none := openBank(b, "bank", payAccounts), openBank(b, "bare", payAccounts)
	defer k.peer.end()
	defer none.peer.end()
	callers, idlers, raw := k.singles(), none.singles(), newRawLoop(b)
	wave(b, callers) // warms connections, caches and maps
	wave(b, idlers)
	raw.wave()
	var most, sum, bare, rows tally
	for b.Loop() {
		now := wave(b, callers)
		most = most.and(now)
		sum = sum.and(paced(b, callers, pacedShare*now.rate()))
		bare = bare.and(paced(b, idlers, pacedShare*now.rate()))
		rows = rows.and(raw.wave())
	}
	for _, c := range slices.Concat(callers, idlers) {
		c.hangUp()
	}
	slices.Sort(bare.took)
	slices.Sort(rows.took)
	sum.report(b, "transfers")
	b.ReportMetric(most.rate(), "transfers/s-at-most")
	b.ReportMetric(bare.ms(.5), "bare-p50-ms")
	b.ReportMetric(bare.ms(.99), "bare-p99-ms")
	b.ReportMetric(sum.ms(.99)/bare.ms(.99), "p99/bare-p99")
	b.ReportMetric(rows.ms(.5), "raw-p50-ms")
	b.ReportMetric(rows.ms(.99), "raw-p99-ms")
	b.ReportMetric(sum.ms(.99)/rows.ms(.99), "p99/raw-p99")
}

// rawLoop is a bbolt database with the store's options.
type rawLoop struct {
	b   testing.TB
	db  *bolt.DB
	seq uint64
}

func newRawLoop(b testing.TB) *rawLoop {
	b.Helper()
	db, err := bolt.Open(filepath.Join(b.TempDir(), "raw.db"), 0o600, &bolt.Options{
		PageSize: 4096, FreelistType: bolt.FreelistMapType, InitialMmapSize: 64 << 30 & math.MaxInt,
	})
	if err != nil {
		b.Fatal(err)
	}
	db.AllocSize = 16 << 20
	b.Cleanup(func() { _ = db.Close() })
	return &rawLoop{b: b, db: db}
}

// wave commits single rows for one second.
func (l *rawLoop) wave() (t tally) {
	begun := time.Now()
	for at := begun; at.Sub(begun) < time.Second; at = time.Now() {
		if err := l.db.Update(l.put); err != nil {
			l.b.Fatal(err)
		}
		t.took = append(t.took, time.Since(at))
	}
	t.transfers, t.lasted = len(t.took), time.Since(begun)
	return t
}

func (l *rawLoop) put(tx *bolt.Tx) error {
	rows, err := tx.CreateBucketIfNotExists([]byte("rows"))
	if err != nil {
		return err
	}
	rows.FillPercent = 1
	l.seq++
	return rows.Put(binary.BigEndian.AppendUint64(nil, l.seq), make([]byte, rawValue))
}
