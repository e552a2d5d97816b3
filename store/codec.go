package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/fxamacker/cbor/v2"

	"ronbox/appliance/b3"
)

// Key encodes and decodes a K. The byte order of the encoded keys is the order of the table.
type Key[K any] struct {
	Append func(dst []byte, k K) []byte
	Decode func(b []byte) (K, error) // must copy what it keeps
}

// Value encodes and decodes a V.
type Value[V any] struct {
	Encode func(v V) ([]byte, error)
	Decode func(b []byte) (V, error) // must copy what it keeps
}

// U64 is the key of numbers: 8 bytes, big-endian.
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

// U32 is the key of numbers: 4 bytes, big-endian.
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

// Bytes is the key of byte slices.
func Bytes() Key[[]byte] {
	return Key[[]byte]{
		Append: func(dst, k []byte) []byte { return append(dst, k...) },
		Decode: func(b []byte) ([]byte, error) { return append([]byte{}, b...), nil },
	}
}

// String is the key of strings, ordered by bytes.
func String[S ~string]() Key[S] {
	return Key[S]{
		Append: func(dst []byte, k S) []byte { return append(dst, k...) },
		Decode: func(b []byte) (S, error) { return S(b), nil },
	}
}

// Array32 is the key of 32-byte arrays, such as digests.
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

// Raw stores bytes unchanged, for data that is hashed, signed or served.
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

// Version byte of a CBOR value.
const (
	cborVersion = 1
	cborSummed  = 2 // a checksum follows the value
)

var errVersion = errors.New("value has an unknown version byte")

// CBOR writes a version byte and deterministic CBOR. Decoding rejects duplicate and unknown
// members, tags and indefinite lengths.
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

// modes returns the CBOR modes, which are created on first use and immutable.
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

// encodeSummed is encodeCBOR followed by a checksum.
func encodeSummed(key []byte, v any) ([]byte, error) {
	b, err := encodeCBOR(v)
	if err != nil {
		return nil, err
	}
	return sealCBOR(key, b), nil
}

// decodeSummed decodes a row of encodeSummed or, in older files, of encodeCBOR.
func decodeSummed(key, row []byte, v any) error {
	b, err := openCBOR(key, row)
	if err != nil {
		return err
	}
	return decodeCBOR(b, v)
}

// sealCBOR sets the version byte of a CBOR value in place and appends a checksum.
func sealCBOR(key, value []byte) (row []byte) {
	value[0] = cborSummed
	return AddSum(key, value)
}

// openCBOR returns the value of a row of sealCBOR. A row of an older file is returned unchanged.
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

// SumSize is the size in bytes of the checksum that a Summed table appends to a value. A codec that
// reserves this capacity avoids a copy.
const SumSize = 4

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errSum   = errors.New("the checksum does not match")
	errOrder = errors.New("rows are out of order")
)

// sum returns the CRC-32C of a key and a value. It covers the key, so that a row in the wrong place
// is detected.
func sum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}

// AddSum appends the checksum to a value. It is for code that writes a row of a Summed table
// without the table.
func AddSum(key, value []byte) (row []byte) {
	return binary.LittleEndian.AppendUint32(value, sum(key, value))
}

// CutSum checks and removes the checksum of a row of a Summed table. It is for code that reads a
// row without the table.
func CutSum(key, row []byte) (value []byte, err error) {
	n := len(row) - SumSize
	if n < 0 || binary.LittleEndian.Uint32(row[n:]) != sum(key, row[:n]) {
		return nil, errSum
	}
	return row[:n:n], nil
}

// StateHash returns the BLAKE3 hash over every row of the truth buckets among the given ones, in
// byte order. Each row contributes bucket name, key and value, each preceded by its length (u32,
// big-endian); the name of a sub-bucket is the name of its bucket, a NUL, and its own name. The
// hash does not depend on the grouping of commands or on the layout of pages, and does not cover
// meta, auth and audit.
func StateHash(r Reader, buckets []*Bucket) b3.Digest {
	h := rowHasher{h: b3.New()}
	for _, b := range truth(buckets) {
		for leaf := range leaves(r, b) {
			name := leaf.full()
			for k, v := range r.Range(leaf, nil, nil) {
				h.row(name, k, v)
			}
		}
	}
	h.flush()
	return h.h.Sum32()
}

// rowHasher buffers small rows, because BLAKE3 is fast only for large writes.
type rowHasher struct {
	h   *b3.Hasher
	buf []byte
}

func (h *rowHasher) row(bucket string, k, v []byte) {
	h.buf = binary.BigEndian.AppendUint32(h.buf, uint32(len(bucket)))
	h.buf = append(h.buf, bucket...)
	h.buf = binary.BigEndian.AppendUint32(h.buf, uint32(len(k)))
	h.buf = append(h.buf, k...)
	h.buf = binary.BigEndian.AppendUint32(h.buf, uint32(len(v)))
	h.buf = append(h.buf, v...)
	if len(h.buf) >= 64<<10 {
		h.flush()
	}
}

func (h *rowHasher) flush() {
	_, _ = h.h.Write(h.buf) // never fails
	h.buf = h.buf[:0]
}
