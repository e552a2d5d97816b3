package usage

import (
	"bytes"
	"crypto/ed25519"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
)

const day = 24 * time.Hour

func keyOf(name string) ed25519.PrivateKey {
	seed := b3.Sum([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func publicOf(name string) ed25519.PublicKey { return keyOf(name).Public().(ed25519.PublicKey) }

func sample() Statement {
	return Statement{
		Genesis:     b3.Sum([]byte("genesis")),
		Node:        "node/a",
		Identity:    "12D3KooWa",
		Incarnation: "i",
		Epoch:       20_000,
		Length:      day,
		Head:        7,
		Rows:        []Row{{"node/b", 10, 20, 2}, {"node/c", 0, MaxBytes - 30, 1}},
	}
}

// A statement has this spelling for ever: other nodes verify its bytes.
func TestSpelling(t *testing.T) {
	s := sample()
	s.Rows = s.Rows[:1]
	raw := s.Sign(keyOf("a"))
	text, _, _ := strings.Cut(string(raw), `"signature"`)
	want := `{"end":"2024-10-05T00:00:00Z","epoch":"20000","format":"ronbox.usage/1","genesis":"` + s.Genesis.String() +
		`","head":"7","identity":"12D3KooWa","incarnation":"i","length":"86400","node":"node/a",` +
		`"rows":{"node/b":{"asked":"10","objects":"2","placed":"20"}},`
	if text != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// A statement opens under the key that signed it, and under no other. A flipped bit never opens.
func TestOpen(t *testing.T) {
	s := sample()
	raw := s.Sign(keyOf("a"))
	got, err := Open(raw, publicOf("a"))
	if err != nil || !bytes.Equal(got.Sign(keyOf("a")), raw) {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := Open(raw, publicOf("b")); err == nil {
		t.Error("a statement opens under another key")
	}
	for i := range 8 * len(raw) {
		bad := bytes.Clone(raw)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := Open(bad, publicOf("a")); err == nil {
			t.Fatalf("bit %d is flipped, and it opens: %s", i, bad)
		}
	}
}

// A statement of another place does not pass for the wanted one.
func TestCheck(t *testing.T) {
	s := sample()
	want := Want{s.Genesis, s.Node, s.Identity, s.Epoch, s.Length}
	if err := s.Check(want); err != nil {
		t.Error(err)
	}
	for member, change := range map[string]func(*Want){
		"genesis":  func(w *Want) { w.Genesis = b3.Sum(nil) },
		"node":     func(w *Want) { w.Node = "node/b" },
		"identity": func(w *Want) { w.Identity = "12D3KooWb" },
		"epoch":    func(w *Want) { w.Epoch++ },
		"length":   func(w *Want) { w.Length = time.Hour },
	} {
		other := want
		change(&other)
		if err := s.Check(other); err == nil || !strings.HasPrefix(err.Error(), member+":") {
			t.Errorf("another %s: %v", member, err)
		}
	}
}

// Statements beyond the bounds are refused, even if they are signed.
func TestBounds(t *testing.T) {
	for name, change := range map[string]func(*Statement){
		"too many bytes": func(s *Statement) { s.Rows = append(s.Rows, Row{"node/d", 1, 0, 1}) },
		"a huge row":     func(s *Statement) { s.Rows = []Row{{"node/b", 1 << 63, 1 << 63, 1}} },
		"too many rows": func(s *Statement) {
			s.Rows = nil
			for i := range MaxNodes + 1 {
				s.Rows = append(s.Rows, Row{"node/" + strings.Repeat("n", 1+i%60) + time.Duration(i).String(), 1, 1, 1})
			}
		},
		"no length":  func(s *Statement) { s.Length = 0 },
		"a far time": func(s *Statement) { s.Epoch = MaxEpoch + 1 },
		"no node":    func(s *Statement) { s.Node = "" },
		"a control character": func(s *Statement) {
			s.Node = "node/\n"
		},
	} {
		s := sample()
		change(&s)
		raw := s.Sign(keyOf("a"))
		if _, err := Open(raw, publicOf("a")); err == nil {
			t.Errorf("%s: it opens", name)
		}
	}
}

// Epochs follow each other without a gap.
func TestWindow(t *testing.T) {
	at := time.Unix(1_700_000_123, 0)
	for _, length := range []time.Duration{10 * time.Second, time.Hour, day} {
		n := EpochOf(at, length)
		start, end := Window(n, length)
		if at.Before(start) || !at.Before(end) || end.Sub(start) != length || EpochOf(end, length) != n+1 {
			t.Errorf("%s: %d is %s to %s", length, n, start, end)
		}
		if next, _ := Window(n+1, length); !next.Equal(end) {
			t.Errorf("%s: %d begins at %s", length, n+1, next)
		}
	}
	if Grace(day) != 5*time.Minute || Grace(20*time.Second) != 5*time.Second {
		t.Error("grace")
	}
}

func FuzzParse(f *testing.F) {
	s := sample()
	f.Add(s.Sign(keyOf("a")))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, sig, err := parse(raw)
		if err != nil {
			return
		}
		if again, sig2, err := parse(raw); err != nil || !bytes.Equal(sig, sig2) || again.Epoch != s.Epoch {
			t.Error("it parses in two ways")
		}
	})
}
