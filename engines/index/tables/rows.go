package tables

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
	NameBucket     = &store.Bucket{Name: "index/name"}
	ProviderBucket = &store.Bucket{Name: "index/prov"}
	ExpiryBucket   = &store.Bucket{Name: "index/prov_exp"}
	// HeldBucket holds what other nodes have signed, which can be asked for again. Without a fleet
	// it is empty.
	HeldBucket = &store.Bucket{Name: "index/held", Class: store.Derived}
)

// Buckets lists the index's buckets.
func Buckets() []*store.Bucket {
	return []*store.Bucket{NameBucket, ProviderBucket, ExpiryBucket, HeldBucket}
}

// Unsummed lists the buckets with rows that have no checksum in schema 1.
func Unsummed() []*store.Bucket { return []*store.Bucket{NameBucket, ProviderBucket, ExpiryBucket} }

// The tables. Each row has a checksum. A name counts as absent only if the neighbours of its place
// are sound, since names cannot be rebuilt. A provider record can be announced again.
var (
	Names     = store.NewTable(NameBucket, store.String[string](), nameCodec).Summed().Alone()
	Providers = store.NewTable(ProviderBucket, ProviderKeys, provCodec).Summed()
	Expiries  = store.NewTable(ExpiryBucket, ExpiryKeys, store.None()).Summed()
	Held      = store.NewTable(HeldBucket, store.String[string](), heldCodec).Summed()
)

// Codecs of rows that are also read without their tables.
var (
	ProviderKeys = provKeys()
	provCodec    = store.CBOR[ProviderRow]()
	nameCodec    = store.CBOR[NameRow]()
	ExpiryKeys   = endKeys()
	heldCodec    = store.CBOR[HeldRow]()
)

// NameRow is the row of a key. A deleted key keeps its row, so that its seq never falls and a
// version is never written twice.
type NameRow struct {
	Manifest  b3.Digest `cbor:"1,keyasint"`
	Seq       uint64    `cbor:"2,keyasint"`
	UpdatedMS int64     `cbor:"3,keyasint"`
	Commit    uint64    `cbor:"4,keyasint"` // stamp of the command that wrote it
	Deleted   bool      `cbor:"5,keyasint,omitempty"`
}

func (n NameRow) Named(k name.Key) name.Named {
	return name.Named{Key: k, Manifest: n.Manifest, Seq: n.Seq, UpdatedMS: n.UpdatedMS}
}

// ProviderRow is a signed record as received. It was verified before it was stored.
type ProviderRow struct {
	Raw       []byte `cbor:"1,keyasint"`
	AtMS      int64  `cbor:"2,keyasint"` // AtMS and ExpiresMS are copied from the record
	ExpiresMS int64  `cbor:"3,keyasint"`
	Commit    uint64 `cbor:"4,keyasint"`
}

// ProviderKey is a content id and the Ed25519 key of a provider.
type ProviderKey struct{ CID, Peer [32]byte }

// ExpiryKey orders provider records by the second after which they have expired.
type ExpiryKey struct {
	second uint64
	of     ProviderKey
}

// end returns the key of the row of expiry of a record.
func (k ProviderKey) Expiry(r *ProviderRow) ExpiryKey {
	return ExpiryKey{uint64(r.ExpiresMS+999) / 1000, k}
}

var ErrLength = errors.New("wrong length")

func provKeys() store.Key[ProviderKey] {
	return store.Key[ProviderKey]{
		Append: func(dst []byte, k ProviderKey) []byte { return append(append(dst, k.CID[:]...), k.Peer[:]...) },
		Decode: func(b []byte) (k ProviderKey, err error) {
			if len(b) != 64 {
				return k, ErrLength
			}
			return ProviderKey{[32]byte(b), [32]byte(b[32:])}, nil
		},
	}
}

func endKeys() store.Key[ExpiryKey] {
	keys := provKeys()
	return store.Key[ExpiryKey]{
		Append: func(dst []byte, k ExpiryKey) []byte {
			return keys.Append(binary.BigEndian.AppendUint64(dst, k.second), k.of)
		},
		Decode: func(b []byte) (k ExpiryKey, err error) {
			if len(b) != 72 {
				return k, ErrLength
			}
			of, err := keys.Decode(b[8:])
			return ExpiryKey{binary.BigEndian.Uint64(b), of}, err
		},
	}
}

// ParseName decodes a raw row of index/name.
func ParseName(key, raw []byte) (row NameRow, err error) {
	value, err := store.CutSum(key, raw)
	if err == nil {
		row, err = nameCodec.Decode(value)
	}
	return row, RowError(NameBucket, key, err)
}

// ParseProvider decodes a raw row of index/prov.
func ParseProvider(key, raw []byte) (k ProviderKey, row ProviderRow, err error) {
	value, err := store.CutSum(key, raw)
	if err == nil {
		k, err = ProviderKeys.Decode(key)
	}
	if err == nil {
		row, err = provCodec.Decode(value)
	}
	return k, row, RowError(ProviderBucket, key, err)
}

// ParseExpiry decodes a raw row of index/prov_exp.
func ParseExpiry(key, raw []byte) (k ExpiryKey, err error) {
	value, err := store.CutSum(key, raw)
	if err == nil && len(value) > 0 {
		err = ErrLength
	}
	if err == nil {
		k, err = ExpiryKeys.Decode(key)
	}
	return k, RowError(ExpiryBucket, key, err)
}

// RowError wraps err in a *store.RowError that names the row. It returns nil if err is nil.
func RowError(b *store.Bucket, key []byte, err error) error {
	if err == nil {
		return nil
	}
	return &store.RowError{Bucket: b.Name, Key: append([]byte{}, key...), Cause: err}
}

// OfCID walks the records of one id, including expired ones. A damaged row on the way is passed to
// bad and skipped.
func OfCID(r store.Reader, cid b3.Digest, each func(ProviderKey, ProviderRow), bad func(error)) {
	for key, raw := range r.Range(ProviderBucket, cid[:], nil) {
		k, row, err := ParseProvider(key, raw)
		switch {
		case err != nil:
			bad(err)
		case k.CID != cid:
			return
		default:
			each(k, row)
		}
	}
}

// recordAt reads one record. A damaged row is an error.
func recordAt(r store.Reader, k ProviderKey) (row ProviderRow, known bool, err error) {
	key := ProviderKeys.Append(nil, k)
	raw := r.Get(ProviderBucket, key)
	if raw == nil {
		return row, false, nil
	}
	_, row, err = ParseProvider(key, raw)
	return row, true, err
}

// Expires reports whether the record e.of exists and expires in e.second.
func Expires(r store.Reader, e ExpiryKey) bool {
	row, known, err := recordAt(r, e.of)
	return known && err == nil && e.of.Expiry(&row) == e
}

// Checks returns the check of the rows of the index: every row is sound, a name is a canonical key,
// a provider record is signed by its provider for its id, and records and rows of expiry correspond
// to each other.
func Checks() []store.Check { return []store.Check{{Name: "index", Schema: 2, Run: CheckRows}} }

func CheckRows(r store.Reader) error {
	for text, row := range Names.All(r) {
		if k, err := name.ParseKey(text); err != nil || k.String() != text || row.Seq == 0 || row.Manifest.IsZero() {
			return fmt.Errorf("index: row of the name %q: not a name with a manifest: %w", text, store.ErrCorrupt)
		}
	}
	for k, row := range Providers.All(r) {
		if err := checkRecord(k, &row); err != nil {
			return RowError(ProviderBucket, ProviderKeys.Append(nil, k), err)
		}
		if end := k.Expiry(&row); !Expiries.Has(r, end) {
			return RowError(ExpiryBucket, ExpiryKeys.Append(nil, end),
				errors.New("the row of a record's expiry is missing"))
		}
	}
	for text, row := range Held.All(r) {
		if err := checkHeld(text, &row); err != nil {
			return RowError(HeldBucket, []byte(text), err)
		}
	}
	for end := range Expiries.All(r) {
		if !Expires(r, end) {
			return RowError(ExpiryBucket, ExpiryKeys.Append(nil, end),
				errors.New("there is no record that expires then"))
		}
	}
	return nil
}

// checkRecord compares a row with the record that it holds.
func checkRecord(k ProviderKey, row *ProviderRow) error {
	rec, err := name.SignedProviderRecord(row.Raw, k.Peer[:])
	if err == nil && (rec.CID != b3.Digest(k.CID) || rec.Peer != name.PeerIDOf(k.Peer[:]) || rec.AtMS != row.AtMS ||
		rec.ExpiresMS() != row.ExpiresMS) {
		err = errors.New("the record is not the one of this row")
	}
	return err
}

// HeldRow is the kept record of a name by its owner, as received. It was verified before it was
// stored.
type HeldRow struct {
	Raw       []byte   `cbor:"1,keyasint"`
	Signer    [32]byte `cbor:"2,keyasint"` // key of the owner
	Seq       uint64   `cbor:"3,keyasint"`
	ExpiresMS int64    `cbor:"4,keyasint"` // that of the record, at most its lifetime after its receipt
}

// ReadHeld reads a row of index/held. It returns false if the row is missing or damaged.
func ReadHeld(r store.Reader, key string) (row HeldRow, sound bool) {
	raw := r.Get(HeldBucket, []byte(key))
	if raw == nil {
		return row, false
	}
	value, err := store.CutSum([]byte(key), raw)
	if err == nil {
		row, err = heldCodec.Decode(value)
	}
	return row, err == nil
}

// checkHeld compares a row with the record that it holds.
func checkHeld(text string, row *HeldRow) error {
	rec, err := name.SignedNameRecord(row.Raw, row.Signer[:])
	if err == nil && (rec.Key.String() != text || rec.Seq != row.Seq || rec.ExpiresMS < row.ExpiresMS) {
		err = errors.New("the record is not the one of this row")
	}
	return err
}

// Hold keeps the record of a name by its owner, and drops others.
type Hold struct {
	Key  string // "": none is kept
	Row  HeldRow
	Drop []string // keys
}

// Kind implements store.Command.
func (Hold) Kind() string { return "index.hold/1" }

// Apply keeps a later record of the same owner.
func (c Hold) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	for _, key := range c.Drop {
		w.Delete(HeldBucket, []byte(key))
	}
	if c.Key == "" {
		return struct{}{}, nil
	}
	if was, sound := ReadHeld(r, c.Key); !sound || was.Signer != c.Row.Signer || was.Seq <= c.Row.Seq {
		Held.Put(w, c.Key, c.Row)
	}
	return struct{}{}, nil
}
