package lverify_test

import (
	"testing"

	"ronbox/engines/ledger/lverify"
)

// BenchmarkVerifySmall checks a ledger of some 40 records whole.
func BenchmarkVerifySmall(b *testing.B) {
	l := newBench(b, full(b, 3, 14))
	b.ReportAllocs()
	for b.Loop() {
		if rep := l.verify(b, lverify.Options{}); !rep.OK {
			b.Fatal(rep.Findings)
		}
	}
}
