package wallet

import (
	"encoding/binary"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
)

// fingerprints hash what was asked in one canonical form, in which spelling and order do not show and every member does.
type fingerprints struct{ mode *b3.Mode }

func newFingerprints() fingerprints {
	return fingerprints{b3.Derive("ronbox wallet request v1")}
}

// single is the fingerprint of one request.
func (f fingerprints) single(r *Request) b3.Digest {
	var room [512]byte
	return f.mode.Sum(r.canonical(room[:0]))
}

// batch is the fingerprint of requests that come together.
func (f fingerprints) batch(atomic bool, ops []Request) b3.Digest {
	b := make([]byte, 0, 16+128*len(ops))
	b = append(b, byte(record.OpBatch), 0)
	if atomic {
		b[1] = 1
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(ops)))
	for i := range ops {
		b = ops[i].canonical(b)
	}
	return f.mode.Sum(b)
}

// canonical appends r in its one binary form: fixed members first, then the texts, each behind its length.
func (r *Request) canonical(b []byte) []byte {
	set := byte(r.Set)
	if r.New {
		set |= 1 << 7 // no flag's bit
	}
	b = append(b, byte(r.Op), set, byte(r.Clear))
	b = r.Amount.AppendLE(b)
	b = binary.LittleEndian.AppendUint64(b, r.Nonce)
	b = append(b, r.Hold[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.ExpiresIn))
	b = binary.LittleEndian.AppendUint64(b, uint64(validUntil(r)))
	for _, s := range [...]string{r.From, r.To, r.Asset, r.Memo} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	return b
}

// validUntil is the moment in Unix ns, 0 for none.
func validUntil(r *Request) int64 {
	if r.ValidUntil.IsZero() {
		return 0
	}
	return r.ValidUntil.UnixNano()
}
