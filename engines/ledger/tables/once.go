package tables

import (
	"iter"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// OnceKey names a permanent id, or the guard of some.
type OnceKey struct {
	Guard bool
	Key   [16]byte
}

// Once is what a permanent id stands for: the record that bound it, and the digest of what was asked. Of a guard the first half of Digest is
// its owner, the rest zero.
type Once struct {
	Seq    uint64
	Digest b3.Digest
}

var onces = store.NewTable(bOnce, store.Key[OnceKey]{
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
}, fixed(1, 8+b3.Size,
	func(b []byte, o *Once) { le.PutUint64(b, o.Seq); copy(b[8:], o.Digest[:]) },
	func(b []byte, o *Once) error { o.Seq = le.Uint64(b); copy(o.Digest[:], b[8:]); return nil })).Summed().Alone()

// GetOnce reads what a permanent id or a guard stands for.
func GetOnce(r store.Reader, k OnceKey) (Once, bool) { return onces.Get(r, k) }

// PutOnce writes it.
func PutOnce(w *store.Writes, k OnceKey, o Once) { onces.Put(w, k, o) }

// Onces walks permanent ids and guards in the order of the file.
func Onces(r store.Reader) iter.Seq2[OnceKey, Once] { return onces.All(r) }
