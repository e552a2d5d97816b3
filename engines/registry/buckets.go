package registry

import (
	"errors"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// The registry's buckets, flat; integers in keys are big-endian, so that byte order is their order.
var (
	bMeta    = &store.Bucket{Name: "reg/meta"}
	bEntry   = &store.Bucket{Name: "reg/entry", Append: true}
	bPayload = &store.Bucket{Name: "reg/payload", Append: true}
	bEpoch   = &store.Bucket{Name: "reg/epoch", Append: true}
	bProp    = &store.Bucket{Name: "reg/prop"}
	bPropB3  = &store.Bucket{Name: "reg/prop_b3"}
	bPropExp = &store.Bucket{Name: "reg/prop_exp"}
	bAppr    = &store.Bucket{Name: "reg/appr"}
	bDone    = &store.Bucket{Name: "reg/done"}
	bAudit   = &store.Bucket{Name: "reg/audit", Append: true}
	bSnap    = &store.Bucket{Name: "reg/snap", Append: true}
	bTile    = &store.Bucket{Name: "reg/tile"}
	bCP      = &store.Bucket{Name: "reg/cp", Append: true}
	bRet     = &store.Bucket{Name: "reg/ret", Append: true}
)

// Buckets lists the registry's buckets.
func Buckets() []*store.Bucket {
	return []*store.Bucket{bMeta, bEntry, bPayload, bEpoch, bProp, bPropB3, bPropExp, bAppr, bDone, bAudit, bSnap, bTile, bCP, bRet}
}

// The tables. What is hashed, signed or served is stored raw.
var (
	metaHead   = store.NewTable(bMeta, store.String[string](), store.CBOR[record.Head]()) // "head"
	metaAudit  = store.NewTable(bMeta, store.String[string](), store.CBOR[AuditRef]())    // "audit_head"
	metaRaw    = store.NewTable(bMeta, store.String[string](), store.Raw())               // "origin", "genesis", "schema", "cp_latest", "adopted"
	metaNumber = store.NewTable(bMeta, store.String[string](), u64Value())                // "min_version", "audit_min"

	entries  = store.NewTable(bEntry, store.U64(), store.Raw())
	payloads = store.NewTable(bPayload, store.U64(), store.Raw()) // codec byte, packed payload
	epochs   = store.NewTable(bEpoch, store.U32(), epochValue())
	audits   = store.NewTable(bAudit, store.U64(), store.Raw())

	props       = store.NewTable(bProp, idKey(), propValue())
	propByB3    = store.NewTable(bPropB3, store.Array32[b3.Digest](), idValue())
	propExpiry  = store.NewTable(bPropExp, expiryKeys(), store.None())
	approvals   = store.NewTable(bAppr, approvalKeys(), store.Raw()) // canonical approval
	doneOutcome = store.NewTable(bDone, idKey(), store.CBOR[doneRow]())

	metaTree    = store.NewTable(bMeta, store.String[string](), store.CBOR[treeRow]()) // "tree"
	tiles       = store.NewTable(bTile, tileKeys(), store.Raw())
	checkpoints = store.NewTable(bCP, store.U64(), store.Raw()) // archived notes, by size

	retentions = store.NewTable(bRet, store.U64(), store.Raw()) // the statement of retention, by the first version that it keeps

	setHeaders = store.NewTable(bSnap, setKeys(), store.CBOR[setHeader]()) // part 0
	setChunks  = store.NewTable(bSnap, setKeys(), store.Raw())             // packed items; a header is read as its bytes
)

// Keys of reg/meta.
const (
	keyHead      = "head"
	keyOrigin    = "origin"
	keyGenesis   = "genesis" // payload_b3 of version 1
	keyMin       = "min_version"
	keyAuditMin  = "audit_min" // the oldest audit record kept; absent: the first
	keyAuditHead = "audit_head"
	keySchema    = "schema"

	keyTree       = "tree"
	keyCheckpoint = "cp_latest" // the latest note
	keyAdopted    = "adopted"   // incarnation whose log an operator has taken for the newest
)

// schemaVersion is the layout of the tables, stored at genesis.
const schemaVersion = "1"

var errLength = errors.New("wrong length")

func idKey() store.Key[ulid.ULID] {
	return store.Key[ulid.ULID]{
		Append: func(dst []byte, id ulid.ULID) []byte { return append(dst, id[:]...) },
		Decode: decodeID,
	}
}

func idValue() store.Value[ulid.ULID] {
	return store.Value[ulid.ULID]{
		Encode: func(id ulid.ULID) ([]byte, error) { return append([]byte(nil), id[:]...), nil },
		Decode: decodeID,
	}
}

func decodeID(b []byte) (id ulid.ULID, err error) {
	if len(b) != len(id) {
		return id, errLength
	}
	return ulid.ULID(b), nil
}

// expiry orders live proposals by the time they end.
type expiry struct {
	ms uint64
	id ulid.ULID
}

func expiryKeys() store.Key[expiry] {
	u64 := store.U64()
	return store.Key[expiry]{
		Append: func(dst []byte, e expiry) []byte { return append(u64.Append(dst, e.ms), e.id[:]...) },
		Decode: func(b []byte) (e expiry, err error) {
			if len(b) != 8+len(e.id) {
				return e, errLength
			}
			ms, err := u64.Decode(b[:8])
			return expiry{ms: ms, id: ulid.ULID(b[8:])}, err
		},
	}
}

// approvalKey is a proposal and the BLAKE3 of a public key: a key signs a proposal once.
type approvalKey struct {
	id  ulid.ULID
	key b3.Digest
}

func approvalKeys() store.Key[approvalKey] {
	return store.Key[approvalKey]{
		Append: func(dst []byte, a approvalKey) []byte { return append(append(dst, a.id[:]...), a.key[:]...) },
		Decode: func(b []byte) (a approvalKey, err error) {
			if len(b) != len(a.id)+len(a.key) {
				return a, errLength
			}
			return approvalKey{id: ulid.ULID(b[:16]), key: b3.Digest(b[16:])}, nil
		},
	}
}

// ofProposal bounds the approvals of one proposal; the key past all of them cannot be a hash anyone found.
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
