package rverify

import (
	"fmt"
	"testing"

	"ronbox/engines/registry/record"
)

// BenchmarkVerify checks a log of 256 versions of two descriptors each; one operation is one
// version.
func BenchmarkVerify(b *testing.B) {
	for _, m := range []int{1, 3} {
		l := newLog(b, m, m).fill(b, 255, m)
		for _, jobs := range []int{1, 2} {
			b.Run(fmt.Sprintf("M=%d/jobs=%d", m, jobs), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N/256 + 1 {
					if rep := verify(b, l, Options{Jobs: jobs, Fan: fan}); !rep.OK {
						b.Fatal(rep.Problem)
					}
				}
			})
		}
	}
}

// BenchmarkVerifyLargeSet checks deltas of one changed descriptor on a set of 50 000.
func BenchmarkVerifyLargeSet(b *testing.B) {
	l := newLog(b, 1, 1)
	for from := 0; from < 50_000; from += 5_000 {
		var put []record.Item
		for i := range 5_000 {
			put = append(put, item(b, from+i, 1))
		}
		l.append(b, record.Draft{Put: put}, 1)
	}
	for i := range 64 {
		l.append(b, record.Draft{Put: []record.Item{item(b, 700*i, 2)}}, 1)
	}
	v := New(Options{})
	for range 11 {
		if _, err := v.Step(b.Context(), l, 1); err != nil {
			b.Fatal(err)
		}
	}
	at, _ := v.State()
	b.ReportAllocs()
	for b.Loop() {
		v := Resume(Options{}, at)
		for range 64 {
			if _, err := v.Step(b.Context(), l, 1); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(64*b.N), "ns/version")
}
