package httpapi

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// The major types of CBOR that a body holds.
const (
	cborUint  = 0
	cborText  = 3
	cborArray = 4
	cborMap   = 5
	cborTag   = 6
)

// cborReader is a bodyReader over CBOR (RFC 8949): maps with text keys, arrays, text and unsigned numbers, all of a length
// that is told ahead. Numbers may be longer than they need be; tags and all else are refused. No room is made by what a
// length says, only by what is there.
type cborReader struct {
	left []byte
	path []step // where the reader is
}

// step is a member of an object, or an element of a list.
type step struct {
	name  []byte // nil: an element
	index int
}

func (s step) String() string {
	if s.name == nil {
		return strconv.Itoa(s.index)
	}
	return clip(string(s.name))
}

func newCBORReader(body []byte) *cborReader { return &cborReader{left: body} }

func (r *cborReader) fail(name, reason string) error {
	path := ""
	for _, s := range r.path {
		path = joinPath(path, s.String())
	}
	return &BodyError{joinPath(path, name), reason}
}

// head reads the first bytes of an item, which must be of one major type: its number, or how long it is.
func (r *cborReader) head(major byte, want string) (uint64, error) {
	if len(r.left) == 0 {
		return 0, r.fail("", wantMore)
	}
	first := r.left[0]
	switch {
	case first>>5 == cborTag:
		return 0, r.fail("", "must not be tagged")
	case first>>5 != major:
		return 0, r.fail("", want)
	case first&31 == 31:
		return 0, r.fail("", "must have its length told ahead")
	case first&31 > 27:
		return 0, r.fail("", "is not valid CBOR")
	case first&31 < 24:
		r.left = r.left[1:]
		return uint64(first & 31), nil
	}
	return r.argument(1 << (first&31 - 24))
}

// argument reads the size bytes of a number behind the first byte of its item.
func (r *cborReader) argument(size int) (uint64, error) {
	if len(r.left) < 1+size {
		return 0, r.fail("", wantMore)
	}
	var wide [8]byte
	copy(wide[8-size:], r.left[1:1+size])
	r.left = r.left[1+size:]
	return binary.BigEndian.Uint64(wide[:]), nil
}

func (r *cborReader) object(each func(name []byte) error) error {
	n, err := r.head(cborMap, wantObject)
	if err != nil {
		return err
	}
	for range n {
		name, err := r.text()
		if err != nil {
			return err
		}
		r.path = append(r.path, step{name: name})
		if err := each(name); err != nil {
			return err
		}
		r.path = r.path[:len(r.path)-1]
	}
	return nil
}

func (r *cborReader) list(each func(i int) error) error {
	n, err := r.head(cborArray, wantList)
	if err != nil {
		return err
	}
	for i := range n {
		r.path = append(r.path, step{index: int(i)})
		if err := each(int(i)); err != nil {
			return err
		}
		r.path = r.path[:len(r.path)-1]
	}
	return nil
}

func (r *cborReader) text() ([]byte, error) {
	n, err := r.head(cborText, wantText)
	if err != nil {
		return nil, err
	}
	if n > uint64(len(r.left)) {
		return nil, r.fail("", wantMore)
	}
	v := r.left[:n]
	r.left = r.left[n:]
	if !utf8.Valid(v) {
		return nil, r.fail("", "is not valid UTF-8")
	}
	return v, nil
}

func (r *cborReader) number() (uint64, error) { return r.head(cborUint, wantNumber) }

func (r *cborReader) end() error {
	if len(r.left) > 0 {
		return &BodyError{"", wantOne}
	}
	return nil
}
