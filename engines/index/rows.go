package index

import (
	"encoding/binary"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// The index's buckets, flat; integers in keys are big-endian.
var (
	bName    = &store.Bucket{Name: "index/name"}
	bProv    = &store.Bucket{Name: "index/prov"}
	bProvExp = &store.Bucket{Name: "index/prov_exp"}
)

// Buckets lists the index's buckets.
func Buckets() []*store.Bucket { return []*store.Bucket{bName, bProv, bProvExp} }

// The tables.
var (
	names     = store.NewTable(bName, store.String[string](), store.CBOR[nameRow]())
	providers = store.NewTable(bProv, provKeys(), store.CBOR[provRow]())
	provEnds  = store.NewTable(bProvExp, endKeys(), store.None())
)

// nameRow is what a key stands for. A deleted key keeps its row, so that seq never falls and a version is never written twice.
type nameRow struct {
	Manifest  b3.Digest `cbor:"1,keyasint"`
	Seq       uint64    `cbor:"2,keyasint"`
	UpdatedMS int64     `cbor:"3,keyasint"`
	Commit    uint64    `cbor:"4,keyasint"` // stamp of the command that wrote it
	Deleted   bool      `cbor:"5,keyasint,omitempty"`
}

func (n nameRow) named(k Key) Named {
	return Named{Key: k, Manifest: n.Manifest, Seq: n.Seq, UpdatedMS: n.UpdatedMS}
}

// provRow is a signed record as it came, verified when it was taken.
type provRow struct {
	Raw       []byte `cbor:"1,keyasint"`
	AtMS      int64  `cbor:"2,keyasint"` // this and the next are the record's
	ExpiresMS int64  `cbor:"3,keyasint"`
	Commit    uint64 `cbor:"4,keyasint"`
}

// provKey is a content id and the Ed25519 key of a provider.
type provKey struct{ cid, peer [32]byte }

// endKey orders provider records by the second in which they have expired.
type endKey struct {
	second uint64
	of     provKey
}

// end is where the expiry of a record lies.
func (k provKey) end(r *provRow) endKey { return endKey{uint64(r.ExpiresMS+999) / 1000, k} }

var errRow = errors.New("wrong length")

func provKeys() store.Key[provKey] {
	return store.Key[provKey]{
		Append: func(dst []byte, k provKey) []byte { return append(append(dst, k.cid[:]...), k.peer[:]...) },
		Decode: func(b []byte) (k provKey, err error) {
			if len(b) != 64 {
				return k, errRow
			}
			return provKey{[32]byte(b), [32]byte(b[32:])}, nil
		},
	}
}

func endKeys() store.Key[endKey] {
	keys := provKeys()
	return store.Key[endKey]{
		Append: func(dst []byte, k endKey) []byte {
			return keys.Append(binary.BigEndian.AppendUint64(dst, k.second), k.of)
		},
		Decode: func(b []byte) (k endKey, err error) {
			if len(b) != 72 {
				return k, errRow
			}
			of, err := keys.Decode(b[8:])
			return endKey{binary.BigEndian.Uint64(b), of}, err
		},
	}
}

// ofCID walks the records for one id, expired ones too.
func ofCID(r store.Reader, cid b3.Digest, each func(provKey, provRow)) {
	for k, row := range providers.From(r, provKey{cid: cid}) {
		if k.cid != cid {
			return
		}
		each(k, row)
	}
}
