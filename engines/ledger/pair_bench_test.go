package ledger_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// pairRound is the duration of each side's turn. Turns are short because the speed of a disk varies
// over seconds.
const pairRound = 500 * time.Millisecond

// rawValue is the size of a transfer's record in bytes.
const rawValue = 350

// BenchmarkPair compares the ledger, including checks, journal, roots and both syncs, with a bare
// loop over bbolt. Both take turns on one disk, and the loop writes as many rows per transaction as
// the ledger had ops. ratio is the rate of the ledger divided by that of the loop. One iteration is
// a round of both; use -benchtime=10x for a fair measure.
func BenchmarkPair(b *testing.B) {
	for _, c := range []struct {
		name              string
		submitters, burst int
		whole             bool // a burst is one batch
	}{
		{"one", 1, 1, false},
		{"submitters=256", 256, 1, false},
		{"bursts=2x256", 2, 256, false},
		{"batches=2x4096", 2, 4096, true},
	} {
		b.Run(c.name, func(b *testing.B) {
			r, raw := newRig(b, nil).declare("ron").start(), newRawLoop(b)
			p := newPayers(r, c.submitters, c.burst, c.whole)
			var ours, theirs side
			p.run(pairRound / 5) // both begin warm
			raw.run(pairRound/5, c.burst)
			for b.Loop() {
				ours.add(p.run(pairRound))
				theirs.add(raw.run(pairRound, max(1, ours.ops/max(ours.commits, 1))))
			}
			ratio := ours.rate() / theirs.rate()
			b.ReportMetric(ours.rate(), "transfers/s")
			b.ReportMetric(theirs.rate(), "rows/s")
			b.ReportMetric(ratio, "ratio")
			b.ReportMetric(float64(ours.ops)/float64(ours.commits), "ops/commit")
			b.ReportMetric(float64(ours.writes)/float64(ours.commits), "writes/commit")
			b.ReportMetric(float64(theirs.writes)/float64(theirs.commits), "raw-writes/commit")
			b.ReportMetric(float64(ours.bytes)/float64(ours.ops), "B-written/op")
			b.ReportMetric(float64(theirs.bytes)/float64(theirs.ops), "raw-B-written/op")
		})
	}
}

// side holds the totals of one side of a pair.
type side struct {
	took          time.Duration
	ops, commits  int
	writes, bytes int // write calls, and the bytes written
}

func (s *side) add(n side) {
	s.took += n.took
	s.ops, s.commits, s.writes, s.bytes = s.ops+n.ops, s.commits+n.commits, s.writes+n.writes, s.bytes+n.bytes
}

func (s *side) rate() float64 { return float64(s.ops) / s.took.Seconds() }

// measured runs one round. do returns the number of its ops and commits.
func measured(t testing.TB, do func() (ops, commits int)) (s side) {
	calls, bytes := written(t)
	begun := time.Now()
	s.ops, s.commits = do()
	s.took = time.Since(begun)
	s.writes, s.bytes = written(t)
	s.writes, s.bytes = s.writes-calls, s.bytes-bytes
	return s
}

// written returns the number of write calls of this process so far and the bytes written.
func written(t testing.TB) (calls, bytes int) {
	f, err := os.Open("/proc/self/io")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		if text, ok := strings.CutPrefix(s.Text(), "syscw: "); ok {
			_, _ = fmt.Sscan(text, &calls)
		} else if text, ok := strings.CutPrefix(s.Text(), "wchar: "); ok {
			_, _ = fmt.Sscan(text, &bytes)
		}
	}
	return calls, bytes
}

// payers are submitters. Each commits bursts of keyed transfers, or batches, one after the other.
type payers struct {
	r       *rig
	traffic []*traffic
	burst   int
	whole   bool
	commits *groupCount
}

func newPayers(r *rig, n, burst int, whole bool) *payers {
	names := r.fund(10_000)
	p := &payers{r: r, burst: burst, whole: whole, commits: &r.groups}
	for i := range n {
		g := newTraffic(names[i*len(names)/n : (i+1)*len(names)/n])
		g.keys = uint64(i) << 32
		p.traffic = append(p.traffic, g)
	}
	return p
}

func (p *payers) run(long time.Duration) side {
	return measured(p.r.t, func() (ops, commits int) {
		before, end := p.commits.Load(), time.Now().Add(long)
		var done atomic.Int64
		var wg sync.WaitGroup
		for _, g := range p.traffic {
			wg.Go(func() {
				n := 0
				for time.Now().Before(end) {
					p.pay(g)
					n += p.burst
				}
				done.Add(int64(n))
			})
		}
		wg.Wait()
		return int(done.Load()), int(p.commits.Load() - before)
	})
}

func (p *payers) pay(g *traffic) {
	ops := make([]ledger.Op, p.burst)
	if !p.whole {
		for k := range ops {
			ops[k] = g.keyed()
		}
		p.r.accept(ops...)
		return
	}
	for k := range ops {
		ops[k] = g.next()
	}
	whole := ledger.Op{Code: record.OpBatch, Ops: ops, Principal: "org:alice", TTL: time.Hour}
	g.keys++
	whole.Dedupe = ledger.DedupeKey{Scope: "org:alice", Key: fmt.Sprint("b", g.keys)}
	if out := p.r.accept(whole); len(out[0].Results) != p.burst {
		p.r.t.Error("lost results")
	}
}

// rawLoop writes to bbolt with the options of the store.
type rawLoop struct {
	t     testing.TB
	db    *bolt.DB
	seq   uint64
	value []byte
}

func newRawLoop(t testing.TB) *rawLoop {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "raw.db"), 0o600, &bolt.Options{
		PageSize: 4096, FreelistType: bolt.FreelistMapType, InitialMmapSize: 64 << 30 & math.MaxInt,
	})
	if err != nil {
		t.Fatal(err)
	}
	db.AllocSize = 16 << 20
	t.Cleanup(func() { _ = db.Close() })
	return &rawLoop{t: t, db: db, value: make([]byte, rawValue)}
}

// run writes n sequential rows per transaction.
func (l *rawLoop) run(long time.Duration, n int) side {
	return measured(l.t, func() (ops, commits int) {
		for end := time.Now().Add(long); time.Now().Before(end); commits++ {
			if err := l.db.Update(func(tx *bolt.Tx) error { return l.put(tx, n) }); err != nil {
				l.t.Fatal(err)
			}
			ops += n
		}
		return ops, commits
	})
}

func (l *rawLoop) put(tx *bolt.Tx, n int) error {
	rows, err := tx.CreateBucketIfNotExists([]byte("rows"))
	if err != nil {
		return err
	}
	rows.FillPercent = 1
	keys := make([]byte, 0, 8*n)
	for range n {
		l.seq++
		keys = binary.BigEndian.AppendUint64(keys, l.seq)
		if err := rows.Put(keys[len(keys)-8:], l.value); err != nil {
			return err
		}
	}
	return nil
}
