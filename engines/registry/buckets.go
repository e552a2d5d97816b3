package registry

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// The buckets of the registry. Integers in keys are big-endian, so that byte order is numeric
// order.
var (
	bMeta    = &store.Bucket{Name: "reg/meta"}
	bEntry   = &store.Bucket{Name: "reg/entry", Append: true}
	bPayload = &store.Bucket{Name: "reg/payload", Append: true}
	bEpoch   = &store.Bucket{Name: "reg/epoch", Append: true}
	bProp    = &store.Bucket{Name: "reg/prop"}
	bPropExp = &store.Bucket{Name: "reg/prop_exp"}
	bAppr    = &store.Bucket{Name: "reg/appr"}
	bDone    = &store.Bucket{Name: "reg/done"}
	bAudit   = &store.Bucket{Name: "reg/audit", Append: true}
	bSnap    = &store.Bucket{Name: "reg/snap", Append: true}
	bTile    = &store.Bucket{Name: "reg/tile"}
	bCP      = &store.Bucket{Name: "reg/cp", Append: true}
	bRet     = &store.Bucket{Name: "reg/ret", Append: true}
)

// Buckets returns the buckets of the registry.
func Buckets() []*store.Bucket {
	return []*store.Bucket{
		bMeta, bEntry, bPayload, bEpoch, bProp, bPropExp, bAppr, bDone, bAudit, bSnap, bTile, bCP, bRet,
	}
}

// The tables. Bytes that are hashed, signed or served are stored as they are.
var (
	metaHead  = store.NewTable(bMeta, store.String[string](), store.CBOR[record.Head]()) // "head"
	metaAudit = store.NewTable(bMeta, store.String[string](), store.CBOR[AuditRef]())    // "audit_head"
	// "origin", "genesis", "schema", "cp_latest", "adopted"
	metaRaw    = store.NewTable(bMeta, store.String[string](), store.Raw())
	metaNumber = store.NewTable(bMeta, store.String[string](), u64Value()) // "min_version", "audit_min"

	entries  = store.NewTable(bEntry, store.U64(), store.Raw())
	payloads = store.NewTable(bPayload, store.U64(), store.Raw()) // codec byte, packed payload
	epochs   = store.NewTable(bEpoch, store.U32(), epochValue())
	audits   = store.NewTable(bAudit, store.U64(), store.Raw())

	props       = store.NewTable(bProp, idKey(), propValue())
	propExpiry  = store.NewTable(bPropExp, expiryKeys(), store.None())
	approvals   = store.NewTable(bAppr, approvalKeys(), store.Raw()) // canonical approval
	doneOutcome = store.NewTable(bDone, idKey(), store.CBOR[doneRow]())

	// These rows of reg/meta have a checksum of their own, because no other row depends on them.
	metaAdopted    = store.NewTable(bMeta, store.String[string](), store.Raw()).Summed()              // "adopted_in"
	metaObjections = store.NewTable(bMeta, store.String[string](), store.CBOR[objections]()).Summed() // "objections"

	metaVerified = store.NewTable(bMeta, store.String[string](), store.CBOR[verifyMark]()).Summed() // "verified"

	metaFollowed    = store.NewTable(bMeta, store.String[string](), store.CBOR[followRow]()).Summed() // "followed"
	metaFollowFault = store.NewTable(bMeta, store.String[string](), store.CBOR[faultRow]()).Summed()  // "follow_fault"

	metaTree    = store.NewTable(bMeta, store.String[string](), store.CBOR[treeRow]()) // "tree"
	tiles       = store.NewTable(bTile, tileKeys(), store.Raw())
	checkpoints = store.NewTable(bCP, store.U64(), store.Raw()) // archived notes, by size

	// the statement of retention, by the first version kept whole
	retentions = store.NewTable(bRet, store.U64(), store.Raw())

	setHeaders = store.NewTable(bSnap, setKeys(), store.CBOR[setHeader]()) // part 0
	// packed items; headers are read as raw bytes
	setChunks = store.NewTable(bSnap, setKeys(), store.Raw())
)

// Keys of reg/meta.
const (
	keyHead      = "head"
	keyOrigin    = "origin"
	keyGenesis   = "genesis" // payload_b3 of version 1
	keyMin       = "min_version"
	keyAuditMin  = "audit_min" // the oldest audit record kept; absent: 1
	keyAuditHead = "audit_head"
	keySchema    = "schema"

	keyTree        = "tree"
	keyCheckpoint  = "cp_latest"    // the latest note
	keyAdopted     = "adopted_in"   // incarnation whose log an operator has adopted
	keyAdoptedOld  = "adopted"      // the same without a checksum, as schema 1 has it
	keyObjections  = "objections"   // of witnesses; absent: there are none
	keyVerified    = "verified"     // progress of the deep verifier; absent: none
	keyFollowed    = "followed"     // the log is a copy of that of another node; absent: it is not
	keyFollowFault = "follow_fault" // why the hub of a follower is not believed; absent: it is
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

func idKey() store.Key[ulid.ULID] {
	return sized(16, func(dst []byte, id ulid.ULID) []byte { return append(dst, id[:]...) },
		func(b []byte) ulid.ULID { return ulid.ULID(b) })
}

// expiry is the key of reg/prop_exp: a second copy of the expiry and the id of a live proposal, by
// which a damaged row of reg/prop is found.
type expiry struct {
	ms uint64
	id ulid.ULID
}

func expiryKeys() store.Key[expiry] {
	return sized(24,
		func(dst []byte, e expiry) []byte { return append(binary.BigEndian.AppendUint64(dst, e.ms), e.id[:]...) },
		func(b []byte) expiry { return expiry{ms: binary.BigEndian.Uint64(b), id: ulid.ULID(b[8:])} })
}

// approvalKey is the key of an approval: a proposal and the BLAKE3 of a public key. A key signs a
// proposal once.
type approvalKey struct {
	id  ulid.ULID
	key b3.Digest
}

func approvalKeys() store.Key[approvalKey] {
	return sized(48,
		func(dst []byte, a approvalKey) []byte { return append(append(dst, a.id[:]...), a.key[:]...) },
		func(b []byte) approvalKey { return approvalKey{id: ulid.ULID(b[:16]), key: b3.Digest(b[16:])} })
}

// ofProposal returns the bounds of the approvals of a proposal. The upper bound is exclusive; no
// key hashes to it.
func ofProposal(id ulid.ULID) (from, to approvalKey) {
	from, to = approvalKey{id: id}, approvalKey{id: id}
	for i := range to.key {
		to.key[i] = 0xff
	}
	return from, to
}

func u64Value() store.Value[uint64] {
	u64 := store.U64()
	return store.Value[uint64]{
		Encode: func(n uint64) ([]byte, error) { return u64.Append(nil, n), nil },
		Decode: u64.Decode,
	}
}

// propRow is the first part of a value of reg/prop. The packed payload follows it.
type propRow struct {
	Version   uint64    `cbor:"1,keyasint"`
	PayloadB3 b3.Digest `cbor:"2,keyasint"`
	PrevHash  b3.Digest `cbor:"3,keyasint"`
	Owner     string    `cbor:"4,keyasint"` // may withdraw it
	CreatedMS int64     `cbor:"5,keyasint"`
	ExpiresMS int64     `cbor:"6,keyasint"`
	Bytes     int64     `cbor:"7,keyasint"` // of the canonical payload
}

// doneRow is a value of reg/done: the outcome of a proposal.
type doneRow struct {
	State       string    `cbor:"1,keyasint"`
	Version     uint64    `cbor:"2,keyasint"`
	PayloadB3   b3.Digest `cbor:"3,keyasint"`
	AtMS        int64     `cbor:"4,keyasint"`
	CommittedAt string    `cbor:"5,keyasint,omitempty"` // committed only, as Hash
	Hash        b3.Digest `cbor:"6,keyasint"`
}

// replay returns the answer to a repeated commit.
func (d doneRow) replay() Committed {
	return Committed{
		Version: d.Version, PayloadB3: d.PayloadB3, CommittedAt: d.CommittedAt,
		Hash: d.Hash, Replayed: true,
	}
}

// storedProp is a value of reg/prop: the length of the row as u16, the row, the packed payload.
type storedProp struct {
	row    propRow
	packed []byte
}

func propValue() store.Value[storedProp] {
	rows := store.CBOR[propRow]()
	return store.Value[storedProp]{
		Encode: func(p storedProp) ([]byte, error) {
			head, err := rows.Encode(p.row)
			if err != nil {
				return nil, err
			}
			out := make([]byte, 0, 2+len(head)+len(p.packed))
			out = binary.BigEndian.AppendUint16(out, uint16(len(head)))
			return append(append(out, head...), p.packed...), nil
		},
		Decode: func(b []byte) (p storedProp, err error) {
			if len(b) < 2 || len(b) < 2+int(binary.BigEndian.Uint16(b)) {
				return p, errLength
			}
			n := 2 + int(binary.BigEndian.Uint16(b))
			p.packed = append([]byte(nil), b[n:]...)
			p.row, err = rows.Decode(b[2:n])
			return p, err
		},
	}
}

// epochSet is a value of reg/epoch: the version that installed the signer set, and the canonical
// bytes of the set.
type epochSet struct {
	version uint64
	set     []byte
}

func epochValue() store.Value[epochSet] {
	u64 := store.U64()
	return store.Value[epochSet]{
		Encode: func(e epochSet) ([]byte, error) { return append(u64.Append(nil, e.version), e.set...), nil },
		Decode: func(b []byte) (e epochSet, err error) {
			if len(b) < 8 {
				return e, errLength
			}
			e.set = append([]byte(nil), b[8:]...)
			e.version, err = u64.Decode(b[:8])
			return e, err
		},
	}
}

// idPrefix is the prefix of the text of a proposal id.
const idPrefix = "p_"

func idText(id ulid.ULID) string { return idPrefix + id.String() }

// parseID parses a proposal id. It returns ErrNotFound if s is not one.
func parseID(s string) (ulid.ULID, error) {
	if len(s) == len(idPrefix)+ulid.EncodedSize && s[:len(idPrefix)] == idPrefix {
		if id, err := ulid.ParseStrict(s[len(idPrefix):]); err == nil && idText(id) == s {
			return id, nil
		}
	}
	return ulid.ULID{}, fmt.Errorf("proposal %.40q: %w", s, ErrNotFound)
}

// Codecs of a stored payload, its first byte. Payloads are compressed before they are submitted,
// because the output of a compressor changes between releases and a command must replay to the same
// bytes.
//
// A zstd frame follows its BLAKE3: some header bits of a frame do not change the decoded bytes, and
// every flipped bit of the log must be found.
const (
	codecRaw  = 0
	codecZstd = 1
)

// minCompress is the size below which zstd saves less than its header costs.
const minCompress = 512

// maxPayload bounds the inflated bytes of a stored payload.
const maxPayload = 8 << 20

// codec packs canonical payloads for storage and unpacks them. Its methods are safe for concurrent
// use.
type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

func newCodec() codec {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(fmt.Sprintf("registry: zstd options: %v", err)) // constant options: a bug
	}
	dec, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(maxPayload))
	if err != nil {
		panic(fmt.Sprintf("registry: zstd options: %v", err))
	}
	return codec{enc: enc, dec: dec}
}

func (c codec) pack(canonical []byte) []byte {
	if len(canonical) >= minCompress {
		z := c.enc.EncodeAll(canonical, make([]byte, 1+b3.Size, 1+b3.Size+len(canonical)/4))
		if len(z) < len(canonical) {
			sum := b3.Sum(z[1+b3.Size:])
			z[0] = codecZstd
			copy(z[1:], sum[:])
			return z
		}
	}
	return append([]byte{codecRaw}, canonical...)
}

// unpack returns new bytes, never a part of stored.
func (c codec) unpack(stored []byte) ([]byte, error) {
	if len(stored) == 0 {
		return nil, fmt.Errorf("stored payload: %w: empty", store.ErrCorrupt)
	}
	switch stored[0] {
	case codecRaw:
		return append([]byte(nil), stored[1:]...), nil
	case codecZstd:
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

// payload unpacks and parses a stored payload.
func (c codec) payload(stored []byte) (*record.Payload, error) {
	raw, err := c.unpack(stored)
	if err != nil {
		return nil, err
	}
	return record.ParsePayload(raw)
}
