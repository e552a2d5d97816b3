package record

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"ronbox/appliance/b3"
)

// BatchSize is the length of a batch header's byte form.
const BatchSize = batchBody + crcSize

// batchBody is the size of the bytes that a batch's root covers: version 1, three zero bytes, 8
// bytes each for number, first seq, count and time, then two digests.
const batchBody = 4 + 4*8 + 2*b3.Size

// batchRoots is what sets a batch's root apart from every other digest.
var batchRoots = b3.Derive("ronbox ledger batch v1")

var errBatch = errors.New("number, first seq and count must be from 1 on, the time not negative")

// Batch is the header of a batch: the records of one command, chained to the batch before. Prev of
// the first batch is the zero Digest.
type Batch struct {
	No     uint64    // from 1 on
	First  uint64    // Seq of its first record
	Count  uint64    // how many records, at least one
	At     int64     // the ledger's time in ns since 1970
	Merkle b3.Digest // merkle.Root of the leaves of its records
	Prev   b3.Digest // Root of the batch before
}

// Last is the Seq of b's last record.
func (b *Batch) Last() uint64 { return b.First + b.Count - 1 }

// Append appends the 104 bytes of b.
func (b *Batch) Append(dst []byte) []byte {
	start := len(dst)
	dst = b.appendBody(dst)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// appendBody appends the bytes of b that its root covers.
func (b *Batch) appendBody(dst []byte) []byte {
	le := binary.LittleEndian
	dst = le.AppendUint32(dst, version1)
	dst = le.AppendUint64(dst, b.No)
	dst = le.AppendUint64(dst, b.First)
	dst = le.AppendUint64(dst, b.Count)
	dst = le.AppendUint64(dst, uint64(b.At))
	dst = append(dst, b.Merkle[:]...)
	return append(dst, b.Prev[:]...)
}

// Root is the digest that stands for b and, through Prev, for all before it.
func (b *Batch) Root() b3.Digest {
	var body [batchBody]byte
	return batchRoots.Sum(b.appendBody(body[:0]))
}

// DecodeBatch reads what Append wrote, with a *FormatError for anything else.
func DecodeBatch(raw []byte) (Batch, error) {
	b, err := decodeBatch(raw)
	if err != nil {
		return Batch{}, &FormatError{"batch header", err}
	}
	return b, nil
}

func decodeBatch(raw []byte) (Batch, error) {
	body, err := sealed(raw, batchBody, BatchSize, version1)
	if err != nil {
		return Batch{}, err
	}
	le := binary.LittleEndian
	if le.Uint32(body) != version1 {
		return Batch{}, errVersion
	}
	b := Batch{
		No:    le.Uint64(body[4:]),
		First: le.Uint64(body[12:]),
		Count: le.Uint64(body[20:]),
		At:    int64(le.Uint64(body[28:])),
	}
	copy(b.Merkle[:], body[36:])
	copy(b.Prev[:], body[68:])
	if b.No == 0 || b.First == 0 || b.Count == 0 || b.Count > ^uint64(0)-b.First || b.At < 0 {
		return Batch{}, errBatch
	}
	return b, nil
}

// Head is where a ledger stands. The zero Head is that of an empty one.
type Head struct {
	Batches  uint64    `json:"batches"`   // the size of the log of batch roots
	Root     b3.Digest `json:"log_root"`  // of the log
	LastRoot b3.Digest `json:"last_root"` // of the last batch
	Seq      uint64    `json:"seq"`       // of the last record
}

// Log is the part of h that a consistency proof speaks of.
func (h Head) Log() LogHead { return LogHead{Batches: h.Batches, Root: h.Root} }

// LogHead is the log of batch roots at one size.
type LogHead struct {
	Batches uint64    `json:"batches"`
	Root    b3.Digest `json:"log_root"`
}
