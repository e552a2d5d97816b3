package httpapi

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// The major types of CBOR.
const (
	cborUint = iota
	cborNegative
	cborBytes
	cborText
	cborArray
	cborMap
	cborTag
	cborOther
)

// The simple values of CBOR that have a form in JSON.
const (
	cborFalse = 0xf4
	cborTrue  = 0xf5
	cborNull  = 0xf6
)

// transcoder writes CBOR (RFC 8949) as JSON: maps with text keys, arrays, text and integers, all of
// definite length. Numbers may be longer than necessary. Tags and all other types are refused.
// Memory is allocated for the bytes that arrived, never for a length that the body claims.
type transcoder struct {
	body, left, out []byte
	depth           int
}

// FromCBOR returns body as JSON. It returns a *BodyError with the offset of the first byte that is
// malformed or has no form in JSON.
func FromCBOR(body []byte) ([]byte, error) {
	t := transcoder{body: body, left: body, out: make([]byte, 0, 2*len(body))}
	if err := t.value(); err != nil {
		return nil, err
	}
	if len(t.left) > 0 {
		return nil, t.fail("more bytes after the value")
	}
	return t.out, nil
}

func (t *transcoder) fail(reason string) error {
	return BadBody("", fmt.Sprintf("malformed CBOR at byte %d: %s", len(t.body)-len(t.left), reason))
}

// head reads the head of an item: its major type, and its value or length.
func (t *transcoder) head() (major byte, n uint64, err error) {
	if len(t.left) == 0 {
		return 0, 0, t.fail("ends too early")
	}
	first := t.left[0]
	major, n = first>>5, uint64(first&31)
	size := 0
	switch {
	case major == cborTag:
		return 0, 0, t.fail("a tag")
	case major == cborBytes:
		return 0, 0, t.fail("a byte string")
	case major == cborOther && first != cborFalse && first != cborTrue && first != cborNull:
		return 0, 0, t.fail("a float or simple value")
	case n > 27:
		return 0, 0, t.fail("an indefinite or reserved length")
	case n >= 24:
		size = 1 << (n - 24)
	}
	if len(t.left) < 1+size {
		return 0, 0, t.fail("ends too early")
	}
	if size > 0 {
		var wide [8]byte
		copy(wide[8-size:], t.left[1:1+size])
		n = binary.BigEndian.Uint64(wide[:])
	}
	if major == cborNegative && n == math.MaxUint64 {
		return 0, 0, t.fail("a number below -2^64")
	}
	t.left = t.left[1+size:]
	return major, n, nil
}

func (t *transcoder) value() error {
	major, n, err := t.head()
	if err != nil {
		return err
	}
	switch major {
	case cborUint:
		t.out = strconv.AppendUint(t.out, n, 10)
	case cborNegative:
		t.out = strconv.AppendUint(append(t.out, '-'), n+1, 10)
	case cborText:
		return t.text(n)
	case cborArray:
		return t.items('[', ']', n, t.value)
	case cborMap:
		return t.items('{', '}', n, t.member)
	case cborOther:
		t.out = append(t.out, [...]string{"false", "true", "null"}[n-cborFalse&31]...)
	}
	return nil
}

// text writes the next n bytes as a string.
func (t *transcoder) text(n uint64) error {
	if n > uint64(len(t.left)) {
		return t.fail("ends too early")
	}
	var err error
	if t.out, err = jsontext.AppendQuote(t.out, t.left[:n]); err != nil {
		return t.fail("not valid UTF-8")
	}
	t.left = t.left[n:]
	return nil
}

// items writes n items between brackets.
func (t *transcoder) items(open, end byte, n uint64, item func() error) error {
	if t.depth == maxDepth {
		return t.fail("nested too deeply")
	}
	t.depth++
	t.out = append(t.out, open)
	for i := range n {
		if i > 0 {
			t.out = append(t.out, ',')
		}
		if err := item(); err != nil {
			return err
		}
	}
	t.depth--
	t.out = append(t.out, end)
	return nil
}

// member writes a member of an object: its name, then its value.
func (t *transcoder) member() error {
	major, n, err := t.head()
	if err != nil {
		return err
	}
	if major != cborText {
		return t.fail("a name that is not text")
	}
	if err := t.text(n); err != nil {
		return err
	}
	t.out = append(t.out, ':')
	return t.value()
}
