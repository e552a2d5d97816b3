package record

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
)

// One Tree, batch after batch, says what MerkleRoot says of the leaves.
func TestTreeIsMerkleRoot(t *testing.T) {
	var tree Tree
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 600)).Draw(t, "records")
		seed := rapid.SliceOfN(rapid.Byte(), 1, 1).Draw(t, "seed")
		var leaves []b3.Digest
		for i := range n {
			raw := bytes.Repeat(append(seed, byte(i), byte(i>>8)), (i*37+int(seed[0]))%MaxRecord/3)
			leaves = append(leaves, Leaf(raw))
			tree.Add(raw)
			clear(raw)
		}
		if got, want := tree.Root(), MerkleRoot(leaves); got != want {
			t.Fatalf("%d records: %s, want %s", n, got, want)
		}
	})
}

func TestTreeAllocatesNothing(t *testing.T) {
	var tree Tree
	raw := make([]byte, 350)
	if n := testing.AllocsPerRun(5, func() {
		for range 100 {
			tree.Add(raw)
		}
		_ = tree.Root()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkTree4096 is leaves and nodes of a batch of transfers.
func BenchmarkTree4096(b *testing.B) {
	var tree Tree
	r := goldenRecords()[6]
	raw := r.Append(nil)
	b.ReportAllocs()
	for b.Loop() {
		for range 4096 {
			tree.Add(raw)
		}
		_ = tree.Root()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4096, "ns/record")
}
