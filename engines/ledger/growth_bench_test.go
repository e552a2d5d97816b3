package ledger_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/store"
)

// GROWTH_ACCOUNTS is the number of accounts of BenchmarkGrowth. Each is opened by an issue with its
// own key. GROWTH_FILE keeps the file for later runs; its keys count for a day. Ten million
// accounts take some minutes and 12 GB.
const (
	growthAccounts = 10_000
	growthRoom     = 48 << 30
	growthStride   = 7_368_787 // a prime: payers come in no order, and each before any comes again
	growthBurst    = 256
	growthPayers   = 2   // submitters
	growthHot      = 200 // one account in so many of a payer is busy
	growthBusy     = 10  // all payments but one in so many are made by those, and to them
)

// grown is a ledger with many accounts.
type grown struct {
	*rig
	n     int
	begun int // records in the file before the plan: it begins elsewhere each time
}

func (g *grown) name(i int) string { return fmt.Sprintf("user/%08d", i%g.n) }

func newGrown(b *testing.B) *grown {
	n := growthAccounts
	if text := os.Getenv("GROWTH_ACCOUNTS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	path := os.Getenv("GROWTH_FILE")
	if path == "" {
		path = filepath.Join(b.TempDir(), "ronbox.db")
	}
	g := &grown{rig: &rig{t: b, path: path, cfg: ledger.DefaultConfig(), room: growthRoom}, n: n}
	if _, err := os.Stat(path); err != nil {
		id, err := store.NewIdentity(time.Now())
		if err != nil {
			b.Fatal(err)
		}
		if err := store.Create(path, id); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(g.stop)
	return g
}

// fill opens the accounts that are missing in the file, in bursts from one submitter.
func (g *grown) fill() {
	var last uint64
	if v, err := g.l.Account(g.ctx(), "sys:issue:ron"); err != nil {
		g.t.Fatal(err)
	} else {
		last = v.LastNonce
	}
	for at := int(last); at < g.n; {
		ops := make([]ledger.Op, 0, 2048)
		for ; len(ops) < cap(ops) && at < g.n; at++ {
			o := issue(g.name(at), 1_000_000_000, uint64(at+1))
			o.Dedupe, o.TTL = ledger.DedupeKey{Scope: "org:bank", Key: strconv.Itoa(at)}, time.Hour
			o.Idem, o.Principal = o.Dedupe.Key, "org:bank"
			binary.LittleEndian.PutUint64(o.Fingerprint[:], uint64(at))
			ops = append(ops, o)
		}
		g.accept(ops...)
	}
}

// payment holds the accounts of a payment and the payer's nonce. It is small, so that the plan does
// not distort the measured memory.
type payment struct {
	from, to, nonce uint32
}

// order returns the accounts of payment i.
type order func(g *grown, rnd *rand.Rand, i int) (from, to int)

// uniform pays from every account once before any account pays again, in an order without locality.
func uniform(g *grown, _ *rand.Rand, i int) (from, to int) {
	return (g.begun + i) * growthStride % g.n, ((g.begun+i)*growthStride + 1) % g.n
}

// skewed pays as people do: 1 % of the accounts makes and receives 90 % of the payments.
func skewed(g *grown, rnd *rand.Rand, _ int) (from, to int) {
	pick := func() int {
		if rnd.IntN(growthBusy) > 0 {
			return rnd.IntN(g.n/growthHot) * growthHot
		}
		return rnd.IntN(g.n)
	}
	if from, to = pick(), pick(); from == to {
		to = (to + 1) % g.n
	}
	return from, to
}

// plan lists n payments of each payer. Each account belongs to one payer.
func (g *grown) plan(n int, of order) (plans [growthPayers][]payment) {
	head, err := g.l.Head(g.ctx())
	if err != nil {
		g.t.Fatal(err)
	}
	g.begun = int(head.Seq)
	rnd, last := rand.New(rand.NewPCG(head.Seq, 0)), map[int]uint64{}
	defer debug.FreeOSMemory() // exclude the plan from the measured memory
	for i := 0; len(plans[0]) < n || len(plans[1]) < n; i++ {
		from, to := of(g, rnd, i)
		payer := from / growthHot % growthPayers
		if len(plans[payer]) == n {
			continue
		}
		nonce, known := last[from]
		if !known {
			v, err := g.l.Account(g.ctx(), g.name(from))
			if err != nil {
				g.t.Fatal(err)
			}
			nonce = v.LastNonce
		}
		last[from] = nonce + 1
		plans[payer] = append(plans[payer], payment{uint32(from), uint32(to), uint32(nonce + 1)})
	}
	return plans
}

func (g *grown) pay(p payment) ledger.Op {
	o := transfer(g.name(int(p.from)), g.name(int(p.to)), 1, uint64(p.nonce))
	o.Dedupe, o.TTL = ledger.DedupeKey{Scope: "org:alice", Key: fmt.Sprintf("t%d-%d", p.from, p.nonce)}, time.Hour
	o.Idem, o.Principal = o.Dedupe.Key, "org:alice"
	binary.LittleEndian.PutUint32(o.Fingerprint[:], p.nonce)
	return o
}

// wave makes n payments of each plan, starting with payment from, in bursts from concurrent payers.
// It returns the duration of each burst.
func (g *grown) wave(plans [growthPayers][]payment, from, n int) (took []time.Duration) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, plan := range plans {
		wg.Go(func() {
			ops := make([]ledger.Op, 0, growthBurst)
			for todo := plan[from : from+n]; len(todo) > 0; todo = todo[len(ops):] {
				ops = ops[:0]
				for _, p := range todo[:min(growthBurst, len(todo))] {
					ops = append(ops, g.pay(p))
				}
				begun := time.Now()
				g.accept(ops...)
				mu.Lock()
				took = append(took, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return took
}

// BenchmarkGrowth measures the effect of the ledger's size on: the payment rate, the time of a
// burst, the lookup of a new key, a cold boot, a boot that redoes the last payments, and the memory
// outside the file's pages. As many payments as are measured come first, to load the busy accounts
// into memory.
func BenchmarkGrowth(b *testing.B) {
	for _, tt := range []struct {
		name string
		of   order
	}{{"skewed", skewed}, {"uniform", uniform}} {
		b.Run(tt.name, func(b *testing.B) {
			g := newGrown(b)
			g.open()
			g.declare("ron").start()
			g.fill()
			each := (b.N + growthPayers - 1) / growthPayers
			plans := g.plan(2*each, tt.of)
			begun := time.Now()
			g.reopen()
			boot := time.Since(begun)
			g.start()
			g.wave(plans, 0, each)
			b.ResetTimer()
			_, bytes := written(b)
			begun = time.Now()
			took := g.wave(plans, each, each)
			rate := float64(growthPayers*each) / time.Since(begun).Seconds()
			b.StopTimer()
			_, after := written(b)
			b.ReportMetric(float64(after-bytes)/float64(growthPayers*each), "B-written/transfer")
			slices.Sort(took)
			b.ReportMetric(rate, "transfers/s")
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
			b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
			b.ReportMetric(g.fresh().Seconds()*1e6, "fresh-key-p99-µs")
			b.ReportMetric(boot.Seconds()*1000, "boot-ms")
			b.ReportMetric(float64(anonymous(b))/(1<<20), "anon-MiB")
			g.reopen() // as after a kill, without a flush
			b.ReportMetric(g.counted("ledger_redo_seconds"), "redo-s")
		})
	}
}

// fresh returns the 99th percentile of the time to find that a key is new.
func (g *grown) fresh() time.Duration {
	took := make([]time.Duration, 20_000)
	for i := range took {
		k := ledger.DedupeKey{Scope: "org:alice", Key: fmt.Sprintf("fresh-%d", i)}
		t := time.Now()
		if _, found, err := g.l.Find(g.ctx(), k, [32]byte{}, 0); err != nil || found {
			g.t.Fatalf("a new key: found %v, %v", found, err)
		}
		took[i] = time.Since(t)
	}
	slices.Sort(took)
	return took[len(took)*99/100]
}

// anonymous returns the anonymous memory of this process in bytes.
func anonymous(b *testing.B) (bytes int64) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), "RssAnon:"); ok {
			_, _ = fmt.Sscanf(strings.TrimSpace(text), "%d kB", &bytes)
		}
	}
	return bytes << 10
}
