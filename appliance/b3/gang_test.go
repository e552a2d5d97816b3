package b3

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A gang returns the same digests as Sum for any number and length of inputs, and writes no other
// memory.
func TestGangIsSum(t *testing.T) {
	var g Gang
	rapid.Check(t, func(t *rapid.T) {
		length := rapid.OneOf(rapid.IntRange(0, 130), rapid.IntRange(300, 400), rapid.IntRange(960, 1100),
			rapid.SampledFrom([]int{62, 63, 64, 127, 1022, 1023, 1024}))
		lengths := rapid.SliceOfN(length, 0, 40).Draw(t, "lengths")
		got, want := make([]Digest, len(lengths)+1), make([]Digest, len(lengths)+1)
		for i, n := range lengths {
			prefix, in := rapid.Byte().Draw(t, "prefix"), rapid.SliceOfN(rapid.Byte(), n, n).Draw(t, "in")
			cut := rapid.IntRange(0, n).Draw(t, "cut")
			want[i] = Sum(append([]byte{prefix}, in...))
			g.Add(&got[i], prefix, in[:cut], in[cut:])
			clear(in)
		}
		g.Flush()
		if !slices.Equal(got, want) {
			t.Fatalf("lengths %v:\n%v, want\n%v", lengths, got, want)
		}
	})
}

// Every length of an input, in every lane, with other lengths in the other lanes.
func TestGangLengths(t *testing.T) {
	var g Gang
	text := make([]byte, laneSize+3)
	for i := range text {
		text[i] = byte(i % 251)
	}
	for n := range len(text) {
		var got [lanes]Digest
		for i := range got {
			g.Add(&got[i], byte(i), text[:max(0, n-37*i)], nil)
		}
		g.Flush()
		for i := range got {
			if want := Sum(append([]byte{byte(i)}, text[:max(0, n-37*i)]...)); got[i] != want {
				t.Fatalf("length %d in lane %d: %s, want %s", n-37*i, i, got[i], want)
			}
		}
	}
}

func TestGangAllocatesNothing(t *testing.T) {
	var g Gang
	in, out := make([]byte, 350), make([]Digest, 20)
	if n := testing.AllocsPerRun(100, func() {
		for i := range out {
			g.Add(&out[i], 0, in, nil)
		}
		g.Flush()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkGang350 is for each of the inputs.
func BenchmarkGang350(b *testing.B) { benchGang(b, 350) }

func BenchmarkGang64(b *testing.B) { benchGang(b, 64) }

func benchGang(b *testing.B, n int) {
	var g Gang
	in, out := bytes.Repeat([]byte{7}, n), make([]Digest, 4096)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		g.Add(&out[i%len(out)], 0, in, nil)
	}
}
