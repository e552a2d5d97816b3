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

// prefix starts the text form of a digest.
const prefix = "b3:"

// textLen is the length of the text form.
const textLen = len(prefix) + 2*Size

// ErrSyntax is returned for a text that is not a digest.
var ErrSyntax = errors.New(`b3: a digest is "b3:" and 64 lower-case hex digits`)

// Digest is a BLAKE3-256 hash. The zero Digest means "none"; no known input has that hash.
type Digest [Size]byte

// Sum returns the digest of b.
func Sum(b []byte) Digest {
	return blake3.Sum256(b)
}

// Parse parses the text form. It returns ErrSyntax unless s is "b3:" and 64 lower-case hex digits.
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

// nibble returns the value of a lower-case hex digit, or 255.
func nibble(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 255
}

// String returns the text form.
func (d Digest) String() string {
	return string(d.append(make([]byte, 0, textLen)))
}

// IsZero reports whether d is the zero Digest.
func (d Digest) IsZero() bool {
	return d == Digest{}
}

// MarshalText returns the text form.
func (d Digest) MarshalText() ([]byte, error) {
	return d.append(make([]byte, 0, textLen)), nil
}

// UnmarshalText parses the text form.
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

// Hasher computes the digest of data written in pieces. It must not be used concurrently.
type Hasher struct {
	h *blake3.Hasher
}

var _ hash.Hash = (*Hasher)(nil)

// New returns an empty Hasher.
func New() *Hasher {
	return &Hasher{h: blake3.New()}
}

// Write adds p to the input. It never fails.
func (h *Hasher) Write(p []byte) (int, error) {
	return h.h.Write(p)
}

// Sum appends the digest of the input so far to b.
func (h *Hasher) Sum(b []byte) []byte {
	d := h.Sum32()
	return append(b, d[:]...)
}

// Sum32 returns the digest of the input so far. More input may follow.
func (h *Hasher) Sum32() Digest {
	var d Digest
	h.h.Sum(d[:0])
	return d
}

// Reset discards the input.
func (h *Hasher) Reset() {
	h.h.Reset()
}

// Size returns the length of a digest in bytes.
func (h *Hasher) Size() int {
	return Size
}

// BlockSize returns the block length of BLAKE3 in bytes.
func (h *Hasher) BlockSize() int {
	return h.h.BlockSize()
}

// Mode is BLAKE3 with a key or for one purpose. Its digests differ from those of Sum and of every
// other Mode. It is safe for concurrent use, and does not allocate after its first uses.
type Mode struct {
	idle sync.Pool // of *scratch
}

// scratch is the memory of one computation. A hasher has 10 KB, too much to allocate for a short
// input.
type scratch struct {
	h   *blake3.Hasher
	out Digest
}

// Keyed returns the keyed hash of BLAKE3.
func Keyed(key [Size]byte) *Mode {
	return newMode(func() *blake3.Hasher {
		h, err := blake3.NewKeyed(key[:])
		if err != nil {
			panic("b3: the library refused a key of 32 bytes: " + err.Error())
		}
		return h
	})
}

// Derive returns BLAKE3's key derivation with a context: a constant of the program that names the
// purpose of the digests.
func Derive(context string) *Mode {
	first := blake3.NewDeriveKey(context)
	return newMode(first.Clone)
}

func newMode(fresh func() *blake3.Hasher) *Mode {
	return &Mode{idle: sync.Pool{New: func() any { return &scratch{h: fresh()} }}}
}

// Sum returns the digest of the concatenated parts.
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
