package peer

import (
	"bytes"
	"testing"
	"time"
)

func TestSkew(t *testing.T) {
	from := time.Unix(1000, 0)
	to := from.Add(200 * time.Millisecond)
	for _, tt := range []struct {
		ahead   time.Duration // of the clock at from
		exceeds bool
	}{{0, false}, {500 * time.Millisecond, false}, {700 * time.Millisecond, false}, {701 * time.Millisecond, true},
		{-500 * time.Millisecond, false}, {-501 * time.Millisecond, true}, {-time.Hour, true}} {
		s := SkewOf(from.Add(tt.ahead).UnixNano(), from, to)
		if s.Exceeds(MaxSkew) != tt.exceeds || (s.Check() != nil) != tt.exceeds {
			t.Errorf("ahead by %v: %+v exceeds = %v, want %v", tt.ahead, s, !tt.exceeds, tt.exceeds)
		}
	}
}

// readHello reads exactly one frame, and what it reads can be sent again.
func FuzzReadHello(f *testing.F) {
	var b bytes.Buffer
	if err := writeHello(&b, found(f).hello()); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{0, 2, '{', '}', 'x'})
	f.Add([]byte{255, 255})
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := bytes.NewReader(raw)
		h, err := readHello(r)
		if err != nil {
			return
		}
		if want := len(raw) - 2 - int(raw[0])<<8 - int(raw[1]); r.Len() != want {
			t.Fatalf("%d bytes are left, want %d", r.Len(), want)
		}
		var again bytes.Buffer
		if err := writeHello(&again, h); err != nil {
			return // longer than a frame in its canonical form
		}
		if got, err := readHello(&again); err != nil || got.Server != h.Server {
			t.Fatalf("sent again: %+v, err = %v", got, err)
		}
	})
}
