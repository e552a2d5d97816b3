package httpapi

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// jsonReader is a bodyReader over JSON. Text that is not UTF-8 is the decoder's to refuse.
type jsonReader struct {
	dec *jsontext.Decoder
	buf []byte // of text with escapes
}

func newJSONReader(body []byte) *jsonReader {
	return &jsonReader{dec: jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))}
}

func (r *jsonReader) fail(name, reason string) error {
	return &BodyError{joinPath(dotted(r.dec.StackPointer()), name), reason}
}

func joinPath(path, name string) string {
	if path == "" || name == "" {
		return path + name
	}
	return path + "." + name
}

// open reads the token that begins an object or a list.
func (r *jsonReader) open(kind jsontext.Kind, want string) error {
	tok, err := r.dec.ReadToken()
	if err != nil {
		return r.broken(err)
	}
	if tok.Kind() != kind {
		return r.wrong(tok.Kind(), want)
	}
	return nil
}

// wrong says what stands where something else belongs.
func (r *jsonReader) wrong(have jsontext.Kind, want string) error {
	if have == 'n' {
		want = "must not be null"
	}
	return r.fail("", want)
}

// broken tells of bytes that are no JSON.
func (r *jsonReader) broken(err error) error {
	if r.dec.InputOffset() == 0 && len(bytes.TrimSpace(r.dec.UnreadBuffer())) == 0 {
		return &BodyError{"", "is empty"}
	}
	return bodyError(err)
}

func (r *jsonReader) object(each func(name []byte) error) error {
	if err := r.open('{', wantObject); err != nil {
		return err
	}
	for r.dec.PeekKind() != '}' {
		name, err := r.value('"', wantText)
		if err != nil {
			return err
		}
		if err := each(r.unquote(name)); err != nil {
			return err
		}
	}
	return r.shut()
}

func (r *jsonReader) list(each func(i int) error) error {
	if err := r.open('[', wantList); err != nil {
		return err
	}
	for i := 0; r.dec.PeekKind() != ']'; i++ {
		if err := each(i); err != nil {
			return err
		}
	}
	return r.shut()
}

// shut reads the token that ends an object or a list.
func (r *jsonReader) shut() error {
	if _, err := r.dec.ReadToken(); err != nil {
		return r.broken(err)
	}
	return nil
}

// value reads a whole value of one kind.
func (r *jsonReader) value(kind jsontext.Kind, want string) (jsontext.Value, error) {
	v, err := r.dec.ReadValue()
	if err != nil {
		return nil, r.broken(err)
	}
	if v.Kind() != kind {
		return nil, r.wrong(v.Kind(), want)
	}
	return v, nil
}

// unquote gives the text of a string that the decoder has found to be one.
func (r *jsonReader) unquote(v jsontext.Value) []byte {
	if bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	r.buf, _ = jsontext.AppendUnquote(r.buf[:0], v)
	return r.buf
}

func (r *jsonReader) text() ([]byte, error) {
	v, err := r.value('"', wantText)
	if err != nil {
		return nil, err
	}
	return r.unquote(v), nil
}

func (r *jsonReader) number() (uint64, error) {
	v, err := r.value('0', wantNumber)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(string(v), 10, 64) // no sign, point or exponent
	if err != nil {
		return 0, r.fail("", wantNumber)
	}
	return n, nil
}

func (r *jsonReader) end() error {
	if _, err := r.dec.ReadToken(); !errors.Is(err, io.EOF) {
		return &BodyError{"", wantOne}
	}
	return nil
}
