package inflate

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var formats = []string{"gzip", "zstd"}

func deflate(t testing.TB, format string, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&out)
	if format == "zstd" {
		z, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(maxWindow))
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := w.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// drain reads to the end, and closes.
func drain(t testing.TB, body io.Reader, format string, ratio int, limit int64) ([]byte, error) {
	t.Helper()
	r, err := Reader(body, format, ratio, limit)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(r)
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, after := r.Read(make([]byte, 1)); !errors.Is(after, io.ErrClosedPipe) {
		t.Errorf("read after Close: %v", after)
	}
	return got, err
}

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return b
}

func TestRoundTrip(t *testing.T) {
	for _, format := range formats {
		rapid.Check(t, func(rt *rapid.T) {
			plain := bytes.Repeat(
				rapid.SliceOfN(rapid.Byte(), 1, 300).Draw(rt, "plain"),
				rapid.IntRange(1, 400).Draw(rt, "times"),
			)
			packed := bytes.NewReader(deflate(t, format, plain))
			var body io.Reader = packed
			if rapid.Bool().Draw(rt, "one byte at a time") {
				body = iotest.OneByteReader(packed)
			}
			if got, err := drain(t, body, format, 1<<20, int64(len(plain))); err != nil || !bytes.Equal(got, plain) {
				rt.Fatalf("%s: %d bytes of %d, %v", format, len(got), len(plain), err)
			}
		})
	}
}

func TestEncodings(t *testing.T) {
	for name, ok := range map[string]bool{
		"gzip": true, "GZip": true, "x-gzip": true, " zstd ": true, "": false, "identity": false, "br": false, "deflate": false,
		"gzip, gzip": false, "gzip,zstd": false, "zstd, identity": false,
	} {
		r, err := Reader(strings.NewReader(""), name, 10, 10)
		if ok != (err == nil) || !ok && !errors.Is(err, ErrEncoding) {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil {
			_ = r.Close()
		}
	}
}

func TestBombs(t *testing.T) {
	zeros := make([]byte, 12<<20)
	half := append(noise(1<<20), make([]byte, 1<<20)...)
	for _, format := range formats {
		packed, mixed := deflate(t, format, zeros), deflate(t, format, half)
		for _, tt := range []struct {
			doc   string
			body  []byte
			ratio int
			abs   int64
			most  int64 // bytes handed out
			want  error
		}{
			{"ratio", packed, 10, 10 << 20, 10 * int64(len(packed)), ErrRatio},
			{"ratio of 1", mixed, 1, 10 << 20, int64(len(mixed)), ErrRatio},
			{"ratio in the middle", mixed, 2, 10 << 20, 2 << 20, nil},
			{"absolute", packed, 1 << 20, 10 << 20, 10 << 20, ErrTooLarge},
			{"to the byte", packed, 1 << 20, 12 << 20, 12 << 20, nil},
			{"a byte too many", packed, 1 << 20, 12<<20 - 1, 12<<20 - 1, ErrTooLarge},
			{"nothing allowed", mixed, 10, 0, 0, ErrTooLarge},
		} {
			got, err := drain(t, bytes.NewReader(tt.body), format, tt.ratio, tt.abs)
			if !errors.Is(err, tt.want) || int64(len(got)) > tt.most {
				t.Errorf("%s, %s: %d bytes of at most %d, %v, want %v", format, tt.doc, len(got), tt.most, err, tt.want)
			}
		}
	}
}

// A frame that asks for a larger window than any decoder must have is refused before anything is
// kept for it.
func TestWindow(t *testing.T) {
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(64<<20),
		zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	for range 9 {
		if _, err := w.Write(noise(1 << 20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := drain(t, &out, "zstd", 1<<20, 1<<30); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

func TestDamage(t *testing.T) {
	plain := append(noise(3000), make([]byte, 3000)...)
	for _, format := range formats {
		packed := deflate(t, format, plain)
		flipped := bytes.Clone(packed)
		flipped[len(flipped)/2] ^= 0x10
		for doc, body := range map[string][]byte{
			"empty": {}, "plain text": []byte(`{"a":1}`), "first half": packed[:len(packed)/2], "one byte short": packed[:len(packed)-1],
			"header only": packed[:4], "flipped bit": flipped, "trailing bytes": append(bytes.Clone(packed), "tail"...),
		} {
			if _, err := drain(t, bytes.NewReader(body), format, 1<<20, 1<<20); !errors.Is(err, ErrStream) {
				t.Errorf("%s, %s: %v", format, doc, err)
			}
		}
	}
}

// An error of the body itself is returned as it is.
func TestBodyErrors(t *testing.T) {
	stalled := errors.New("read deadline")
	for _, format := range formats {
		packed := deflate(t, format, noise(5000))
		body := io.MultiReader(bytes.NewReader(packed[:2000]), iotest.ErrReader(stalled))
		if _, err := drain(t, body, format, 10, 1<<20); !errors.Is(err, stalled) || errors.Is(err, ErrStream) {
			t.Errorf("%s: %v", format, err)
		}
		var capped *http.MaxBytesError
		if _, err := drain(t, http.MaxBytesReader(nil, io.NopCloser(bytes.NewReader(packed)), 1000), format, 10,
			1<<20); !errors.As(
			err,
			&capped,
		) {
			t.Errorf("%s: %v", format, err)
		}
	}
}

// A decoder that met a damaged body reads the next one well.
func TestPool(t *testing.T) {
	for _, format := range formats {
		for i := range 20 {
			plain := fmt.Appendf(nil, "body %d", i)
			packed := deflate(t, format, plain)
			if _, err := drain(t, bytes.NewReader(packed[:len(packed)-2]), format, 100, 1<<10); !errors.Is(
				err,
				ErrStream,
			) {
				t.Fatalf("%s: %v", format, err)
			}
			if got, err := drain(t, bytes.NewReader(packed), format, 100, 1<<10); err != nil ||
				!bytes.Equal(got, plain) {
				t.Fatalf("%s: %q, %v", format, got, err)
			}
		}
	}
}

// A cap that is no cap is one all the same.
func TestNoCap(t *testing.T) {
	plain := noise(3000)
	for _, format := range formats {
		if got, err := drain(t, bytes.NewReader(deflate(t, format, plain)), format, 1<<20, math.MaxInt64); err != nil ||
			!bytes.Equal(got, plain) {
			t.Errorf("%s: %d bytes, %v", format, len(got), err)
		}
	}
}

// A stream may be followed by another one of its kind, whole; a skippable zstd frame is one, and
// may be alone.
func TestTrailingStreams(t *testing.T) {
	for _, format := range formats {
		one := deflate(t, format, []byte("hello"))
		if got, err := drain(t, bytes.NewReader(append(bytes.Clone(one), one...)), format, 10, 10); err != nil ||
			string(got) != "hellohello" {
			t.Errorf("%s: %q, %v", format, got, err)
		}
		for n := 1; n < 8; n++ {
			for _, tail := range [][]byte{one[:n], make([]byte, n)} {
				if _, err := drain(t, bytes.NewReader(append(bytes.Clone(one), tail...)), format, 10, 10); !errors.Is(
					err,
					ErrStream,
				) {
					t.Errorf("%s with %d bytes more: %v", format, n, err)
				}
			}
		}
	}
	skip := []byte{0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3}
	one := deflate(t, "zstd", []byte("hello"))
	if got, err := drain(t, bytes.NewReader(append(bytes.Clone(skip), one...)), "zstd", 10, 10); err != nil ||
		string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := drain(t, bytes.NewReader(skip), "zstd", 10, 10); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := drain(t, bytes.NewReader(skip[:10]), "zstd", 10, 10); !errors.Is(err, ErrStream) {
		t.Errorf("a frame to skip, cut short: %v", err)
	}
	foreign := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x21, 5, 1, 0x29, 0, 0, 'h', 'e', 'l', 'l', 'o'} // asks for a dictionary
	if _, err := drain(t, bytes.NewReader(foreign), "zstd", 10, 10); !errors.Is(err, ErrStream) {
		t.Errorf("a dictionary: %v", err)
	}
}

// The ratio is of the whole body: members or frames that hold little do not buy a large one.
func TestRatioOverMembers(t *testing.T) {
	for _, format := range formats {
		bomb := append(bytes.Repeat(deflate(t, format, nil), 10), deflate(t, format, make([]byte, 1<<20))...)
		if got, err := drain(t, bytes.NewReader(bomb), format, 10, 10<<20); !errors.Is(err, ErrRatio) ||
			len(got) > 10*len(bomb) {
			t.Errorf("%s: %d bytes of %d, %v", format, len(got), len(bomb), err)
		}
	}
}

// kept is a body large enough to be an allocation of its own.
type kept struct {
	io.Reader
	_ [64]byte
}

// A decoder that goes back to the pool lets go of its body, however far it came.
func TestClosedBodyIsFree(t *testing.T) {
	for _, format := range formats {
		for _, want := range []int{0, 100} {
			freed := make(chan struct{})
			func() {
				body := &kept{Reader: bytes.NewReader(deflate(t, format, noise(9000)))}
				runtime.AddCleanup(body, func(c chan struct{}) { close(c) }, freed)
				r, err := Reader(body, format, 10, 1<<20)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(r, make([]byte, want)); err != nil {
					t.Fatal(err)
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				zstds.Put(zstds.Get()) // the decoder itself is still there
				gzips.Put(gzips.Get())
			}()
			runtime.GC()
			select {
			case <-freed:
			case <-time.After(time.Minute):
				t.Errorf("%s, after %d bytes: the body is still held", format, want)
			}
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, format := range formats {
		f.Add(deflate(f, format, []byte(`{"a":"`+strings.Repeat("b", 300)+`"}`)), 4)
		f.Add(deflate(f, format, nil), 10)
	}
	f.Add([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x24, 0xff}, 1)
	f.Fuzz(func(t *testing.T, body []byte, ratio int) {
		ratio = 1 + (ratio&0x7fffffff)%16
		for _, format := range formats {
			got, err := drain(t, bytes.NewReader(body), format, ratio, 1<<16)
			if len(got) > 1<<16 || len(got) > ratio*len(body) {
				t.Fatalf("%s: %d bytes out of %d", format, len(got), len(body))
			}
			if err != nil && !errors.Is(err, ErrStream) && !errors.Is(err, ErrRatio) && !errors.Is(err, ErrTooLarge) {
				t.Fatalf("%s: %v", format, err)
			}
		}
	})
}

func BenchmarkReader(b *testing.B) {
	plain := []byte(
		strings.Repeat(`{"account":"alice","amount":"1200","memo":"`+fmt.Sprintf("%x", noise(40))+`"}`, 400),
	)
	for _, format := range formats {
		b.Run(format, func(b *testing.B) {
			packed := deflate(b, format, plain)
			b.SetBytes(int64(len(plain)))
			b.ReportAllocs()
			for b.Loop() {
				r, err := Reader(bytes.NewReader(packed), format, 1000, 1<<20)
				if err != nil {
					b.Fatal(err)
				}
				if n, err := io.Copy(io.Discard, r); err != nil || n != int64(len(plain)) {
					b.Fatal(n, err)
				}
				_ = r.Close()
			}
		})
	}
}
