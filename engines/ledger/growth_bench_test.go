package ledger_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
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
// the file, so that it is made once. Ten million take some minutes and 12 GB.
const (
	growthAccounts = 10_000
	growthRoom     = 48 << 30
	growthStride   = 7_368_787 // a prime: payers come in no order, and each before any comes again
	growthBurst    = 256
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

// done is how many transfers the file has seen: payer k of the round is known by its nonce.
func (g *grown) done() int {
	return sort.Search(g.n*1000, func(k int) bool {
		v, err := g.l.Account(g.ctx(), g.name(k*growthStride))
		if err != nil {
			g.t.Fatal(err)
		}
		return v.LastNonce < uint64(k/g.n+1)
	})
}

// burst is the transfers from k on.
func (g *grown) burst(k int) []ledger.Op {
	ops := make([]ledger.Op, growthBurst)
	for i := range ops {
		o := transfer(g.name((k+i)*growthStride), g.name((k+i)*growthStride+1), 1, uint64((k+i)/g.n+1))
		o.Dedupe, o.TTL = ledger.DedupeKey{Scope: "org:alice", Key: "t" + strconv.Itoa(k+i)}, time.Hour
		o.Idem, o.Principal = o.Dedupe.Key, "org:alice"
		binary.LittleEndian.PutUint64(o.Fingerprint[:], uint64(k+i))
		ops[i] = o
	}
	return ops
}

// BenchmarkGrowth pays from accounts at random, in bursts as two workers make them, and tells what the size of the ledger
// does to it: the rate, the time of a burst and of looking for a key that is new, a boot, and the memory beside the file's
// own pages.
func BenchmarkGrowth(b *testing.B) {
	g := newGrown(b)
	g.open()
	g.declare("ron").start()
	g.fill()
	g.reopen()
	begun := time.Now()
	g.reopen()
	boot := time.Since(begun)
	g.start()
	var mu sync.Mutex
	var took []time.Duration
	next := g.done()
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		next += growthBurst
		return next - growthBurst
	}
	end := next + b.N
	b.ResetTimer()
	begun = time.Now()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for k := take(); k < end; k = take() {
				ops := g.burst(k)
				t := time.Now()
				g.accept(ops...)
				mu.Lock()
				took = append(took, time.Since(t))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	rate := float64(len(took)*growthBurst) / time.Since(begun).Seconds()
	b.StopTimer()
	slices.Sort(took)
	b.ReportMetric(rate, "transfers/s")
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "p99-ms")
	b.ReportMetric(g.fresh().Seconds()*1e6, "fresh-key-p99-µs")
	b.ReportMetric(boot.Seconds()*1000, "boot-ms")
	b.ReportMetric(float64(anonymous(b))/(1<<20), "anon-MiB")
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
