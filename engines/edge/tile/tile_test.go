package tile_test

import (
	"bytes"
	"errors"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"ronbox/engines/edge/tile"
)

// encoded returns b in a coding.
func encoded(t testing.TB, c tile.Coding, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var z io.WriteCloser
	switch c {
	case tile.Gzip:
		z = gzip.NewWriter(&out)
	case tile.Deflate:
		z = zlib.NewWriter(&out)
	case tile.Zstd:
		z, _ = zstd.NewWriter(&out) // without options there is no error
	default:
		return b
	}
	if _, err := z.Write(b); errors.Join(err, z.Close()) != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestDecode(t *testing.T) {
	plain := bytes.Repeat([]byte("0123456789"), 100)
	for _, c := range []tile.Coding{tile.None, tile.Gzip, tile.Zstd, tile.Deflate} {
		packed := encoded(t, c, plain)
		if got, err := c.Decode(packed, len(plain)); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%q: %d bytes, %v", c, len(got), err)
		}
		if _, err := c.Decode(packed, len(plain)-1); !errors.Is(err, tile.ErrTooLong) {
			t.Errorf("%q: one byte more than the limit: err = %v", c, err)
		}
		if got := tile.CodingOf(packed, tile.None, tile.MVT); got != c {
			t.Errorf("%q is recognised as %q", c, got)
		}
		if c == tile.None {
			continue
		}
		for n := 1; n < len(packed); n++ { // no tile and no directory has 0 bytes
			if got, err := c.Decode(packed[:n], len(plain)); !errors.Is(err, tile.ErrUndecodable) {
				t.Errorf("%q: cut at %d of %d it decodes to %d bytes, %v", c, n, len(packed), len(got), err)
			}
		}
		flipped := bytes.Clone(packed)
		flipped[len(flipped)/2] ^= 0x10
		if got, err := c.Decode(flipped, len(plain)); err == nil && bytes.Equal(got, plain) {
			t.Errorf("%q: a flipped bit changes nothing", c)
		}
	}
	if _, err := tile.Brotli.Decode(plain, len(plain)); !errors.Is(err, tile.ErrUndecodable) {
		t.Errorf("brotli: err = %v", err)
	}
}

// TestBombs decodes a gibibyte from few bytes: it is refused at the limit and never held in memory.
func TestBombs(t *testing.T) {
	for _, c := range []tile.Coding{tile.Gzip, tile.Zstd} {
		bomb := bytes.Repeat(encoded(t, c, make([]byte, 1<<20)), 1024)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := c.Decode(bomb, 10<<20)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, tile.ErrTooLong) {
			t.Errorf("%q: err = %v", c, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%q: %d bytes of bomb took %d MiB", c, len(bomb), took>>20)
		}
	}
}

// TestCodingOf has first bytes that are no mark of a coding, or only for some formats.
func TestCodingOf(t *testing.T) {
	for _, tt := range []struct {
		b        string
		declared tile.Coding
		f        tile.Format
		want     tile.Coding
	}{
		{"", tile.Gzip, tile.MVT, tile.None},
		{"\x1a\x01", tile.Gzip, tile.MVT, tile.None},
		{"x", tile.Brotli, tile.MVT, tile.Brotli},
		{"\x1f\x8b\x08\x00", tile.Brotli, tile.MVT, tile.Gzip},
		{"\x1f\x8b\x08\xff", tile.Brotli, tile.MVT, tile.Brotli}, // reserved flags
		{"\x1f\x8b", tile.None, tile.MVT, tile.None},
		{"\x78\x9c\x01", tile.None, tile.MVT, tile.Deflate},
		{"\x78\x01\x01", tile.None, tile.MLT, tile.None}, // a layer of 120 bytes
		{"\x78\x9d\x01", tile.None, tile.MVT, tile.None},
		{"\x78", tile.None, tile.MVT, tile.None},
	} {
		if got := tile.CodingOf([]byte(tt.b), tt.declared, tt.f); got != tt.want {
			t.Errorf("%q of %s, declared %q: %q, want %q", tt.b, tt.f, tt.declared, got, tt.want)
		}
	}
}

func TestFormatOf(t *testing.T) {
	for want, names := range map[tile.Format]string{
		tile.MVT:  "pbf mvt PBF .mvt application/x-protobuf application/vnd.mapbox-vector-tile",
		tile.MLT:  "mlt MLT application/vnd.maplibre-tile application/vnd.maplibre-vector-tile",
		tile.PNG:  "png PNG .png image/png Image/PNG image/png;q=1",
		tile.JPG:  "jpg jpeg JPG JPEG image/jpeg image/jpg",
		tile.WebP: "webp WebP image/webp",
		tile.AVIF: "avif image/avif",
		"":        "svg+xml svg json image text/html pn png/.. png? ../png",
	} {
		for name := range strings.FieldsSeq(names) {
			if got := tile.FormatOf(name); got != want {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
			if got := tile.FormatOf(" " + name + " "); got != want {
				t.Errorf("%s with spaces: %q, want %q", name, got, want)
			}
		}
	}
	for _, tt := range []struct {
		f    tile.Format
		ext  string
		want bool
		kind string
	}{
		{tile.MVT, "mvt", true, "application/x-protobuf"}, {tile.MVT, "pbf", true, "application/x-protobuf"},
		{tile.MVT, "png", false, "application/x-protobuf"}, {tile.MLT, "mlt", true, "application/vnd.maplibre-tile"},
		{tile.JPG, "jpeg", true, "image/jpeg"}, {tile.PNG, "", true, "image/png"}, {tile.PNG, "PNG", true, "image/png"},
		{tile.PNG, "jpg", false, "image/png"}, {tile.PNG, "xyz", false, "image/png"},
		{"", "png", true, "application/octet-stream"},
	} {
		if got := tt.f.Matches(tt.ext); got != tt.want || tt.f.ContentType() != tt.kind {
			t.Errorf("%q and %q: %v, %s, want %v, %s", tt.f, tt.ext, got, tt.f.ContentType(), tt.want, tt.kind)
		}
	}
}

// FuzzFormatOf names formats by arbitrary text: only the names of formats come out, each names
// itself, and the bytes of the text enter nothing.
func FuzzFormatOf(f *testing.F) {
	for _, name := range []string{"", "png", "image/png", "PBF", ".mvt;x=1", "png\x00", "../png", "ＰＮＧ", "\xff"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := tile.FormatOf(name)
		switch got {
		case "", tile.MVT, tile.MLT, tile.PNG, tile.JPG, tile.WebP, tile.AVIF:
		default:
			t.Fatalf("%q is %q", name, got)
		}
		if got != "" && (tile.FormatOf(string(got)) != got || tile.FormatOf(got.ContentType()) != got ||
			!got.Matches(name)) {
			t.Fatalf("%q is %q, which does not name itself", name, got)
		}
	})
}

// FuzzSniff reads arbitrary bytes as a tile. No call panics.
func FuzzSniff(f *testing.F) {
	f.Add([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00"))
	f.Add([]byte("\xff\xd8\xff\xe0\x00\x00\xff\xc0\x00\x11\x08\x01"))
	f.Add([]byte("RIFF\x00\x00\x00\x00WEBPVP8X"))
	f.Add([]byte("\x00\x00\x00\x00ftypavif ispe\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if w := tile.Width(b); w < 0 || w > 0 && tile.Sniff(b) == "" {
			t.Errorf("a width of %d", w)
		}
	})
}

// TestPictures recognises pictures and their widths.
func TestPictures(t *testing.T) {
	var asPNG, asJPG bytes.Buffer
	picture := image.NewGray(image.Rect(0, 0, 300, 200))
	if err := errors.Join(png.Encode(&asPNG, picture), jpeg.Encode(&asJPG, picture, nil)); err != nil {
		t.Fatal(err)
	}
	webp := func(kind, head string) []byte {
		return []byte("RIFF\x00\x00\x00\x00WEBP" + kind + "\x00\x00\x00\x00" + head + strings.Repeat("\x00", 12))
	}
	for _, tt := range []struct {
		b     []byte
		want  tile.Format
		width int
	}{
		{asPNG.Bytes(), tile.PNG, 300}, {asPNG.Bytes()[:20], tile.PNG, 0}, {asPNG.Bytes()[:7], "", 0},
		{asJPG.Bytes(), tile.JPG, 300}, {asJPG.Bytes()[:20], tile.JPG, 0},
		{webp("VP8 ", "\x00\x00\x00\x9d\x01\x2a\x2c\x41"), tile.WebP, 300},
		{webp("VP8L", "\x2f\x2b\x01"), tile.WebP, 300},
		{webp("VP8X", "\x00\x00\x00\x00\x2b\x01\x00"), tile.WebP, 300},
		{webp("ALPH", ""), tile.WebP, 0},
		{[]byte("\x00\x00\x00\x20ftypavif....ispe\x00\x00\x00\x00\x00\x00\x01\x2c"), tile.AVIF, 300},
		{[]byte("\x00\x00\x00\x20ftypavif"), tile.AVIF, 0},
		{[]byte("\x1a\x05"), tile.MVT, 0},
		{nil, "", 0},
	} {
		if f, w := tile.Sniff(tt.b), tile.Width(tt.b); f != tt.want || w != tt.width {
			t.Errorf("%.16q: %q of width %d, want %q of %d", tt.b, f, w, tt.want, tt.width)
		}
	}
	for _, tt := range []struct {
		declared, sniffed tile.Format
		coding            tile.Coding
		want              tile.Format
	}{
		{tile.PNG, tile.JPG, tile.None, tile.JPG}, {"", tile.PNG, tile.None, tile.PNG},
		{tile.MLT, tile.MVT, tile.Gzip, tile.MLT}, {tile.PNG, "", tile.None, tile.PNG},
		{"", "", tile.Gzip, tile.MVT}, {"", "", tile.None, ""},
	} {
		if got := tile.Guess(tt.declared, tt.sniffed, tt.coding); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

// TestExtent accepts bounds on the globe alone.
func TestExtent(t *testing.T) {
	for _, b := range [][4]float64{{-180, -85, 180, 85}, {-180, -90, 180, 90}, {0, 0, 1e-7, 1e-7}} {
		if tile.Extent(b) != b {
			t.Errorf("%v is unknown", b)
		}
	}
	for _, b := range [][4]float64{{}, {10, 0, 5, 1}, {0, 1, 1, 0}, {0, 0, 0, 1}, {0, 0, 1, 91}, {-400, 0, 1, 1}} {
		if got := tile.Extent(b); got != [4]float64{} {
			t.Errorf("%v is %v", b, got)
		}
	}
}

// TestWidthOfRealPack reads a tile of testdata/packs.
func TestWidthOfRealPack(t *testing.T) {
	b, err := os.ReadFile("../../../testdata/packs/usgs-mt-whitney-8-15-webp-512.pmtiles")
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("RIFF"))
	if got := tile.Width(b[at : at+40]); got != 512 {
		t.Errorf("a tile is %d wide, want 512", got)
	}
}
