package slab

import (
	"runtime"
	"testing"

	"pgregory.net/rapid"
)

type pair struct{ k, v uint64 }

// Values keep their contents and addresses until they are freed, and a new value is zero.
func TestSlab(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New[pair]()
		type place struct {
			p *pair
			v pair
		}
		all := map[uint32]place{}
		for i := range rapid.IntRange(1, 200_000).Draw(t, "values") {
			n, p := s.Add()
			if _, there := all[n]; there || *p != (pair{}) || n >= s.Used() {
				t.Fatalf("value %d is %+v, used before: %t", n, *p, there)
			}
			*p = pair{uint64(i), uint64(n)}
			all[n] = place{p, *p}
			if i%7 == 3 {
				s.Free(n)
				delete(all, n)
			}
		}
		for n, want := range all {
			if p := s.At(n); p != want.p || *p != want.v {
				t.Fatalf("value %d is %+v, want %+v", n, *p, want.v)
			}
		}
	})
}

// Values with pointers keep what they point to.
func TestPointers(t *testing.T) {
	s := New[*pair]()
	for i := range uint64(1000) {
		_, p := s.Add()
		*p = &pair{k: i}
	}
	runtime.GC()
	for i := range uint32(1000) {
		if p := *s.At(i); p.k != uint64(i) {
			t.Fatalf("value %d is %+v", i, p)
		}
	}
}

// The values are no part of the heap.
func TestOutsideTheHeap(t *testing.T) {
	if !outside {
		t.Skip("the race detector runs")
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	s := New[[64]uint64]()
	for range 100_000 {
		s.Add()
	}
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	runtime.KeepAlive(s)
}
