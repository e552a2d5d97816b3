package load

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// bank is a node that receives the payments of a benchmark.
type bank struct {
	b           testing.TB
	peer        peer
	addr, token string
	proc        string // its directory in /proc
	accounts    int
	run         string          // prefix of its idempotency keys
	nonces      []atomic.Uint64 // last used nonce, by account
	shared      bool            // connections share accounts, so payments have no nonce
}

// openBank starts a bank and funds every account.
func openBank(b testing.TB, role string, accounts int) *bank {
	b.Helper()
	k := &bank{b: b, peer: helper(b, role), accounts: accounts, nonces: make([]atomic.Uint64, accounts)}
	said := strings.Fields(k.peer.line)
	k.addr, k.proc, k.token = said[0], "/proc/"+said[1], said[2]
	c := &caller{addr: k.addr}
	defer c.hangUp()
	for at := 0; at < accounts; at += batchSize {
		body := []byte(`{"mode":"atomic","ops":[`)
		for i := at; i < min(at+batchSize, accounts); i++ {
			body = fmt.Appendf(
				body,
				`{"op":"issue","to":%q,"asset":"ron","amount_minor":"%d","nonce":%d},`,
				payer(i),
				funds,
				i+2,
			)
		}
		body = append(bytes.TrimSuffix(body, []byte(",")), `]}`...)
		c.out = k.post(nil, "/v1/batch", "application/json", fmt.Sprintf("fund-%d", at), body)
		if status, _, err := c.insist(); err != nil || status != 200 {
			b.Fatalf("fund: %d %s, %v", status, c.body, err)
		}
	}
	return k
}

func payer(i int) string { return "acct/" + strconv.Itoa(i) }

// measure runs waves of callers and reports their results.
func (k *bank) measure(b *testing.B, unit string, callers []*caller) {
	sum, written := tally{}, k.written()
	node, own := k.worked(k.proc), k.worked("/proc/self")
	_ = os.WriteFile(k.proc+"/clear_refs", []byte("5"), 0) // VmHWM begins anew
	for b.Loop() {
		sum = sum.and(wave(b, callers))
	}
	node, own = k.worked(k.proc)-node, k.worked("/proc/self")-own
	sum.report(b, unit)
	b.ReportMetric(float64(node.Microseconds())/float64(len(sum.took)), "node-µs/request") // of the processors
	b.ReportMetric(float64(own.Microseconds())/float64(len(sum.took)), "callers-µs/request")
	b.ReportMetric(float64(k.stat("status", "VmHWM:"))/1024, "node-MiB")
	if unit == "transfers" {
		b.ReportMetric(float64(k.written()-written)/float64(sum.transfers), "B-written/transfer")
	}
}

// worked returns the processor time of a process.
func (k *bank) worked(proc string) time.Duration {
	raw, err := os.ReadFile(proc + "/stat")
	if err != nil {
		k.b.Fatal(err)
	}
	_, rest, _ := bytes.Cut(raw, []byte(") ")) // behind its name
	fields := strings.Fields(string(rest))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * (time.Second / 100) // /proc counts in hundredths of a second
}

func (k *bank) written() int64 { return k.stat("io", "write_bytes:") }

// stat reads a number from a /proc file of the node's process.
func (k *bank) stat(file, name string) int64 {
	raw, err := os.ReadFile(k.proc + "/" + file)
	if err != nil {
		k.b.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n
		}
	}
	k.b.Fatalf("no %s in %s", name, file)
	return 0
}

func (k *bank) head(out []byte, method, path string) []byte {
	out = append(append(append(out, method...), ' '), path...)
	return append(append(append(out, " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "...), k.token...), "\r\n"...)
}

func (k *bank) post(out []byte, path, media, key string, body []byte) []byte {
	out = append(append(k.head(out, "POST", path), "Content-Type: "...), media...)
	out = append(append(out, "\r\nIdempotency-Key: "...), key...)
	out = strconv.AppendInt(append(out, "\r\nContent-Length: "...), int64(len(body)), 10)
	return append(append(out, "\r\n\r\n"...), body...)
}

func (k *bank) get(out []byte, path string) []byte {
	return append(k.head(out, "GET", path), "\r\n"...)
}

// transfer appends a transfer of one unit from an account to a random other account.
func (k *bank) transfer(out []byte, from int) []byte {
	return k.order(out, from, (from+1+rand.IntN(k.accounts-1))%k.accounts, 1)
}

// order appends a transfer of an amount between two accounts.
func (k *bank) order(out []byte, from, to, amount int) []byte {
	nonce := k.nonces[from].Add(1)
	body := fmt.Appendf(nil, `{"from":%q,"to":%q,"asset":"ron","amount_minor":"%d"`, payer(from), payer(to), amount)
	if !k.shared {
		body = fmt.Appendf(body, `,"nonce":%d`, nonce)
	}
	body = append(body, '}')
	return k.post(out, "/v1/transfer", "application/json", fmt.Sprintf("%st%d-%d", k.run, from, nonce), body)
}

// connections returns n callers, each with its own source of requests.
func (k *bank) connections(n int, next func(conn int) func(out []byte) ([]byte, int)) []*caller {
	all := make([]*caller, n)
	for i := range all {
		all[i] = &caller{addr: k.addr, next: next(i)}
	}
	return all
}

// singles returns callers that send single payments, each connection from its own accounts in turn.
func (k *bank) singles() []*caller {
	return k.connections(payConns, func(conn int) func([]byte) ([]byte, int) {
		from := conn
		return func(out []byte) ([]byte, int) {
			out = k.transfer(out, from)
			if from += payConns; from >= k.accounts {
				from = conn
			}
			return out, 1
		}
	})
}

// hots returns callers that send single payments among a few shared accounts, without nonces. Their
// requests may overtake each other.
func (k *bank) hots() []*caller {
	k.shared = true
	return k.connections(payConns, func(int) func([]byte) ([]byte, int) {
		return func(out []byte) ([]byte, int) { return k.transfer(out, rand.IntN(k.accounts)), 1 }
	})
}

// batches returns callers that send batches, each connection from its own accounts in turn.
func (k *bank) batches(write func(body []byte, ops []wireOp) (media string, _ []byte)) []*caller {
	return k.connections(batchConns, func(conn int) func([]byte) ([]byte, int) {
		var body []byte
		ops, share, n := make([]wireOp, batchSize), k.accounts/batchConns, 0
		return func(out []byte) ([]byte, int) {
			for i := range ops {
				from := conn*share + (n*batchSize+i)%share
				ops[i] = wireOp{from, (from + 1 + rand.IntN(k.accounts-1)) % k.accounts, k.nonces[from].Add(1)}
			}
			n++
			var media string
			media, body = write(body[:0], ops)
			return k.post(out, "/v1/batch", media, fmt.Sprintf("%sb%d-%d", k.run, conn, n), body), batchSize
		}
	})
}

// wireOp is a transfer of one unit as a batch encodes it.
type wireOp struct {
	from, to int
	nonce    uint64
}

func jsonBatch(body []byte, ops []wireOp) (media string, _ []byte) {
	body = append(body, `{"mode":"independent","ops":[`...)
	for i, o := range ops {
		if i > 0 {
			body = append(body, ',')
		}
		body = strconv.AppendInt(append(body, `{"op":"transfer","from":"acct/`...), int64(o.from), 10)
		body = strconv.AppendInt(append(body, `","to":"acct/`...), int64(o.to), 10)
		body = strconv.AppendUint(append(body, `","asset":"ron","amount_minor":"1","nonce":`...), o.nonce, 10)
		body = append(body, '}')
	}
	return "application/json", append(body, "]}"...)
}

// cborBatch encodes a batch in CBOR. The head of a map or an array holds a count, the head of a
// text its length.
func cborBatch(body []byte, ops []wireOp) (media string, _ []byte) {
	body = cborText(append(body, 0xa2), "mode", "independent", "ops")
	body = append(body, 0x99, byte(len(ops)>>8), byte(len(ops)))
	for _, o := range ops {
		body = cborText(append(body, 0xa6), "op", "transfer", "from", payer(o.from), "to", payer(o.to), "asset", "ron",
			"amount_minor", "1", "nonce")
		body = append(body, 0x1a, byte(o.nonce>>24), byte(o.nonce>>16), byte(o.nonce>>8), byte(o.nonce))
	}
	return "application/cbor", body
}

func cborText(out []byte, texts ...string) []byte {
	for _, t := range texts {
		if len(t) < 24 {
			out = append(out, 0x60+byte(len(t)))
		} else {
			out = append(out, 0x78, byte(len(t)))
		}
		out = append(out, t...)
	}
	return out
}

// balances returns callers that read balances of random accounts.
func (k *bank) balances() []*caller {
	return k.connections(payConns, func(int) func([]byte) ([]byte, int) {
		return func(out []byte) ([]byte, int) {
			return k.get(out, "/v1/balance?asset=ron&account="+payer(rand.IntN(k.accounts))), 1
		}
	})
}

// paid sends a wave of single payments and returns their ids and their requests.
func (k *bank) paid() (ids []string, requests [][]byte) {
	var mu sync.Mutex
	payers := k.singles()
	for _, c := range payers {
		c.told = func(body []byte) {
			_, id, _ := bytes.Cut(body, []byte(`"txid":"`))
			id, _, _ = bytes.Cut(id, []byte(`"`))
			mu.Lock()
			defer mu.Unlock()
			ids, requests = append(ids, string(id)), append(requests, bytes.Clone(c.out))
		}
	}
	wave(k.b, payers)
	for _, c := range payers {
		c.hangUp()
	}
	return ids, requests
}

// receipts makes payments and returns callers that read random receipts of them.
func (k *bank) receipts() []*caller {
	ids, _ := k.paid()
	return k.connections(payConns, func(int) func([]byte) ([]byte, int) {
		return func(out []byte) ([]byte, int) { return k.get(out, "/v1/tx/"+ids[rand.IntN(len(ids))]), 1 }
	})
}

// replays makes payments and returns callers that repeat random ones of them.
func (k *bank) replays() []*caller {
	_, requests := k.paid()
	return k.connections(payConns, func(int) func([]byte) ([]byte, int) {
		return func(out []byte) ([]byte, int) { return append(out, requests[rand.IntN(len(requests))]...), 1 }
	})
}
