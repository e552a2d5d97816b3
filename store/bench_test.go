package store

import (
	"context"
	"encoding/binary"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// benchRow is the benchmarked command. It writes one row of 160 bytes under an ascending key, as a
// journal does.
type benchRow struct{ value [152]byte }

var benchBucket = &Bucket{Name: "bench/rows", Append: true}

func (*benchRow) Kind() string { return "bench.row/1" }

func (c *benchRow) Apply(_ Reader, at Stamp, w *Writes) (uint64, error) {
	w.Put(benchBucket, binary.BigEndian.AppendUint64(nil, at.Seq), c.value[:])
	return at.Seq, nil
}

func benchStore(b *testing.B) *rig {
	b.Helper()
	s := New(testConfig(), Options{Path: newFile(b)})
	s.Declare("bench", benchBucket)
	if err := ready(b.Context(), s); err != nil {
		b.Fatal(err)
	}
	return (&rig{Store: s, t: b}).start()
}

// rawBolt is a plain bbolt database with the options of the store.
type rawBolt struct {
	db  *bolt.DB
	seq uint64
}

func newRaw(b *testing.B) *rawBolt {
	b.Helper()
	db, err := openBolt(
		filepath.Join(b.TempDir(), "raw.db"),
		&opening{fresh: true, maxBytes: DefaultConfig().MaxBytes.Bytes()},
	)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	return &rawBolt{db: db}
}

// update writes n rows in one db.Update.
func (r *rawBolt) update(b *testing.B, n int) {
	err := r.db.Update(func(tx *bolt.Tx) error {
		rows, err := tx.CreateBucketIfNotExists([]byte(benchBucket.Name))
		if err != nil {
			return err
		}
		rows.FillPercent = 1
		for range n {
			r.seq++
			if err := rows.Put(binary.BigEndian.AppendUint64(nil, r.seq), make([]byte, 152)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCommitOne alternates one Commit with one db.Update of the same bytes, so that both run
// on the same disk. ratio is the speed of the store divided by that of bbolt.
func BenchmarkCommitOne(b *testing.B) {
	r, raw := benchStore(b), newRaw(b)
	raw.update(b, 1)
	var ours, theirs time.Duration
	b.ReportAllocs()
	for b.Loop() {
		t0 := time.Now()
		mustCommit(r, &benchRow{})
		t1 := time.Now()
		raw.update(b, 1)
		ours, theirs = ours+t1.Sub(t0), theirs+time.Since(t1)
	}
	b.ReportMetric(float64(theirs)/float64(ours), "ratio")
	b.ReportMetric(float64(ours.Nanoseconds())/float64(b.N), "store-ns/op")
	b.ReportMetric(float64(theirs.Nanoseconds())/float64(b.N), "bbolt-ns/op")
	r.stop()
}

// BenchmarkCommitMany compares 512 submitters with a loop of db.Update. Each db.Update writes the
// average number of rows of the store's groups. Slices of both alternate.
func BenchmarkCommitMany(b *testing.B) {
	const submitters, slice = 512, 64 * 512
	r, raw := benchStore(b), newRaw(b)
	var ours, theirs time.Duration
	var groups, commands uint64
	for b.Loop() {
		before := r.Info().Seq
		g0 := r.group0()
		t0 := time.Now()
		submit512(r, submitters, slice)
		ours += time.Since(t0)
		n, g := r.Info().Seq-before, r.group0()-g0
		groups, commands = groups+g, commands+n
		size := int(n / max(g, 1))
		t1 := time.Now()
		for done := 0; done < int(n); done += size {
			raw.update(b, min(size, int(n)-done))
		}
		theirs += time.Since(t1)
	}
	b.ReportMetric(float64(theirs)/float64(ours), "ratio")
	b.ReportMetric(float64(commands)/ours.Seconds(), "commands/s")
	b.ReportMetric(float64(commands)/theirs.Seconds(), "bbolt-rows/s")
	b.ReportMetric(float64(commands)/float64(max(groups, 1)), "group")
	r.stop()
}

// group0 returns the number of transactions, as bbolt counts them.
func (r *rig) group0() uint64 {
	var id uint64
	_ = r.db.View(func(tx *bolt.Tx) error {
		id = uint64(tx.ID())
		return nil
	})
	return id
}

func submit512(r *rig, submitters, total int) {
	var left atomic.Int64
	left.Store(int64(total))
	var wg sync.WaitGroup
	for range submitters {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(r.t.Context()) // one per submitter, like requests
			defer cancel()
			for left.Add(-1) >= 0 {
				if _, err := Commit(ctx, r.Store, Work, &benchRow{}); err != nil {
					r.t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}
