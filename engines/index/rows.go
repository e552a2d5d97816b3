package index

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines/index/name"
	"ronbox/store"
)

// Buckets of the index. Integers in keys are big-endian.
var (
	bName    = &store.Bucket{Name: "index/name"}
	bProv    = &store.Bucket{Name: "index/prov"}
	bProvExp = &store.Bucket{Name: "index/prov_exp"}
	// bHeld holds what other nodes have signed, which can be asked for again. Without a fleet it is
	// empty.
	bHeld = &store.Bucket{Name: "index/held", Class: store.Derived}
)

// Buckets lists the index's buckets.
func Buckets() []*store.Bucket { return []*store.Bucket{bName, bProv, bProvExp, bHeld} }

// Unsummed lists the buckets with rows that have no checksum in schema 1.
func Unsummed() []*store.Bucket { return []*store.Bucket{bName, bProv, bProvExp} }

// The tables. Each row has a checksum. A name counts as absent only if the neighbours of its place
// are sound, since names cannot be rebuilt. A provider record can be announced again.
var (
	names     = store.NewTable(bName, store.String[string](), nameCodec).Summed().Alone()
	providers = store.NewTable(bProv, provKeyCodec, provCodec).Summed()
	provEnds  = store.NewTable(bProvExp, endKeyCodec, store.None()).Summed()
	helds     = store.NewTable(bHeld, store.String[string](), heldCodec).Summed()
)

// Codecs of rows that are also read without their tables.
var (
	provKeyCodec = provKeys()
	provCodec    = store.CBOR[provRow]()
	nameCodec    = store.CBOR[nameRow]()
	endKeyCodec  = endKeys()
	heldCodec    = store.CBOR[heldRow]()
)

// nameRow is the row of a key. A deleted key keeps its row, so that its seq never falls and a
// version is never written twice.
type nameRow struct {
	Manifest  b3.Digest `cbor:"1,keyasint"`
	Seq       uint64    `cbor:"2,keyasint"`
	UpdatedMS int64     `cbor:"3,keyasint"`
	Commit    uint64    `cbor:"4,keyasint"` // stamp of the command that wrote it
	Deleted   bool      `cbor:"5,keyasint,omitempty"`
}

func (n nameRow) named(k name.Key) name.Named {
	return name.Named{Key: k, Manifest: n.Manifest, Seq: n.Seq, UpdatedMS: n.UpdatedMS}
}

// provRow is a signed record as received. It was verified before it was stored.
type provRow struct {
	Raw       []byte `cbor:"1,keyasint"`
	AtMS      int64  `cbor:"2,keyasint"` // AtMS and ExpiresMS are copied from the record
	ExpiresMS int64  `cbor:"3,keyasint"`
	Commit    uint64 `cbor:"4,keyasint"`
}

// provKey is a content id and the Ed25519 key of a provider.
type provKey struct{ cid, peer [32]byte }

// endKey orders provider records by the second after which they have expired.
type endKey struct {
	second uint64
	of     provKey
}

// end returns the key of the row of expiry of a record.
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

// parseName decodes a raw row of index/name.
func parseName(key, raw []byte) (row nameRow, err error) {
	value, err := store.CutSum(key, raw)
	if err == nil {
		row, err = nameCodec.Decode(value)
	}
	return row, rowError(bName, key, err)
}

// parseProv decodes a raw row of index/prov.
func parseProv(key, raw []byte) (k provKey, row provRow, err error) {
	value, err := store.CutSum(key, raw)
	if err == nil {
		k, err = provKeyCodec.Decode(key)
	}
	if err == nil {
		row, err = provCodec.Decode(value)
	}
	return k, row, rowError(bProv, key, err)
}

// parseEnd decodes a raw row of index/prov_exp.
func parseEnd(key, raw []byte) (k endKey, err error) {
	value, err := store.CutSum(key, raw)
	if err == nil && len(value) > 0 {
		err = errRow
	}
	if err == nil {
		k, err = endKeyCodec.Decode(key)
	}
	return k, rowError(bProvExp, key, err)
}

// rowError wraps err in a *store.RowError that names the row. It returns nil if err is nil.
func rowError(b *store.Bucket, key []byte, err error) error {
	if err == nil {
		return nil
	}
	return &store.RowError{Bucket: b.Name, Key: append([]byte{}, key...), Cause: err}
}

// ofCID walks the records of one id, including expired ones. A damaged row on the way is passed to
// bad and skipped.
func ofCID(r store.Reader, cid b3.Digest, each func(provKey, provRow), bad func(error)) {
	for key, raw := range r.Range(bProv, cid[:], nil) {
		k, row, err := parseProv(key, raw)
		switch {
		case err != nil:
			bad(err)
		case k.cid != cid:
			return
		default:
			each(k, row)
		}
	}
}

// recordAt reads one record. A damaged row is an error.
func recordAt(r store.Reader, k provKey) (row provRow, known bool, err error) {
	key := provKeyCodec.Append(nil, k)
	raw := r.Get(bProv, key)
	if raw == nil {
		return row, false, nil
	}
	_, row, err = parseProv(key, raw)
	return row, true, err
}

// ends reports whether the record e.of exists and expires in e.second.
func ends(r store.Reader, e endKey) bool {
	row, known, err := recordAt(r, e.of)
	return known && err == nil && e.of.end(&row) == e
}

// Checks returns the check of the rows of the index: every row is sound, a name is a canonical key,
// a provider record is signed by its provider for its id, and records and rows of expiry correspond
// to each other.
func Checks() []store.Check { return []store.Check{{Name: service, Schema: 2, Run: checkRows}} }

func checkRows(r store.Reader) error {
	for text, row := range names.All(r) {
		if k, err := name.ParseKey(text); err != nil || k.String() != text || row.Seq == 0 || row.Manifest.IsZero() {
			return fmt.Errorf("index: row of the name %q: not a name with a manifest: %w", text, store.ErrCorrupt)
		}
	}
	for k, row := range providers.All(r) {
		if err := checkRecord(k, &row); err != nil {
			return rowError(bProv, provKeyCodec.Append(nil, k), err)
		}
		if end := k.end(&row); !provEnds.Has(r, end) {
			return rowError(bProvExp, endKeyCodec.Append(nil, end),
				errors.New("the row of a record's expiry is missing"))
		}
	}
	for text, row := range helds.All(r) {
		if err := checkHeld(text, &row); err != nil {
			return rowError(bHeld, []byte(text), err)
		}
	}
	for end := range provEnds.All(r) {
		if !ends(r, end) {
			return rowError(bProvExp, endKeyCodec.Append(nil, end), errors.New("there is no record that expires then"))
		}
	}
	return nil
}

// checkRecord compares a row with the record that it holds.
func checkRecord(k provKey, row *provRow) error {
	rec, err := name.SignedProviderRecord(row.Raw, k.peer[:])
	if err == nil && (rec.CID != b3.Digest(k.cid) || rec.Peer != name.PeerIDOf(k.peer[:]) || rec.AtMS != row.AtMS ||
		rec.ExpiresMS() != row.ExpiresMS) {
		err = errors.New("the record is not the one of this row")
	}
	return err
}
