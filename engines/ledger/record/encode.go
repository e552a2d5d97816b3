package record

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Append appends r in its version, at most MaxRecord bytes. It allocates nothing but what dst lacks, and panics on a record that Decode
// would refuse, since one in the journal would close the ledger: callers check keys, memos and names before.
func (r *Record) Append(dst []byte) []byte {
	if err := r.check(); err != nil {
		panic("record: not to be written: " + err.Error())
	}
	start := len(dst)
	dst = r.appendHead(dst)
	dst = r.appendParts(dst)
	dst = append(dst, r.Idem...)
	dst = append(dst, r.Memo...)
	for i := range r.Images {
		m := &r.Images[i]
		dst = binary.LittleEndian.AppendUint64(dst, m.Account)
		dst = m.State.appendSums(dst)
		dst = binary.LittleEndian.AppendUint64(dst, m.Prev)
	}
	dst = binary.LittleEndian.AppendUint32(dst, checksum(dst[start:]))
	if n := len(dst) - start; n > MaxRecord {
		panic("record: not to be written: longer than a record may be")
	}
	return dst
}

func (r *Record) appendHead(dst []byte) []byte {
	var h [headSize]byte
	le := binary.LittleEndian
	if h[0] = version1; r.Named {
		h[0] = version2
	}
	h[offOp] = byte(r.Op)
	le.PutUint16(h[offFlags:], r.Flags)
	le.PutUint16(h[offParts:], r.parts())
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
	return append(dst, h[:]...)
}

// parts says which parts r has: those that are not zero.
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

func (r *Record) appendParts(dst []byte) []byte {
	le, bits := binary.LittleEndian, r.parts()
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

func checksum(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }
