package tables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/store"
)

var (
	errLength  = errors.New("wrong length")
	errVersion = errors.New("unknown version")
	errNumber  = errors.New("a number is out of its range")
)

// fixed is a value of size bytes behind the version byte. put fills them, get reads them.
func fixed[V any](version byte, size int, put func(b []byte, v *V), get func(b []byte, v *V) error) store.Value[V] {
	return store.Value[V]{
		Encode: func(v V) ([]byte, error) {
			b := make([]byte, 1+size, 1+size+store.SumSize)
			b[0] = version
			put(b[1:], &v)
			return b, nil
		},
		Decode: func(b []byte) (v V, err error) {
			if len(b) != 1+size {
				return v, errLength
			}
			if b[0] != version {
				return v, errVersion
			}
			err = get(b[1:], &v)
			return v, err
		},
	}
}

func u64Value() store.Value[uint64] {
	return fixed(1, 8,
		func(b []byte, v *uint64) { le.PutUint64(b, *v) },
		func(b []byte, v *uint64) error { *v = le.Uint64(b); return nil })
}

func digestValue() store.Value[b3.Digest] {
	return fixed(1, b3.Size,
		func(b []byte, d *b3.Digest) { copy(b, d[:]) },
		func(b []byte, d *b3.Digest) error { copy(d[:], b); return nil })
}

// textValue is a version byte and a text.
func textValue() store.Value[string] {
	return store.Value[string]{
		Encode: func(s string) ([]byte, error) { return append([]byte{1}, s...), nil },
		Decode: func(b []byte) (string, error) {
			if len(b) < 2 {
				return "", errLength
			}
			if b[0] != 1 {
				return "", errVersion
			}
			return string(b[1:]), nil
		},
	}
}

// rawValue keeps bytes as they are; what is read is the reader's own, and dies with it.
func rawValue() store.Value[[]byte] {
	return store.Value[[]byte]{
		Encode: func(b []byte) ([]byte, error) { return b, nil },
		Decode: func(b []byte) ([]byte, error) { return b, nil },
	}
}

var le = binary.LittleEndian

func putAmount(b []byte, a engines.Amount) {
	hi, lo := a.Parts()
	le.PutUint64(b, lo)
	le.PutUint64(b[8:], hi)
}

// missing says that a row is not there that another one leads to.
func missing(b *store.Bucket, key []byte) error {
	return &store.RowError{Bucket: b.Name, Key: key, Cause: errors.New("it is not there")}
}

func wrong(b *store.Bucket, key []byte, format string, args ...any) error {
	return &store.RowError{Bucket: b.Name, Key: key, Cause: fmt.Errorf(format, args...)}
}
