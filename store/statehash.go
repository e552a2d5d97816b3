package store

import (
	"encoding/binary"

	"ronbox/appliance/b3"
)

// StateHash is BLAKE3 over bucket name, key and value, each behind its length (u32, big-endian), of every row of the truth buckets among
// those given, in byte order; the name of a sub-bucket is that of its bucket, a NUL, and its own. It does not depend on how commands were
// grouped, nor on pages; meta, auth and audit stay out.
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

// rowHasher collects small rows, since BLAKE3 is fast on large writes only.
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
