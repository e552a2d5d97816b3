package tables

import (
	"encoding/binary"
	"iter"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// Kinds of names: accounts and assets have names and refs of their own.
const (
	kindAccount = 'a'
	kindAsset   = 's'
)

// nameKey is a kind and a name; refKey a kind and a ref.
type nameKey struct {
	kind byte
	name string
}

type refKey struct {
	kind byte
	ref  uint64
}

var (
	names = store.NewTable(bNames, nameKeys(), u64Value()).Summed().Alone()
	refs  = store.NewTable(bRefs, refKeys(), textValue()).Summed().Alone()
)

func refKeys() store.Key[refKey] {
	return store.Key[refKey]{
		Append: func(dst []byte, k refKey) []byte { return binary.BigEndian.AppendUint64(append(dst, k.kind), k.ref) },
		Decode: func(b []byte) (refKey, error) {
			if len(b) != 9 {
				return refKey{}, errLength
			}
			return refKey{b[0], binary.BigEndian.Uint64(b[1:])}, nil
		},
	}
}

func nameKeys() store.Key[nameKey] {
	return store.Key[nameKey]{
		Append: func(dst []byte, k nameKey) []byte { return append(append(dst, k.kind), k.name...) },
		Decode: func(b []byte) (nameKey, error) {
			if len(b) < 2 {
				return nameKey{}, errLength
			}
			return nameKey{b[0], string(b[1:])}, nil
		},
	}
}

// Ref reads the ref of an account.
func Ref(r store.Reader, name string) (uint64, bool) { return names.Get(r, nameKey{kindAccount, name}) }

// Name reads the name of an account.
func Name(r store.Reader, ref uint64) (string, bool) { return refs.Get(r, refKey{kindAccount, ref}) }

// AssetRef reads the ref of an asset.
func AssetRef(r store.Reader, name string) (uint32, bool) {
	ref, known := names.Get(r, nameKey{kindAsset, name})
	if ref > 1<<32-1 {
		panic(wrong(bNames, []byte("s"+name), "%w", errNumber))
	}
	return uint32(ref), known
}

// AssetName reads the name of an asset.
func AssetName(r store.Reader, ref uint32) (string, bool) {
	return refs.Get(r, refKey{kindAsset, uint64(ref)})
}

// Assets walks the assets in the order of their declaration.
func Assets(r store.Reader) iter.Seq2[uint32, string] {
	return func(yield func(uint32, string) bool) {
		for k, name := range refs.Range(r, refKey{kindAsset, 0}, refKey{kindAsset + 1, 0}) {
			if !yield(uint32(k.ref), name) {
				return
			}
		}
	}
}

// Accounts walks the accounts in the order of their opening, from a ref on.
func Accounts(r store.Reader, from uint64) iter.Seq2[uint64, string] {
	return func(yield func(uint64, string) bool) {
		for k, name := range refs.Range(r, refKey{kindAccount, from}, refKey{kindAccount + 1, 0}) {
			if !yield(k.ref, name) {
				return
			}
		}
	}
}

// Names walks the names of accounts, then those of assets, each in the order of refs, from one on.
func Names(r store.Reader, from NameChange) iter.Seq[NameChange] {
	return func(yield func(NameChange) bool) {
		first := refKey{kindAccount, from.Ref}
		if from.Asset {
			first.kind = kindAsset
		}
		for k, name := range refs.From(r, first) {
			if !yield(NameChange{k.kind == kindAsset, k.ref, name}) {
				return
			}
		}
	}
}

// AccountNames walks the accounts in the byte order of their names, from a name on.
func AccountNames(r store.Reader, from string) iter.Seq2[string, uint64] {
	return func(yield func(string, uint64) bool) {
		for k, ref := range names.Range(r, nameKey{kindAccount, from}, nameKey{kind: kindAccount + 1}) {
			if !yield(k.name, ref) {
				return
			}
		}
	}
}

// PutName writes the name and ref of an account.
func PutName(w *store.Writes, ref uint64, name string) { putName(w, kindAccount, ref, name) }

// PutAsset writes the name and ref of an asset.
func PutAsset(w *store.Writes, ref uint32, name string) { putName(w, kindAsset, uint64(ref), name) }

func putName(w *store.Writes, kind byte, ref uint64, name string) {
	names.Put(w, nameKey{kind, name}, ref)
	refs.Put(w, refKey{kind, ref}, name)
}

// Scale is the number of decimals of an asset, and the record that set it. The zero Scale was never
// set.
type Scale struct {
	Seq      uint64
	Decimals int
}

func scaleKeys() store.Key[uint32] {
	return store.Key[uint32]{
		Append: func(dst []byte, asset uint32) []byte { return binary.BigEndian.AppendUint32(dst, asset) },
		Decode: func(b []byte) (uint32, error) {
			if len(b) != 4 {
				return 0, errLength
			}
			return binary.BigEndian.Uint32(b), nil
		},
	}
}

var scales = store.NewTable(Scales, scaleKeys(), fixed(1, 9,
	func(b []byte, s *Scale) { le.PutUint64(b, s.Seq); b[8] = byte(s.Decimals) },
	func(b []byte, s *Scale) error {
		s.Seq, s.Decimals = le.Uint64(b), int(b[8])
		if s.Seq == 0 || s.Decimals > engines.MaxDecimals {
			return errNumber
		}
		return nil
	})).Summed().Alone()

// GetScale reads the decimals of an asset.
func GetScale(r store.Reader, asset uint32) (Scale, bool) { return scales.Get(r, asset) }

// AllScales walks the assets that have decimals.
func AllScales(r store.Reader) iter.Seq2[uint32, Scale] { return scales.From(r, 0) }

// PutScale writes the decimals of an asset.
func PutScale(w *store.Writes, asset uint32, s Scale) { scales.Put(w, asset, s) }

// Hold is a held amount: the members of the record that made it, and how it ended.
type Hold struct {
	From, To uint64
	Asset    uint32
	Amount   engines.Amount // all of it is set aside while the hold is open
	At       int64          // when it was made, Unix ns
	Expires  int64          // Unix ns
	Closed   record.Op      // 0 while it is open, else OpCapture, OpRelease, OpExpire
	Closing  uint64         // seq of the record that closed it
}

// Open reports whether the hold is open.
func (h *Hold) Open() bool { return h.Closed == 0 }

// HoldEnd is when an open hold expires.
type HoldEnd struct {
	Expires int64
	Seq     uint64
}

const holdSize = 16 + 4 + engines.AmountSize + 16 + 1 + 8

var (
	holds    = store.NewTable(bHolds, store.U64(), fixed(1, holdSize, putHold, getHold)).Summed().Alone()
	holdEnds = store.NewTable(bEnds, store.Key[HoldEnd]{
		Append: func(dst []byte, e HoldEnd) []byte {
			return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, uint64(e.Expires)), e.Seq)
		},
		Decode: func(b []byte) (HoldEnd, error) {
			if len(b) != 16 {
				return HoldEnd{}, errLength
			}
			return HoldEnd{int64(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:])}, nil
		},
	}, store.None()).Summed()
)

// GetHold reads the hold that the record seq made.
func GetHold(r store.Reader, seq uint64) (Hold, bool) { return holds.Get(r, seq) }

// Holds walks the holds in the order of their making, from a seq on.
func Holds(r store.Reader, from uint64) iter.Seq2[uint64, Hold] { return holds.From(r, from) }

// HoldEnds walks the open holds in the order of their expiry, from one on.
func HoldEnds(r store.Reader, from HoldEnd) iter.Seq[HoldEnd] {
	return func(yield func(HoldEnd) bool) {
		for e := range holdEnds.From(r, from) {
			if !yield(e) {
				return
			}
		}
	}
}

// PutHold writes a hold, and keeps the order of expiry to the open ones.
func PutHold(w *store.Writes, seq uint64, h Hold) {
	holds.Put(w, seq, h)
	if end := (HoldEnd{h.Expires, seq}); h.Open() {
		holdEnds.Put(w, end, struct{}{})
	} else {
		holdEnds.Delete(w, end)
	}
}

func putHold(b []byte, h *Hold) {
	le.PutUint64(b, h.From)
	le.PutUint64(b[8:], h.To)
	le.PutUint32(b[16:], h.Asset)
	putAmount(b[20:], h.Amount)
	le.PutUint64(b[36:], uint64(h.At))
	le.PutUint64(b[44:], uint64(h.Expires))
	b[52] = byte(h.Closed)
	le.PutUint64(b[53:], h.Closing)
}

func getHold(b []byte, h *Hold) error {
	h.From, h.To, h.Asset = le.Uint64(b), le.Uint64(b[8:]), le.Uint32(b[16:])
	h.Amount = engines.AmountLE(b[20:])
	h.At, h.Expires = int64(le.Uint64(b[36:])), int64(le.Uint64(b[44:]))
	h.Closed, h.Closing = record.Op(b[52]), le.Uint64(b[53:])
	switch h.Closed {
	case 0, record.OpCapture, record.OpRelease, record.OpExpire:
	default:
		return errNumber
	}
	if h.At < 0 || h.Expires < 0 || h.Open() != (h.Closing == 0) {
		return errNumber
	}
	return nil
}

// OnceKey names a permanent id, or the guard of some.
type OnceKey struct {
	Guard bool
	Key   [16]byte
}

// Once is the row of a permanent id or a guard: the record that bound it, and the digest of the
// request. Of a guard the first half of Digest is its owner, the rest zero. A reference that was
// merged into ledger/closed has only a Period, which no row has.
type Once struct {
	Seq    uint64
	Digest b3.Digest
	Period uint64
}

// Bound reports whether o was bound.
func (o *Once) Bound() bool { return o.Seq != 0 || o.Period != 0 }

// Closed reports whether o was bound in a closed period.
func (o *Once) Closed(h *Horizon) bool { return o.Period != 0 || o.Seq != 0 && o.Seq <= h.Seq }

var onces = store.NewTable(bOnce, onceKeys(), onceValue()).Summed().Alone()

func onceKeys() store.Key[OnceKey] {
	return store.Key[OnceKey]{
		Append: func(dst []byte, k OnceKey) []byte {
			kind := byte('o')
			if k.Guard {
				kind = 'g'
			}
			return append(append(dst, kind), k.Key[:]...)
		},
		Decode: func(b []byte) (k OnceKey, err error) {
			if len(b) != 17 || b[0] != 'o' && b[0] != 'g' {
				return k, errLength
			}
			return OnceKey{b[0] == 'g', [16]byte(b[1:])}, nil
		},
	}
}

func onceValue() store.Value[Once] {
	return fixed(1, 8+b3.Size,
		func(b []byte, o *Once) { le.PutUint64(b, o.Seq); copy(b[8:], o.Digest[:]) },
		func(b []byte, o *Once) error { o.Seq = le.Uint64(b); copy(o.Digest[:], b[8:]); return nil })
}

// GetOnce reads the row of a permanent id or a guard.
func GetOnce(r store.Reader, k OnceKey) (Once, bool) { return onces.Get(r, k) }

// PutOnce writes it.
func PutOnce(w *store.Writes, k OnceKey, o Once) { onces.Put(w, k, o) }

// Onces walks permanent ids and guards in the order of the file.
func Onces(r store.Reader) iter.Seq2[OnceKey, Once] { return onces.All(r) }
