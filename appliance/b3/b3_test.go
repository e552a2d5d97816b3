package b3

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The published vectors of BLAKE3: the input is the bytes 0, 1, … 250, 0, 1, … of the given length.
func TestVectors(t *testing.T) {
	for _, tt := range []struct {
		length int
		want   string
	}{
		{0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"},
		{1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"},
		{1023, "10108970eeda3eb932baac1428c7a2163b0e924c9a9e25b35bba72b28f70bd11"},
		{1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"},
		{102400, "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085"},
	} {
		in := make([]byte, tt.length)
		for i := range in {
			in[i] = byte(i % 251)
		}
		if got := hex.EncodeToString(sumOf(in)); got != tt.want {
			t.Errorf("length %d: %s, want %s", tt.length, got, tt.want)
		}
	}
}

func sumOf(in []byte) []byte {
	d := Sum(in)
	return d[:]
}

func TestParseIsStrict(t *testing.T) {
	good := Sum([]byte("x")).String()
	for _, bad := range []string{
		"", "b3:", good[3:], good[:len(good)-1], good + "0", " " + good, good + "\n", "B3:" + good[3:],
		"b3:" + strings.ToUpper(good[3:]), "b3:" + strings.Repeat("g", 64), "sha256:" + good[3:], "b3:" + strings.Repeat("é", 32),
	} {
		if d, err := Parse(bad); !errors.Is(err, ErrSyntax) || !d.IsZero() {
			t.Errorf("Parse(%q) = %v, %v; want ErrSyntax", bad, d, err)
		}
	}
	var d Digest
	if err := d.UnmarshalText([]byte("nonsense")); err == nil || !d.IsZero() {
		t.Errorf("UnmarshalText took nonsense: %v, %v", d, err)
	}
}

// Text and digest are two forms of one thing, and pieces hash as the whole does.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOf(rapid.Byte()).Draw(t, "in")
		cut := rapid.IntRange(0, len(in)).Draw(t, "cut")
		d := Sum(in)
		text, _ := d.MarshalText()
		var back Digest
		if err := back.UnmarshalText(text); err != nil || back != d || string(text) != d.String() {
			t.Fatalf("%s came back as %s, %v", text, back, err)
		}
		h := New()
		_, _ = h.Write([]byte("forgotten"))
		h.Reset()
		_, _ = h.Write(in[:cut])
		_ = h.Sum32()
		_, _ = h.Write(in[cut:])
		if h.Sum32() != d || !bytes.Equal(h.Sum([]byte{7}), append([]byte{7}, d[:]...)) {
			t.Fatalf("in pieces %s, whole %s", h.Sum32(), d)
		}
	})
}

// Parse accepts only the output of String.
func FuzzParse(f *testing.F) {
	f.Add(Sum(nil).String())
	f.Add("b3:")
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := Parse(s); err == nil && d.String() != s {
			t.Errorf("%q parsed as %s", s, d)
		}
	})
}

func BenchmarkSum1KiB(b *testing.B) {
	in := make([]byte, 1024)
	b.SetBytes(1024)
	for b.Loop() {
		_ = Sum(in)
	}
}

func BenchmarkString(b *testing.B) {
	d := Sum(nil)
	for b.Loop() {
		_ = d.String()
	}
}

// The published vectors of the keyed and the derived modes: input as in TestVectors, key and
// context as published.
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
