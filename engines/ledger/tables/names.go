package tables

import (
	"encoding/binary"
	"iter"

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
	refs  = store.NewTable(bRefs, store.Key[refKey]{
		Append: func(dst []byte, k refKey) []byte { return binary.BigEndian.AppendUint64(append(dst, k.kind), k.ref) },
		Decode: func(b []byte) (refKey, error) {
			if len(b) != 9 {
				return refKey{}, errLength
			}
			return refKey{b[0], binary.BigEndian.Uint64(b[1:])}, nil
		},
	}, textValue()).Summed().Alone()
)

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

// PutName gives an account its ref.
func PutName(w *store.Writes, ref uint64, name string) { putName(w, kindAccount, ref, name) }

// PutAsset gives an asset its ref.
func PutAsset(w *store.Writes, ref uint32, name string) { putName(w, kindAsset, uint64(ref), name) }

func putName(w *store.Writes, kind byte, ref uint64, name string) {
	names.Put(w, nameKey{kind, name}, ref)
	refs.Put(w, refKey{kind, ref}, name)
}
