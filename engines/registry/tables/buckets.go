package tables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// Service is the name of the registry in metrics, logs, probes and the catalogue.
const Service = "registry"

// The buckets of the registry. Integers in keys are big-endian, so that byte order is numeric
// order.
var (
	MetaBucket       = &store.Bucket{Name: "reg/meta"}
	EntryBucket      = &store.Bucket{Name: "reg/entry", Append: true}
	PayloadBucket    = &store.Bucket{Name: "reg/payload", Append: true}
	EpochBucket      = &store.Bucket{Name: "reg/epoch", Append: true}
	PropBucket       = &store.Bucket{Name: "reg/prop"}
	PropExpiryBucket = &store.Bucket{Name: "reg/prop_exp"}
	ApprovalBucket   = &store.Bucket{Name: "reg/appr"}
	DoneBucket       = &store.Bucket{Name: "reg/done"}
	AuditBucket      = &store.Bucket{Name: "reg/audit", Append: true}
	SnapBucket       = &store.Bucket{Name: "reg/snap", Append: true}
	TileBucket       = &store.Bucket{Name: "reg/tile"}
	CheckpointBucket = &store.Bucket{Name: "reg/cp", Append: true}
	RetentionBucket  = &store.Bucket{Name: "reg/ret", Append: true}
)

// Buckets returns the buckets of the registry.
func Buckets() []*store.Bucket {
	return []*store.Bucket{
		MetaBucket, EntryBucket, PayloadBucket, EpochBucket, PropBucket, PropExpiryBucket, ApprovalBucket,
		DoneBucket, AuditBucket, SnapBucket, TileBucket, CheckpointBucket, RetentionBucket,
	}
}

// The tables. Bytes that are hashed, signed or served are stored as they are.
var (
	MetaHead  = store.NewTable(MetaBucket, store.String[string](), store.CBOR[record.Head]()) // "head"
	MetaAudit = store.NewTable(MetaBucket, store.String[string](), store.CBOR[AuditRef]())    // "audit_head"
	// "origin", "genesis", "schema", "cp_latest", "adopted"
	MetaRaw    = store.NewTable(MetaBucket, store.String[string](), store.Raw())
	MetaNumber = store.NewTable(MetaBucket, store.String[string](), U64Value()) // "min_version", "audit_min"

	Entries  = store.NewTable(EntryBucket, store.U64(), store.Raw())
	Payloads = store.NewTable(PayloadBucket, store.U64(), store.Raw()) // codec byte, packed payload
	Epochs   = store.NewTable(EpochBucket, store.U32(), EpochValue())
	Audits   = store.NewTable(AuditBucket, store.U64(), store.Raw())

	props       = store.NewTable(PropBucket, IDKey(), PropValue())
	propExpiry  = store.NewTable(PropExpiryBucket, ExpiryKeys(), store.None())
	approvals   = store.NewTable(ApprovalBucket, ApprovalKeys(), store.Raw()) // canonical approval
	DoneOutcome = store.NewTable(DoneBucket, IDKey(), store.CBOR[DoneRow]())

	// These rows of reg/meta have a checksum of their own, because no other row depends on them.
	MetaAdopted = store.NewTable(MetaBucket, store.String[string](),
		store.Raw()).Summed() // "adopted_in"
	MetaObjections = store.NewTable(MetaBucket, store.String[string](),
		store.CBOR[Objections]()).Summed() // "objections"

	MetaVerified = store.NewTable(MetaBucket, store.String[string](), store.CBOR[VerifyMark]()).Summed() // "verified"

	MetaFollowed    = store.NewTable(MetaBucket, store.String[string](), store.CBOR[FollowRow]()).Summed() // "followed"
	MetaFollowFault = store.NewTable(MetaBucket, store.String[string](),
		store.CBOR[faultRow]()).Summed() // "follow_fault"

	MetaTree    = store.NewTable(MetaBucket, store.String[string](), store.CBOR[TreeRow]()) // "tree"
	tiles       = store.NewTable(TileBucket, tileKeys(), store.Raw())
	Checkpoints = store.NewTable(CheckpointBucket, store.U64(), store.Raw()) // archived notes, by size

	// the statement of retention, by the first version kept whole
	Retentions = store.NewTable(RetentionBucket, store.U64(), store.Raw())

	SetHeaders = store.NewTable(SnapBucket, setKeys(), store.CBOR[SetHeader]()) // part 0
	// packed items; headers are read as raw bytes
	SetChunks = store.NewTable(SnapBucket, setKeys(), store.Raw())
)

// Keys of reg/meta.
const (
	KeyHead      = "head"
	KeyOrigin    = "origin"
	KeyGenesis   = "genesis" // payload_b3 of version 1
	KeyMin       = "min_version"
	KeyAuditMin  = "audit_min" // the oldest audit record kept; absent: 1
	KeyAuditHead = "audit_head"
	keySchema    = "schema"

	KeyTree        = "tree"
	KeyCheckpoint  = "cp_latest"    // the latest note
	KeyAdopted     = "adopted_in"   // incarnation whose log an operator has adopted
	KeyAdoptedOld  = "adopted"      // the same without a checksum, as schema 1 has it
	KeyObjections  = "objections"   // of witnesses; absent: there are none
	KeyVerified    = "verified"     // progress of the deep verifier; absent: none
	KeyFollowed    = "followed"     // the log is a copy of that of another node; absent: it is not
	KeyFollowFault = "follow_fault" // why the hub of a follower is not believed; absent: it is
)

// schemaVersion is the version of the table layout. It is stored at genesis.
const schemaVersion = "1"

var errLength = errors.New("wrong length")

// sized returns the codec of a key of n bytes.
func sized[K any](n int, app func([]byte, K) []byte, decode func([]byte) K) store.Key[K] {
	return store.Key[K]{Append: app, Decode: func(b []byte) (k K, err error) {
		if len(b) != n {
			return k, errLength
		}
		return decode(b), nil
	}}
}

// IDKey returns the codec of a key that is the id of a proposal.
func IDKey() store.Key[ulid.ULID] {
	return sized(16, func(dst []byte, id ulid.ULID) []byte { return append(dst, id[:]...) },
		func(b []byte) ulid.ULID { return ulid.ULID(b) })
}

// Expiry is the key of reg/prop_exp: a second copy of the expiry and the id of a live proposal, by
// which a damaged row of reg/prop is found.
type Expiry struct {
	MS uint64
	ID ulid.ULID
}

// ExpiryKeys returns the codec of the keys of reg/prop_exp.
func ExpiryKeys() store.Key[Expiry] {
	return sized(24,
		func(dst []byte, e Expiry) []byte { return append(binary.BigEndian.AppendUint64(dst, e.MS), e.ID[:]...) },
		func(b []byte) Expiry { return Expiry{MS: binary.BigEndian.Uint64(b), ID: ulid.ULID(b[8:])} })
}

// approvalKey is the key of an approval: a proposal and the BLAKE3 of a public key. A key signs a
// proposal once.
type approvalKey struct {
	ID  ulid.ULID
	key b3.Digest
}

// ApprovalKeys returns the codec of the keys of reg/appr.
func ApprovalKeys() store.Key[approvalKey] {
	return sized(48,
		func(dst []byte, a approvalKey) []byte { return append(append(dst, a.ID[:]...), a.key[:]...) },
		func(b []byte) approvalKey { return approvalKey{ID: ulid.ULID(b[:16]), key: b3.Digest(b[16:])} })
}

// ofProposal returns the bounds of the approvals of a proposal. The upper bound is exclusive; no
// key hashes to it.
func ofProposal(id ulid.ULID) (from, to approvalKey) {
	from, to = approvalKey{ID: id}, approvalKey{ID: id}
	for i := range to.key {
		to.key[i] = 0xff
	}
	return from, to
}

// U64Value returns the codec of a value that is a number.
func U64Value() store.Value[uint64] {
	u64 := store.U64()
	return store.Value[uint64]{
		Encode: func(n uint64) ([]byte, error) { return u64.Append(nil, n), nil },
		Decode: u64.Decode,
	}
}

// PropRow is the first part of a value of reg/prop. The packed payload follows it.
type PropRow struct {
	Version   uint64    `cbor:"1,keyasint"`
	PayloadB3 b3.Digest `cbor:"2,keyasint"`
	PrevHash  b3.Digest `cbor:"3,keyasint"`
	Owner     string    `cbor:"4,keyasint"` // may withdraw it
	CreatedMS int64     `cbor:"5,keyasint"`
	ExpiresMS int64     `cbor:"6,keyasint"`
	Bytes     int64     `cbor:"7,keyasint"` // of the canonical payload
}

// DoneRow is a value of reg/done: the outcome of a proposal.
type DoneRow struct {
	State       string    `cbor:"1,keyasint"`
	Version     uint64    `cbor:"2,keyasint"`
	PayloadB3   b3.Digest `cbor:"3,keyasint"`
	AtMS        int64     `cbor:"4,keyasint"`
	CommittedAt string    `cbor:"5,keyasint,omitempty"` // committed only, as Hash
	Hash        b3.Digest `cbor:"6,keyasint"`
}

// Replay returns the answer to a repeated commit.
func (d DoneRow) Replay() document.Committed {
	return document.Committed{
		Version: d.Version, PayloadB3: d.PayloadB3, CommittedAt: d.CommittedAt,
		Hash: d.Hash, Replayed: true,
	}
}

// StoredProp is a value of reg/prop: the length of the row as u16, the row, the packed payload.
type StoredProp struct {
	Row    PropRow
	Packed []byte
}

// PropValue returns the codec of the values of reg/prop.
func PropValue() store.Value[StoredProp] {
	rows := store.CBOR[PropRow]()
	return store.Value[StoredProp]{
		Encode: func(p StoredProp) ([]byte, error) {
			head, err := rows.Encode(p.Row)
			if err != nil {
				return nil, err
			}
			out := make([]byte, 0, 2+len(head)+len(p.Packed))
			out = binary.BigEndian.AppendUint16(out, uint16(len(head)))
			return append(append(out, head...), p.Packed...), nil
		},
		Decode: func(b []byte) (p StoredProp, err error) {
			if len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
				return p, errLength
			}
			n := 2 + int(binary.BigEndian.Uint16(b))
			p.Packed = append([]byte(nil), b[n:]...)
			p.Row, err = rows.Decode(b[2:n])
			return p, err
		},
	}
}

// EpochSet is a value of reg/epoch: the version that installed the signer set, and the canonical
// bytes of the set.
type EpochSet struct {
	Version uint64
	Set     []byte
}

// EpochValue returns the codec of the values of reg/epoch.
func EpochValue() store.Value[EpochSet] {
	u64 := store.U64()
	return store.Value[EpochSet]{
		Encode: func(e EpochSet) ([]byte, error) { return append(u64.Append(nil, e.Version), e.Set...), nil },
		Decode: func(b []byte) (e EpochSet, err error) {
			if len(b) < 8 {
				return e, errLength
			}
			e.Set = append([]byte(nil), b[8:]...)
			e.Version, err = u64.Decode(b[:8])
			return e, err
		},
	}
}

// idPrefix is the prefix of the text of a proposal id.
const idPrefix = "p_"

// IDText returns the text of a proposal id.
func IDText(id ulid.ULID) string { return idPrefix + id.String() }

// ParseID parses a proposal id. It returns ErrNotFound if s is not one.
func ParseID(s string) (ulid.ULID, error) {
	if len(s) == len(idPrefix)+ulid.EncodedSize && s[:len(idPrefix)] == idPrefix {
		if id, err := ulid.ParseStrict(s[len(idPrefix):]); err == nil && IDText(id) == s {
			return id, nil
		}
	}
	return ulid.ULID{}, fmt.Errorf("proposal %.40q: %w", s, document.ErrNotFound)
}

// Codecs of a stored payload, its first byte. Payloads are compressed before they are submitted,
// because the output of a compressor changes between releases and a command must replay to the same
// bytes.
//
// A zstd frame follows its BLAKE3: some header bits of a frame do not change the decoded bytes, and
// every flipped bit of the log must be found.
const (
	codecRaw  = 0
	CodecZstd = 1
)

// minCompress is the size below which zstd saves less than its header costs.
const minCompress = 512

// maxPayload bounds the inflated bytes of a stored payload.
const maxPayload = 8 << 20

// Codec packs canonical payloads for storage and unpacks them. Its methods are safe for concurrent
// use.
type Codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

// NewCodec returns a codec of payloads. It panics only on a bug.
func NewCodec() Codec {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(fmt.Sprintf("registry: zstd options: %v", err)) // constant options: a bug
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxPayload))
	if err != nil {
		panic(fmt.Sprintf("registry: zstd options: %v", err))
	}
	return Codec{enc: enc, dec: dec}
}

// Pack returns the stored form of canonical bytes.
func (c Codec) Pack(canonical []byte) []byte {
	if len(canonical) >= minCompress {
		z := c.enc.EncodeAll(canonical, make([]byte, 1+b3.Size, 1+b3.Size+len(canonical)/4))
		if len(z) < len(canonical) {
			sum := b3.Sum(z[1+b3.Size:])
			z[0] = CodecZstd
			copy(z[1:], sum[:])
			return z
		}
	}
	return append([]byte{codecRaw}, canonical...)
}

// Unpack returns new bytes, never a part of stored.
func (c Codec) Unpack(stored []byte) ([]byte, error) {
	if len(stored) == 0 {
		return nil, fmt.Errorf("stored payload: %w: empty", store.ErrCorrupt)
	}
	switch stored[0] {
	case codecRaw:
		return append([]byte(nil), stored[1:]...), nil
	case CodecZstd:
		if len(stored) < 1+b3.Size || b3.Sum(stored[1+b3.Size:]) != b3.Digest(stored[1:1+b3.Size]) {
			return nil, fmt.Errorf("stored payload: %w: frame does not match its hash", store.ErrCorrupt)
		}
		raw, err := c.dec.DecodeAll(stored[1+b3.Size:], nil)
		if err != nil {
			return nil, fmt.Errorf("stored payload: %w: %w", store.ErrCorrupt, err)
		}
		return raw, nil
	default:
		return nil, fmt.Errorf("stored payload: %w: codec %d", store.ErrCorrupt, stored[0])
	}
}

// Payload unpacks and parses a stored payload.
func (c Codec) Payload(stored []byte) (*record.Payload, error) {
	raw, err := c.Unpack(stored)
	if err != nil {
		return nil, err
	}
	return record.ParsePayload(raw)
}
