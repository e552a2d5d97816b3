package httpapi

import (
	"encoding/binary"
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

// Bytes of CBOR that stand for themselves.
const (
	cborFalse = 0xf4
	cborTrue  = 0xf5
	cborNull  = 0xf6
)

// maxCBORDepth is how deeply the arrays and maps of a body may nest, as in JSON.
const maxCBORDepth = 32

// Reasons that a member is wrong.
const (
	wantMore = "ends too early"
	wantText = "must be a string"
)

// transcoder writes CBOR (RFC 8949) as JSON: maps with text keys, arrays, text and whole numbers, all of a definite length. Numbers
// may be longer than they need be; tags and all else are refused. No room is made by what a length says, only by what is there.
type transcoder struct {
	left, out []byte
	path      []step // where it is
}

// step is a member of an object, or an element of a list.
type step struct {
	name  []byte // nil: an element
	index uint64
}

// FromCBOR gives body as JSON. What it refuses is a *BodyError that names the member.
func FromCBOR(body []byte) ([]byte, error) {
	t := transcoder{left: body, out: make([]byte, 0, 2*len(body))}
	if err := t.value(); err != nil {
		return nil, err
	}
	if len(t.left) > 0 {
		return nil, BadBody("", "must be one value, with nothing behind it")
	}
	return t.out, nil
}

func (t *transcoder) fail(reason string) error {
	path := ""
	for i, s := range t.path {
		if i > 0 {
			path += "."
		}
		if s.name == nil {
			s.name = strconv.AppendUint(nil, s.index, 10)
		}
		path += Clip(string(s.name))
	}
	return BadBody(path, reason)
}

// head reads the first bytes of an item: its major type, and its number or how long it is.
func (t *transcoder) head() (major byte, n uint64, err error) {
	if len(t.left) == 0 {
		return 0, 0, t.fail(wantMore)
	}
	first := t.left[0]
	major, n = first>>5, uint64(first&31)
	size := 0
	switch {
	case major == cborTag:
		return 0, 0, t.fail("must not be tagged")
	case major == cborOther && first != cborFalse && first != cborTrue && first != cborNull:
		return 0, 0, t.fail("must be no float and no simple value")
	case n == 31:
		return 0, 0, t.fail("must have its length told ahead")
	case n > 27:
		return 0, 0, t.fail("is not valid CBOR")
	case n >= 24:
		size = 1 << (n - 24)
	}
	if len(t.left) < 1+size {
		return 0, 0, t.fail(wantMore)
	}
	if size > 0 {
		var wide [8]byte
		copy(wide[8-size:], t.left[1:1+size])
		n = binary.BigEndian.Uint64(wide[:])
	}
	t.left = t.left[1+size:]
	return major, n, nil
}

func (t *transcoder) value() error {
	major, n, err := t.head()
	switch {
	case err != nil:
		return err
	case len(t.path) >= maxCBORDepth && (major == cborArray || major == cborMap):
		return t.fail("is nested too deeply")
	}
	switch major {
	case cborUint:
		t.out = strconv.AppendUint(t.out, n, 10)
	case cborNegative:
		if n == math.MaxUint64 {
			return t.fail("is too small")
		}
		t.out = strconv.AppendUint(append(t.out, '-'), n+1, 10)
	case cborBytes:
		return t.fail(wantText)
	case cborText:
		_, err = t.text(n)
	case cborArray:
		err = t.list(n)
	case cborMap:
		err = t.object(n)
	case cborOther:
		t.out = append(t.out, [...]string{"false", "true", "null"}[n-cborFalse&31]...)
	}
	return err
}

// text writes the next n bytes as a string.
func (t *transcoder) text(n uint64) ([]byte, error) {
	if n > uint64(len(t.left)) {
		return nil, t.fail(wantMore)
	}
	v := t.left[:n]
	t.left = t.left[n:]
	var err error
	if t.out, err = jsontext.AppendQuote(t.out, v); err != nil {
		return nil, t.fail("is not valid UTF-8")
	}
	return v, nil
}

func (t *transcoder) list(n uint64) error {
	t.out = append(t.out, '[')
	for i := range n {
		if i > 0 {
			t.out = append(t.out, ',')
		}
		t.path = append(t.path, step{index: i})
		if err := t.value(); err != nil {
			return err
		}
		t.path = t.path[:len(t.path)-1]
	}
	t.out = append(t.out, ']')
	return nil
}

func (t *transcoder) object(n uint64) error {
	t.out = append(t.out, '{')
	for i := range n {
		if i > 0 {
			t.out = append(t.out, ',')
		}
		major, n, err := t.head()
		if err == nil && major != cborText {
			err = t.fail(wantText)
		}
		if err != nil {
			return err
		}
		name, err := t.text(n)
		if err != nil {
			return err
		}
		t.out = append(t.out, ':')
		t.path = append(t.path, step{name: name})
		if err := t.value(); err != nil {
			return err
		}
		t.path = t.path[:len(t.path)-1]
	}
	t.out = append(t.out, '}')
	return nil
}
