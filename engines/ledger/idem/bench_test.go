package idem

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"ronbox/store"
)

// These constants match the defaults of a node.
const (
	benchShards = 64
	benchMax    = 512 << 10
)

// randomKey returns a uniformly distributed key cheaply.
func randomKey(r *rand.ChaCha8) (k Key) {
	binary.LittleEndian.PutUint64(k[:], r.Uint64())
	binary.LittleEndian.PutUint64(k[8:], r.Uint64())
	return k
}

// BenchmarkInsert inserts and publishes keys in groups of 512.
func BenchmarkInsert(b *testing.B) {
	keys := make([]Key, 1<<16)
	r := rand.NewChaCha8([32]byte{1})
	for i := range keys {
		keys[i] = randomKey(r)
	}
	x, seq := New(benchShards, Cut{Width: time.Hour, Max: benchMax}), uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		if seq++; seq%(4*benchMax) == 0 { // as after a seal
			x.set.Store(&set{})
		}
		k := keys[seq%uint64(len(keys))]
		k[0], k[9], k[15] = k[0]+byte(seq>>16), k[9]+byte(seq>>24), k[15]+byte(seq>>16)
		if x.Insert(k, seq, int64(seq)); seq%512 == 0 {
			x.Committed()
		}
	}
}

// BenchmarkFreshKey looks up missing keys next to ten million sealed keys in twenty runs.
func BenchmarkFreshKey(b *testing.B) {
	x := New(benchShards, Cut{Width: time.Hour, Max: benchMax})
	s := openStore(b, benchFile(b), x)
	r := rand.NewChaCha8([32]byte{2})
	seq := uint64(0)
	for range 20 {
		for range benchMax / 4096 {
			commit(b, s, store.Work, func(_ store.Reader, w *store.Writes) error {
				w.Then(func() {
					for range 4096 {
						seq++
						x.Insert(randomKey(r), seq, int64(seq))
					}
				})
				return nil
			})
		}
		sealAll(b, x, s)
	}
	view := func(fn func(store.Reader) error) error { return s.View(b.Context(), fn) }
	var took []time.Duration
	b.ResetTimer()
	b.ReportAllocs()
	for b.Loop() {
		k := randomKey(r)
		began := time.Now()
		if _, found, err := x.Find(k, 0, view); found || err != nil {
			b.Fatal(found, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
	st := x.Stats()
	b.ReportMetric(float64(st.Filters)/(1<<20), "MiB-filters")
	b.ReportMetric(float64(st.Mistaken)/float64(len(took)), "mistaken/op")
}
