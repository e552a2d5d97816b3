package merkle

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
)

// A reused Tree returns the same roots as Root.
func TestTreeIsMerkleRoot(t *testing.T) {
	var tree Tree
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 600)).Draw(t, "leaves")
		seed := rapid.SliceOfN(rapid.Byte(), 1, 1).Draw(t, "seed")
		var leaves []b3.Digest
		for i := range n {
			raw := bytes.Repeat(append(seed, byte(i), byte(i>>8)), (i*37+int(seed[0]))%leafRoom/3)
			leaves = append(leaves, Leaf(raw))
			tree.Add(raw)
			clear(raw)
		}
		if got, want := tree.Root(), Root(leaves); got != want {
			t.Fatalf("%d leaves: %s, want %s", n, got, want)
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

// BenchmarkTree4096 is leaves and nodes of a batch of a ledger.
func BenchmarkTree4096(b *testing.B) {
	var tree Tree
	raw := make([]byte, 400)
	b.ReportAllocs()
	for b.Loop() {
		for range 4096 {
			tree.Add(raw)
		}
		_ = tree.Root()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4096, "ns/leaf")
}

func BenchmarkLeaf(b *testing.B) {
	raw := make([]byte, 400)
	b.ReportAllocs()
	for b.Loop() {
		_ = Leaf(raw)
	}
}

func BenchmarkRoot4096(b *testing.B) {
	leaves := make([]b3.Digest, 4096)
	for i := range leaves {
		leaves[i][0] = byte(i)
	}
	b.ReportAllocs()
	for b.Loop() {
		_ = Root(leaves)
	}
}
