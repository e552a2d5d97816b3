package tables

import (
	"encoding/binary"
	"errors"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// FollowRow is the row "followed" of reg/meta. It marks a copy of the log of another node, without
// that node's audit chain.
type FollowRow struct {
	Genesis b3.Digest `cbor:"1,keyasint"`
}

// faultRow is the row "follow_fault" of reg/meta: a fault of the hub is not forgotten by a restart.
type faultRow struct {
	State  string `cbor:"1,keyasint"`
	Detail string `cbor:"2,keyasint"`
}

// KeyOf returns the digest under which the approvals of a signer are stored.
func KeyOf(s record.Signer) b3.Digest { return b3.Sum(s.Key()) }

// RowError returns the error of a row that does not decode.
func RowError(b *store.Bucket, key []byte, cause error) error {
	return &store.RowError{Bucket: b.Name, Key: append([]byte{}, key...), Cause: cause}
}

// CheckExpiry compares the id and the expiry of a proposal with their second copy in reg/prop_exp:
// nothing else in the row depends on them.
func CheckExpiry(r store.Reader, id ulid.ULID, row PropRow) error {
	if r.Get(PropExpiryBucket, ExpiryKeys().Append(nil, Expiry{uint64(row.ExpiresMS), id})) == nil {
		return errors.New("reg/prop_exp does not name it")
	}
	return nil
}

// RowFits reports whether the row of a proposal describes its payload.
func RowFits(row PropRow, p *record.Payload) bool {
	return p.B3() == row.PayloadB3 && p.Version == row.Version && p.PrevHash == row.PrevHash &&
		int64(len(p.Bytes())) == row.Bytes
}

// SetHeader is the first row of a stored set. It is written with the last chunk: a set without it
// does not exist.
type SetHeader struct {
	Count  int    `cbor:"1,keyasint"`
	Root   string `cbor:"2,keyasint"`
	Chunks int    `cbor:"3,keyasint"`
	Bytes  int64  `cbor:"4,keyasint"` // stored bytes of all chunks
}

// SetKey orders the rows of stored sets: the version, then 0 for the header and 1… for the chunks.
type SetKey struct {
	Version uint64 `cbor:"1,keyasint"`
	Part    uint16 `cbor:"2,keyasint"`
}

func setKeys() store.Key[SetKey] {
	return sized(10,
		func(dst []byte, k SetKey) []byte {
			return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint64(dst, k.Version), k.Part)
		},
		func(b []byte) SetKey { return SetKey{binary.BigEndian.Uint64(b), binary.BigEndian.Uint16(b[8:])} })
}

// TreeRow is the row "tree" of reg/meta. Size is the number of entries that the tiles cover, which
// is the version of HEAD. Bytes counts the stored bytes of entries and payloads.
type TreeRow struct {
	Size  uint64 `cbor:"1,keyasint"`
	Bytes int64  `cbor:"2,keyasint"`
}

func tileKeys() store.Key[logtree.At] {
	return sized(9,
		func(dst []byte, at logtree.At) []byte {
			return binary.BigEndian.AppendUint64(append(dst, at.Level), at.N)
		},
		func(b []byte) logtree.At { return logtree.At{Level: b[0], N: binary.BigEndian.Uint64(b[1:])} })
}

// VerifyMark is a row of reg/meta with the progress of a pass.
type VerifyMark struct {
	Size    uint64 `cbor:"1,keyasint"` // of the archived checkpoint that the pass has reached
	BegunMS int64  `cbor:"2,keyasint"` // when the pass began at genesis
}
