package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/fxamacker/cbor/v2"
)

// Key turns a K into bytes whose order is the order of the table, and back.
type Key[K any] struct {
	Append func(dst []byte, k K) []byte
	Decode func(b []byte) (K, error) // must copy what it keeps
}

// Value turns a V into bytes and back.
type Value[V any] struct {
	Encode func(v V) ([]byte, error)
	Decode func(b []byte) (V, error) // must copy what it keeps
}

// U64 orders numbers by value: 8 bytes, big-endian.
func U64() Key[uint64] {
	return Key[uint64]{
		Append: binary.BigEndian.AppendUint64,
		Decode: func(b []byte) (uint64, error) {
			if len(b) != 8 {
				return 0, fmt.Errorf("a u64 key has 8 bytes, not %d", len(b))
			}
			return binary.BigEndian.Uint64(b), nil
		},
	}
}

// U32 orders numbers by value: 4 bytes, big-endian.
func U32() Key[uint32] {
	return Key[uint32]{
		Append: binary.BigEndian.AppendUint32,
		Decode: func(b []byte) (uint32, error) {
			if len(b) != 4 {
				return 0, fmt.Errorf("a u32 key has 4 bytes, not %d", len(b))
			}
			return binary.BigEndian.Uint32(b), nil
		},
	}
}

// Bytes are their own key.
func Bytes() Key[[]byte] {
	return Key[[]byte]{
		Append: func(dst, k []byte) []byte { return append(dst, k...) },
		Decode: func(b []byte) ([]byte, error) { return append([]byte{}, b...), nil },
	}
}

// String keys are ordered bytewise.
func String[S ~string]() Key[S] {
	return Key[S]{
		Append: func(dst []byte, k S) []byte { return append(dst, k...) },
		Decode: func(b []byte) (S, error) { return S(b), nil },
	}
}

// Array32 is a key of 32 bytes, such as a digest.
func Array32[D ~[32]byte]() Key[D] {
	return Key[D]{
		Append: func(dst []byte, k D) []byte { return append(dst, k[:]...) },
		Decode: func(b []byte) (k D, err error) {
			if len(b) != len(k) {
				return k, fmt.Errorf("a key of %d bytes has %d", len(k), len(b))
			}
			return D(b), nil
		},
	}
}

// Raw values are stored as they are: what is hashed, signed or served.
func Raw() Value[[]byte] {
	return Value[[]byte]{
		Encode: func(v []byte) ([]byte, error) { return v, nil },
		Decode: func(b []byte) ([]byte, error) { return append([]byte{}, b...), nil },
	}
}

// None is the value of a table that is a set.
func None() Value[struct{}] {
	return Value[struct{}]{
		Encode: func(struct{}) ([]byte, error) { return []byte{}, nil },
		Decode: func([]byte) (struct{}, error) { return struct{}{}, nil },
	}
}

// The first byte of every CBOR value.
const (
	cborVersion = 1
	cborSummed  = 2 // a checksum is behind it
)

var errVersion = errors.New("value has an unknown version byte")

// CBOR writes a version byte and deterministic CBOR; reading refuses duplicate and unknown members, tags and indefinite lengths.
func CBOR[V any]() Value[V] {
	return Value[V]{
		Encode: func(v V) ([]byte, error) { return encodeCBOR(v) },
		Decode: func(b []byte) (v V, err error) {
			err = decodeCBOR(b, &v)
			return v, err
		},
	}
}

type cborModes struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// modes are made once, on first use; they are immutable.
var modes = sync.OnceValue(func() cborModes {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, MaxArrayElements: 1 << 20, MaxMapPairs: 1 << 20,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return cborModes{enc, dec}
})

func encodeCBOR(v any) ([]byte, error) {
	b, err := modes().enc.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 1+len(b))
	out[0] = cborVersion
	copy(out[1:], b)
	return out, nil
}

func decodeCBOR(b []byte, v any) error {
	if len(b) == 0 || b[0] != cborVersion {
		return errVersion
	}
	return modes().dec.Unmarshal(b[1:], v)
}

// encodeSummed is encodeCBOR with the checksum behind it.
func encodeSummed(key []byte, v any) ([]byte, error) {
	b, err := encodeCBOR(v)
	if err != nil {
		return nil, err
	}
	return sealCBOR(key, b), nil
}

// decodeSummed reads what encodeSummed or, in older files, encodeCBOR wrote.
func decodeSummed(key, row []byte, v any) error {
	b, err := openCBOR(key, row)
	if err != nil {
		return err
	}
	return decodeCBOR(b, v)
}

// sealCBOR puts a checksum behind a CBOR value, which is changed, and says so in its version.
func sealCBOR(key, value []byte) (row []byte) {
	value[0] = cborSummed
	return AddSum(key, value)
}

// openCBOR is the value of a row that sealCBOR made. A row of an older file is its own value.
func openCBOR(key, row []byte) (value []byte, err error) {
	if len(row) == 0 || row[0] != cborSummed {
		return row, nil
	}
	if value, err = CutSum(key, row); err != nil {
		return nil, err
	}
	value = bytes.Clone(value)
	value[0] = cborVersion
	return value, nil
}
