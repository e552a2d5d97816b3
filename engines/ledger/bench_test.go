package ledger_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// accounts names n accounts, and funds them.
func (r *rig) fund(n int) []string {
	r.t.Helper()
	names := make([]string, n)
	var ops []ledger.Op
	nonce := uint64(0)
	for i := range names {
		names[i] = fmt.Sprintf("user/%08d", i)
		nonce++
		if ops = append(ops, issue(names[i], 1_000_000_000, nonce)); len(ops) == 4096 || i == n-1 {
			r.accept(ops...)
			ops = ops[:0]
		}
	}
	return names
}

// traffic makes transfers round and round, each account's nonces in order.
type traffic struct {
	names  []string
	nonces []uint64
	at     int
	keys   int
	limits *ledger.Limits
}

func newTraffic(names []string) *traffic {
	return &traffic{names: names, nonces: make([]uint64, len(names)), limits: &ledger.Limits{
		PerOp: amount(1 << 60), Daily: amount(1 << 62), AccountTotal: amount(1 << 63), OpenHolds: 1000,
	}}
}

func (g *traffic) next() ledger.Op {
	from := g.at % len(g.names)
	to := (from + 1 + g.at/len(g.names)%(len(g.names)-1)) % len(g.names)
	g.at++
	g.nonces[from]++
	o := transfer(g.names[from], g.names[to], 1, g.nonces[from])
	o.Principal, o.CapID, o.Limits = "org:alice", "cap-1", g.limits
	return o
}

func (g *traffic) keyed() ledger.Op {
	o := g.next()
	g.keys++
	o.Dedupe = ledger.DedupeKey{Scope: "org:alice", Key: fmt.Sprintf("k%09d", g.keys)}
	o.Idem, o.TTL = o.Dedupe.Key, time.Hour
	binary.LittleEndian.PutUint64(o.Fingerprint[:], uint64(g.keys))
	return o
}

// BenchmarkPost is what the engine does, checks, journal, roots and both syncs included; a transfer is two postings.
func BenchmarkPost(b *testing.B) {
	b.Run("one", func(b *testing.B) { benchBursts(b, 1, 1, 10_000) })
	b.Run("submitters=256", func(b *testing.B) { benchBursts(b, 256, 1, 10_000) })
	b.Run("bursts=2x256", func(b *testing.B) { benchBursts(b, 2, 256, 10_000) })
	b.Run("batch=4096", func(b *testing.B) { benchBatches(b, 2, 10_000) })
}

// benchBursts has submitters that each commit bursts of keyed transfers, one after the other.
func benchBursts(b *testing.B, submitters, burst, accounts int) {
	r := newRig(b, nil).declare("ron").start()
	names := r.fund(accounts)
	each := accounts / submitters
	b.ResetTimer()
	begun := time.Now()
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	for i := range submitters {
		wg.Go(func() {
			g := newTraffic(names[i*each : (i+1)*each])
			g.keys = i << 24
			for left.Add(-int64(burst)) > -int64(burst) {
				ops := make([]ledger.Op, burst)
				for k := range ops {
					ops[k] = g.keyed()
				}
				r.accept(ops...)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/time.Since(begun).Seconds(), "transfers/s")
}

// benchBatches has submitters that each commit batches of 4096 ops.
func benchBatches(b *testing.B, submitters, accounts int) {
	const size = 4096
	r := newRig(b, nil).declare("ron").start()
	names := r.fund(accounts)
	each := accounts / submitters
	b.ResetTimer()
	begun := time.Now()
	var wg sync.WaitGroup
	var left, done atomic.Int64
	left.Store(int64(b.N))
	for i := range submitters {
		wg.Go(func() {
			g := newTraffic(names[i*each : (i+1)*each])
			for n := 0; left.Add(-size) > -size; n++ {
				whole := ledger.Op{Code: record.OpBatch, Ops: make([]ledger.Op, size), Principal: "org:alice", TTL: time.Hour}
				whole.Dedupe = ledger.DedupeKey{Scope: "org:alice", Key: fmt.Sprintf("b%d-%d", i, n)}
				for k := range whole.Ops {
					whole.Ops[k] = g.next()
				}
				out := r.accept(whole)
				if len(out[0].Results) != size {
					b.Error("lost results")
				}
				done.Add(size)
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(done.Load())/time.Since(begun).Seconds(), "transfers/s")
}

// rawRows is what a commit of n records would cost without a ledger: the store's peer of a bare loop over the file.
type rawRows struct {
	first uint64
	n     int
	value []byte
}

var rawBucket = &store.Bucket{Name: "raw/rows", Append: true}

func (rawRows) Kind() string { return "raw.rows/1" }

func (c rawRows) Size() int { return c.n * len(c.value) }

func (c rawRows) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	keys := make([]byte, 0, 8*c.n)
	for i := range c.n {
		keys = binary.BigEndian.AppendUint64(keys, c.first+uint64(i))
		w.Put(rawBucket, keys[8*i:8*i+8], c.value)
	}
	return struct{}{}, nil
}

// BenchmarkRaw writes n sequential values of 350 B a commit, through the same store and nothing else.
func BenchmarkRaw(b *testing.B) {
	for _, n := range []int{1, 256, 512, 4096} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			ctx := context.Background()
			s, stop := rawStore(b)
			defer stop()
			value := make([]byte, 350)
			rows := uint64(0)
			b.ResetTimer()
			begun := time.Now()
			for rows < uint64(b.N) {
				if _, err := store.Commit(ctx, s, store.Work, rawRows{rows, n, value}); err != nil {
					b.Fatal(err)
				}
				rows += uint64(n)
			}
			b.ReportMetric(float64(rows)/time.Since(begun).Seconds(), "rows/s")
		})
	}
}

func rawStore(b *testing.B) (*store.Store, func()) {
	path := filepath.Join(b.TempDir(), "raw.db")
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		b.Fatal(err)
	}
	catalog := flow.NewCatalog(nil, nil)
	s := store.New(store.DefaultConfig(), store.Options{Path: path, Catalog: catalog})
	s.Declare("raw", rawBucket)
	ctx := context.Background()
	sup := flow.NewSupervisor(ctx, catalog, flow.Hooks{})
	if err := errors.Join(store.Create(path, id), s.Open(ctx), s.Prepare(ctx)); err != nil {
		b.Fatal(err)
	}
	sup.Start(s.Tasks()...)
	return s, func() {
		s.CloseLanes()
		sup.Drain("store", 5*time.Second, time.Second)
		sup.Close()
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}
}

// BenchmarkRedo is a boot after nothing was written behind, a transfer of it.
func BenchmarkRedo(b *testing.B) {
	r := newRig(b, nil, func(c *ledger.Config) { c.DirtyMaxAccounts, c.VerifyOnOpen = 1<<20, ledger.VerifyNone }).declare("ron")
	g := newTraffic(r.fund(10_000))
	const transfers = 200_000
	for n := 0; n < transfers; n += 4096 {
		ops := make([]ledger.Op, 4096)
		for i := range ops {
			ops[i] = g.keyed()
		}
		r.accept(ops...)
	}
	for b.Loop() {
		r.stop()
		begun := time.Now()
		r.open()
		b.ReportMetric(transfers/time.Since(begun).Seconds(), "records/s")
	}
}
