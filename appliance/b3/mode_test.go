package b3

import (
	"bytes"
	"encoding/hex"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// The published vectors of the keyed and the derived modes: input as in TestVectors, key and context as published.
func TestModeVectors(t *testing.T) {
	keyed := Keyed([Size]byte([]byte("whats the Elvish word for friend")))
	derived := Derive("BLAKE3 2019-12-27 16:29:52 test vectors context")
	for _, tt := range []struct {
		length         int
		keyed, derived string
	}{
		{0, "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26", "2cc39783c223154fea8dfb7c1b1660f2ac2dcbd1c1de8277b0b0dd39b7e50d7d"},
		{1, "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b", "b3e2e340a117a499c6cf2398a19ee0d29cca2bb7404c73063382693bf66cb06c"},
		{1024, "75c46f6f3d9eb4f55ecaaee480db732e6c2105546f1e675003687c31719c7ba4", "7356cd7720d5b66b6d0697eb3177d9f8d73a4a5c5e968896eb6a689684302706"},
	} {
		in := make([]byte, tt.length)
		for i := range in {
			in[i] = byte(i % 251)
		}
		if d := keyed.Sum(in); hex.EncodeToString(d[:]) != tt.keyed {
			t.Errorf("keyed, length %d: %x, want %s", tt.length, d[:], tt.keyed)
		}
		if d := derived.Sum(in); hex.EncodeToString(d[:]) != tt.derived {
			t.Errorf("derived, length %d: %x, want %s", tt.length, d[:], tt.derived)
		}
	}
}

// Parts hash as the whole does, and a mode agrees with no other.
func TestModesAreApart(t *testing.T) {
	modes := []*Mode{Keyed([Size]byte{}), Keyed([Size]byte{1}), Derive("b3 test one"), Derive("b3 test two")}
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.Byte()).Draw(t, "in")
		cut := rapid.IntRange(0, len(in)).Draw(t, "cut")
		seen := map[Digest]bool{Sum(in): true}
		for i, m := range modes {
			d := m.Sum(in[:cut], in[cut:])
			if d != m.Sum(in) || seen[d] {
				t.Fatalf("mode %d: %s for the parts, %s for the whole, seen %v", i, d, m.Sum(in), seen[d])
			}
			seen[d] = true
		}
	})
}

func TestModeServesMany(t *testing.T) {
	m := Derive("b3 test many")
	want := m.Sum([]byte("x"))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				if d := m.Sum([]byte("x")); d != want {
					t.Errorf("%s, want %s", d, want)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkSum350(b *testing.B) {
	in := bytes.Repeat([]byte{7}, 350)
	b.ReportAllocs()
	for b.Loop() {
		_ = Sum(in)
	}
}

func BenchmarkModeSum350(b *testing.B) {
	m, in := Derive("b3 bench"), bytes.Repeat([]byte{7}, 350)
	b.ReportAllocs()
	for b.Loop() {
		_ = m.Sum(in)
	}
}
