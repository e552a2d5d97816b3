package ledger_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/store"
)

// GROWTH_ACCOUNTS is how many accounts BenchmarkGrowth has, each opened by an issue under a key of its own; GROWTH_FILE keeps
// the file, so that it is made once: its keys count for a day. Ten million take some minutes and 12 GB.
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
	n int
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
	g := &grown{&rig{t: b, path: path, cfg: ledger.DefaultConfig(), room: growthRoom}, n}
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

// fill opens the accounts that the file has not, bursts of one submitter after the other.
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

// uniform pays from every account before any pays again, in an order that knows no neighbours.
func (g *grown) uniform(payer int) func() ledger.Op {
	k := sort.Search(g.n*1000, func(k int) bool { // how many transfers the file has seen
		v, err := g.l.Account(g.ctx(), g.name(k*growthStride))
		if err != nil {
			g.t.Fatal(err)
		}
		return v.LastNonce < uint64(k/g.n+1)
	}) + payer
	return func() ledger.Op {
		defer func() { k += growthPayers }()
		return g.pay(k*growthStride, k*growthStride+1, uint64(k/g.n+1))
	}
}

// skewed pays as people do: a hundredth of the accounts makes and gets nine payments in ten. Each payer has accounts of its own.
func (g *grown) skewed(payer int) func() ledger.Op {
	nonces := map[int]uint64{}
	pick := func() int {
		if rand.IntN(growthBusy) > 0 {
			return rand.IntN(g.n/growthHot) * growthHot
		}
		return rand.IntN(g.n)
	}
	return func() ledger.Op {
		from, to := pick(), pick()
		from = (from/growthPayers*growthPayers + payer) % g.n
		if to == from {
			to++
		}
		last, known := nonces[from]
		if !known {
			v, err := g.l.Account(g.ctx(), g.name(from))
			if err != nil {
				g.t.Fatal(err)
			}
			last = v.LastNonce
		}
		nonces[from] = last + 1
		return g.pay(from, to, last+1)
	}
}

func (g *grown) pay(from, to int, nonce uint64) ledger.Op {
	o := transfer(g.name(from), g.name(to), 1, nonce)
	o.Dedupe, o.TTL = ledger.DedupeKey{Scope: "org:alice", Key: fmt.Sprintf("t%d-%d", from%g.n, nonce)}, time.Hour
	o.Idem, o.Principal = o.Dedupe.Key, "org:alice"
	binary.LittleEndian.PutUint64(o.Fingerprint[:], nonce)
	return o
}

// wave commits n transfers in bursts, as two workers do, and gives the time that each took.
func (g *grown) wave(n int, payers []func() ledger.Op) (took []time.Duration) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, next := range payers {
		wg.Go(func() {
			ops := make([]ledger.Op, growthBurst)
			for range (n + growthBurst*len(payers) - 1) / (growthBurst * len(payers)) {
				for i := range ops {
					ops[i] = next()
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

// BenchmarkGrowth pays, and tells what the size of the ledger does to it: the rate, the time of a burst and of looking for a
// key that is new, a boot after a clean stop with nothing of the file in memory, and the memory beside the file's own pages.
func BenchmarkGrowth(b *testing.B) {
	for _, tt := range []struct {
		name  string
		payer func(*grown, int) func() ledger.Op
	}{{"skewed", (*grown).skewed}, {"uniform", (*grown).uniform}} {
		b.Run(tt.name, func(b *testing.B) {
			g := newGrown(b)
			g.open()
			g.declare("ron").start()
			g.fill()
			begun := time.Now()
			g.reopen()
			boot := time.Since(begun)
			g.start()
			payers := []func() ledger.Op{tt.payer(g, 0), tt.payer(g, 1)}
			g.wave(b.N, payers) // caches
			b.ResetTimer()
			begun = time.Now()
			took := g.wave(b.N, payers)
			rate := float64(len(took)*growthBurst) / time.Since(begun).Seconds()
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(rate, "transfers/s")
			b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
			b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
			b.ReportMetric(g.fresh().Seconds()*1e6, "fresh-key-p99-µs")
			b.ReportMetric(boot.Seconds()*1000, "boot-ms")
			b.ReportMetric(float64(anonymous(b))/(1<<20), "anon-MiB")
		})
	}
}

// fresh is the 99th part in a hundred of the times to find that a key is new.
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

// anonymous is the memory of this process that is no file's, in bytes.
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
