package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"ronbox/engines"
)

// A record, little-endian: a head of fixed length, the parts that the head's bits name in the order
// of the bits, the texts, the images, and a CRC-32C of all before it.
//
//	 0  version     1  2 for records with Named, else 1
//	 1  op          1
//	 2  flags       2
//	 4  parts       2  bits below
//	 6  rand        2
//	 8  seq         8
//	16  batch       8
//	24  at          8
//	32  asset       4
//	36  images      1  how many
//	37  idem        1  its length
//	38  memo        1  its length
//	39  account     1  flags to set, flags to clear << 4
//	40  amount     16
//	56  from        8
//	64  to          8
//	72  nonce       8
//	80  parts, idem, memo, images, CRC-32C
const (
	version1 = 1
	version2 = 2

	headSize  = 80
	crcSize   = 4
	imageSize = 8 + sumsSize + 8 // ref, sums, previous seq: 100

	offOp, offFlags, offParts, offRand       = 1, 2, 4, 6
	offSeq, offBatch, offAt, offAsset        = 8, 16, 24, 32
	offImages, offIdem, offMemo, offSetClear = 36, 37, 38, 39
	offAmount, offFrom, offTo, offNonce      = 40, 56, 64, 72
)

// Bits of parts, and what each stands for.
const (
	partWho     uint16 = 1 << iota // principal 8, cap id 8
	partDedupe                     // kind 1, key 16, fingerprint 32
	partGuard                      // key 16, owner 16
	partHold                       // 8
	partExpires                    // 8
	partResults                    // part 2, parts 2, length 2, results
	partName                       // length 2, name

	allParts = partWho | partDedupe | partGuard | partHold | partExpires | partResults | partName
)

const (
	whoSize    = 16
	dedupeSize = 1 + 16 + 32
	guardSize  = 32
	lengthSize = 2
)

// worstPlain is the longest record that has neither a name nor results; see MaxMemo.
const worstPlain = headSize + whoSize + dedupeSize + guardSize + 8 + 8 + MaxIdem + MaxMemo + MaxImages*imageSize +
	crcSize

// worstBatch is the longest record of a batch: it has no guard, hold, memo or image.
const worstBatch = headSize + whoSize + dedupeSize + 3*lengthSize + MaxResults + MaxIdem + crcSize

// Both fit into MaxRecord, or this does not compile.
var _ [MaxRecord - worstPlain]struct{}
var _ [MaxRecord - worstBatch]struct{}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append appends r in its version, at most MaxRecord bytes. It allocates only to grow dst. It
// panics on a record that Decode would refuse, because such a record would keep the ledger from
// starting: callers check keys, memos and names before.
func (r *Record) Append(dst []byte) []byte {
	if err := r.check(); err != nil {
		panic("record: not to be written: " + err.Error())
	}
	le, start, bits := binary.LittleEndian, len(dst), r.parts()
	var h [headSize]byte
	if h[0] = version1; r.Named {
		h[0] = version2
	}
	h[offOp] = byte(r.Op)
	le.PutUint16(h[offFlags:], r.Flags)
	le.PutUint16(h[offParts:], bits)
	le.PutUint16(h[offRand:], r.Rand)
	le.PutUint64(h[offSeq:], r.Seq)
	le.PutUint64(h[offBatch:], r.Batch)
	le.PutUint64(h[offAt:], uint64(r.At))
	le.PutUint32(h[offAsset:], r.Asset)
	h[offImages] = byte(len(r.Images))
	h[offIdem] = byte(len(r.Idem))
	h[offMemo] = byte(len(r.Memo))
	h[offSetClear] = byte(r.Set) | byte(r.Clear)<<4
	hi, lo := r.Amount.Parts()
	le.PutUint64(h[offAmount:], lo)
	le.PutUint64(h[offAmount+8:], hi)
	le.PutUint64(h[offFrom:], r.From)
	le.PutUint64(h[offTo:], r.To)
	le.PutUint64(h[offNonce:], r.Nonce)
	dst = append(dst, h[:]...)
	dst = r.appendParts(dst, bits)
	dst = append(dst, r.Idem...)
	dst = append(dst, r.Memo...)
	for i := range r.Images {
		m := &r.Images[i]
		dst = le.AppendUint64(dst, m.Account)
		dst = m.State.appendSums(dst)
		dst = le.AppendUint64(dst, m.Prev)
	}
	dst = le.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
	if n := len(dst) - start; n > MaxRecord {
		panic("record: not to be written: longer than a record may be")
	}
	return dst
}

// parts returns the bits of the parts that are not zero.
func (r *Record) parts() (bits uint16) {
	if r.Principal != [8]byte{} || r.CapID != [8]byte{} {
		bits |= partWho
	}
	if r.Dedupe.Kind != DedupeNone {
		bits |= partDedupe
	}
	if r.Guard != (Guard{}) {
		bits |= partGuard
	}
	if r.Hold != 0 {
		bits |= partHold
	}
	if r.Expires != 0 {
		bits |= partExpires
	}
	if len(r.Results) != 0 {
		bits |= partResults
	}
	if r.Name != "" {
		bits |= partName
	}
	return bits
}

// appendParts appends the parts that bits name, in the order of the bits.
func (r *Record) appendParts(dst []byte, bits uint16) []byte {
	le := binary.LittleEndian
	if bits&partWho != 0 {
		dst = append(append(dst, r.Principal[:]...), r.CapID[:]...)
	}
	if bits&partDedupe != 0 {
		dst = append(append(append(dst, r.Dedupe.Kind), r.Dedupe.Key[:]...), r.Dedupe.Fingerprint[:]...)
	}
	if bits&partGuard != 0 {
		dst = append(append(dst, r.Guard.Key[:]...), r.Guard.Owner[:]...)
	}
	if bits&partHold != 0 {
		dst = le.AppendUint64(dst, r.Hold)
	}
	if bits&partExpires != 0 {
		dst = le.AppendUint64(dst, uint64(r.Expires))
	}
	if bits&partResults != 0 {
		dst = le.AppendUint16(le.AppendUint16(dst, r.Part), r.Parts)
		dst = append(le.AppendUint16(dst, uint16(len(r.Results))), r.Results...)
	}
	if bits&partName != 0 {
		dst = append(le.AppendUint16(dst, uint16(len(r.Name))), r.Name...)
	}
	return dst
}

// FormatError is returned for bytes that are not in the expected format. Their container is
// damaged.
type FormatError struct {
	What   string // "record", "batch header", ...
	Reason error
}

func (e *FormatError) Error() string { return fmt.Sprintf("not a %s: %v", e.What, e.Reason) }

// Unwrap is the reason.
func (e *FormatError) Unwrap() error { return e.Reason }

var (
	errLength  = errors.New("wrong length")
	errVersion = errors.New("unknown version: written by a newer program, or no such thing at all")
	errCRC     = errors.New("the checksum does not match")
	errParts   = errors.New("an unknown part, or an empty one")
)

// Decode reads the bytes that Append wrote. It returns a *FormatError for any others, and does not
// keep b.
func Decode(b []byte) (Record, error) {
	var r Record
	err := r.Decode(b)
	return r, err
}

// Decode is the function Decode into r. It reuses the memory of r's Images and Results, so that a
// walk over many records allocates only their texts. After an error r is of no use but for another
// Decode.
func (r *Record) Decode(b []byte) error {
	if err := r.decode(b); err != nil {
		return &FormatError{"record", err}
	}
	return nil
}

func (r *Record) decode(b []byte) error {
	body, err := sealed(b, headSize, MaxRecord, version2)
	if err != nil {
		return err
	}
	*r = Record{Images: r.Images[:0], Results: r.Results[:0]}
	bits := r.readHead(body)
	rest := cut{b: body[headSize:]}
	if bits&^allParts != 0 {
		return errParts
	}
	r.readParts(&rest, bits)
	r.Idem = string(rest.take(int(body[offIdem])))
	r.Memo = string(rest.take(int(body[offMemo])))
	if err := r.readImages(&rest, int(body[offImages])); err != nil {
		return err
	}
	switch {
	case rest.short || len(rest.b) != 0:
		return errLength
	case r.parts() != bits:
		return errParts
	}
	return r.check()
}

// sealed judges length, version and checksum of b, and returns it without the checksum. The
// versions are those from 1 to newest.
func sealed(b []byte, least, most int, newest byte) ([]byte, error) {
	if len(b) < least+crcSize || len(b) > most {
		return nil, errLength
	}
	if b[0] < version1 || b[0] > newest {
		return nil, errVersion
	}
	body := b[:len(b)-crcSize]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[len(body):]) {
		return nil, errCRC
	}
	return body, nil
}

func (r *Record) readHead(b []byte) (bits uint16) {
	le := binary.LittleEndian
	_ = b[headSize-1]
	r.Named = b[0] == version2
	r.Op = Op(b[offOp])
	r.Flags = le.Uint16(b[offFlags:])
	r.Rand = le.Uint16(b[offRand:])
	r.Seq = le.Uint64(b[offSeq:])
	r.Batch = le.Uint64(b[offBatch:])
	r.At = int64(le.Uint64(b[offAt:]))
	r.Asset = le.Uint32(b[offAsset:])
	r.Set, r.Clear = Flags(b[offSetClear]&15), Flags(b[offSetClear]>>4)
	r.Amount = engines.AmountLE(b[offAmount:])
	r.From = le.Uint64(b[offFrom:])
	r.To = le.Uint64(b[offTo:])
	r.Nonce = le.Uint64(b[offNonce:])
	return le.Uint16(b[offParts:])
}

func (r *Record) readParts(c *cut, bits uint16) {
	if bits&partWho != 0 {
		copy(r.Principal[:], c.take(8))
		copy(r.CapID[:], c.take(8))
	}
	if bits&partDedupe != 0 {
		r.Dedupe.Kind = c.byte()
		copy(r.Dedupe.Key[:], c.take(16))
		copy(r.Dedupe.Fingerprint[:], c.take(32))
	}
	if bits&partGuard != 0 {
		copy(r.Guard.Key[:], c.take(16))
		copy(r.Guard.Owner[:], c.take(16))
	}
	if bits&partHold != 0 {
		r.Hold = c.uint64()
	}
	if bits&partExpires != 0 {
		r.Expires = int64(c.uint64())
	}
	if bits&partResults != 0 {
		r.Part, r.Parts = c.uint16(), c.uint16()
		r.Results = append(r.Results, c.take(int(c.uint16()))...)
	}
	if bits&partName != 0 {
		r.Name = string(c.take(int(c.uint16())))
	}
}

func (r *Record) readImages(c *cut, n int) error {
	if n > MaxImages {
		return errImages
	}
	if cap(r.Images) < n {
		r.Images = make([]Image, 0, n)
	}
	for range n {
		b := c.take(imageSize)
		if b == nil {
			return errLength
		}
		m := Image{
			Account: binary.LittleEndian.Uint64(b),
			Asset:   r.Asset,
			Prev:    binary.LittleEndian.Uint64(b[8+sumsSize:]),
		}
		m.State.readSums(b[8:])
		m.State.LastSeq = r.Seq
		r.Images = append(r.Images, m)
	}
	return nil
}

// cut takes pieces off the front of b. After one that b is too short for, short is set and every
// piece is empty.
type cut struct {
	b     []byte
	short bool
}

// take is the next n bytes, nil if there are fewer.
func (c *cut) take(n int) []byte {
	if n > len(c.b) {
		c.short, c.b = true, nil
		return nil
	}
	head := c.b[:n:n]
	c.b = c.b[n:]
	return head
}

func (c *cut) byte() byte {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cut) uint16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cut) uint64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}
