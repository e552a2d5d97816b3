package b3

import (
	"sync"

	"github.com/zeebo/blake3"
)

// Mode is BLAKE3 under a key or for one purpose: its digests are those of no other Mode and of no Sum. It serves many goroutines, and
// allocates nothing once it is warm.
type Mode struct {
	idle sync.Pool // of *scratch
}

// scratch is one computation's memory: a hasher is 10 KB, too much to make for a few hundred bytes.
type scratch struct {
	h   *blake3.Hasher
	out Digest
}

// Keyed is BLAKE3's keyed hash.
func Keyed(key [Size]byte) *Mode {
	return newMode(func() *blake3.Hasher {
		h, err := blake3.NewKeyed(key[:])
		if err != nil {
			panic("b3: the library refused a key of 32 bytes: " + err.Error())
		}
		return h
	})
}

// Derive is BLAKE3's key derivation in the context, which is a constant of the program and says what the digests are for.
func Derive(context string) *Mode {
	first := blake3.NewDeriveKey(context)
	return newMode(first.Clone)
}

func newMode(fresh func() *blake3.Hasher) *Mode {
	return &Mode{idle: sync.Pool{New: func() any { return &scratch{h: fresh()} }}}
}

// Sum hashes the parts as if they were one.
func (m *Mode) Sum(parts ...[]byte) Digest {
	s := m.idle.Get().(*scratch)
	s.h.Reset()
	for _, p := range parts {
		_, _ = s.h.Write(p)
	}
	s.h.Sum(s.out[:0])
	d := s.out
	m.idle.Put(s)
	return d
}
