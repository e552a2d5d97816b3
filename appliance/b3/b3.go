package b3

import (
	"encoding/hex"
	"errors"
	"hash"
	"sync"

	"github.com/zeebo/blake3"
)

// Size is the length of a digest in bytes.
const Size = 32

// prefix opens the text form of a digest.
const prefix = "b3:"

// textLen is the length of the text form.
const textLen = len(prefix) + 2*Size

// ErrSyntax says that a text is not a digest in its one spelling.
var ErrSyntax = errors.New(`b3: a digest is "b3:" and 64 lower-case hex digits`)

// Digest is a BLAKE3-256 hash. The zero Digest stands for "none"; no known input hashes to it.
type Digest [Size]byte

// Sum hashes b.
func Sum(b []byte) Digest {
	return blake3.Sum256(b)
}

// Parse reads the text form. Anything but "b3:" and 64 lower-case hex digits is ErrSyntax.
func Parse(s string) (Digest, error) {
	var d Digest
	if len(s) != textLen || s[:len(prefix)] != prefix {
		return Digest{}, ErrSyntax
	}
	for i := range d {
		hi, lo := nibble(s[len(prefix)+2*i]), nibble(s[len(prefix)+2*i+1])
		if hi > 15 || lo > 15 {
			return Digest{}, ErrSyntax
		}
		d[i] = hi<<4 | lo
	}
	return d, nil
}

// nibble is the value of a lower-case hex digit, or 255.
func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

// String is the text form.
func (d Digest) String() string {
	return string(d.append(make([]byte, 0, textLen)))
}

// IsZero reports whether d stands for "none".
func (d Digest) IsZero() bool {
	return d == Digest{}
}

// MarshalText is the text form.
func (d Digest) MarshalText() ([]byte, error) {
	return d.append(make([]byte, 0, textLen)), nil
}

// UnmarshalText is Parse.
func (d *Digest) UnmarshalText(b []byte) error {
	v, err := Parse(string(b))
	if err != nil {
		return err
	}
	*d = v
	return nil
}

// AppendText appends the text form. It never fails.
func (d Digest) AppendText(b []byte) ([]byte, error) {
	return d.append(b), nil
}

func (d Digest) append(b []byte) []byte {
	return hex.AppendEncode(append(b, prefix...), d[:])
}

// Hasher hashes what is written to it piece by piece. It serves one goroutine.
type Hasher struct {
	h *blake3.Hasher
}

var _ hash.Hash = (*Hasher)(nil)

// New is an empty Hasher.
func New() *Hasher {
	return &Hasher{h: blake3.New()}
}

// Write adds p to what is hashed. It never fails.
func (h *Hasher) Write(p []byte) (int, error) {
	return h.h.Write(p)
}

// Sum appends the digest of what was written so far to b.
func (h *Hasher) Sum(b []byte) []byte {
	d := h.Sum32()
	return append(b, d[:]...)
}

// Sum32 is the digest, 32 bytes, of what was written so far; more may be written after it.
func (h *Hasher) Sum32() Digest {
	var d Digest
	h.h.Sum(d[:0])
	return d
}

// Reset forgets what was written.
func (h *Hasher) Reset() {
	h.h.Reset()
}

// Size is the length of a digest in bytes.
func (h *Hasher) Size() int {
	return Size
}

// BlockSize is the length of BLAKE3's block in bytes.
func (h *Hasher) BlockSize() int {
	return h.h.BlockSize()
}

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
