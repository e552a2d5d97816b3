package tables

import (
	"encoding/binary"
	"iter"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// BaseKind is the kind of a row of the base.
type BaseKind byte

// The kinds, in the order of the file.
const (
	BaseOfAccount BaseKind = 'a' // key: ref of the account
	BaseOfBalance BaseKind = 'b' // key: account, asset
	BaseOfHold    BaseKind = 'h' // key: seq of the hold
	BaseOfOnce    BaseKind = 'o' // key: permanent id or guard of a settlement
	BaseOfAsset   BaseKind = 's' // key: ref of the asset
)

// BaseRow is a row of the base as its bucket has it: what came of all records up to the horizon.
// Key is without generation and kind, Value without checksum.
type BaseRow struct {
	Kind       BaseKind
	Key, Value []byte
}

// BaseAccount is an account after the horizon, with what its readers know of dropped records.
type BaseAccount struct {
	Account
	OpenedAt int64       // Unix ns
	LastTx   record.TxID // of the record that used its last nonce; zero for none
}

// BaseAsset is an asset after the horizon.
type BaseAsset struct {
	Seq        uint64 // of the record that declared it
	DeclaredAt int64  // Unix ns
	Scale      Scale  // the zero Scale: it has no decimals
}

// BaseHold is a hold that was open at the horizon: the record that made it, and its place in the
// log of batch roots up to the peak over its batch.
type BaseHold struct{ record.Inclusion }

// baseTable is the rows of one kind.
type baseTable[K, V any] struct {
	kind  BaseKind
	key   store.Key[K]
	value store.Value[V]
}

const (
	baseAccountSize = accountSize + 8 + 16
	baseAssetSize   = 8 + 8 + 9
)

var (
	baseAccountValue = fixed(1, baseAccountSize,
		func(b []byte, v *BaseAccount) {
			putAccount(b, &v.Account)
			le.PutUint64(b[accountSize:], uint64(v.OpenedAt))
			copy(b[accountSize+8:], v.LastTx[:])
		},
		func(b []byte, v *BaseAccount) error {
			v.OpenedAt = int64(le.Uint64(b[accountSize:]))
			copy(v.LastTx[:], b[accountSize+8:])
			return getAccount(b, &v.Account)
		})
	baseBalanceValue = fixed(balanceV1, balanceSize, putBalance, getBalance)
	baseAssetValue   = fixed(1, baseAssetSize,
		func(b []byte, v *BaseAsset) {
			le.PutUint64(b, v.Seq)
			le.PutUint64(b[8:], uint64(v.DeclaredAt))
			le.PutUint64(b[16:], v.Scale.Seq)
			b[24] = byte(v.Scale.Decimals)
		},
		func(b []byte, v *BaseAsset) error {
			v.Seq, v.DeclaredAt = le.Uint64(b), int64(le.Uint64(b[8:]))
			v.Scale = Scale{le.Uint64(b[16:]), int(b[24])}
			if v.Seq == 0 || v.DeclaredAt < 0 {
				return errNumber
			}
			return nil
		})
	baseHoldValue = store.Value[BaseHold]{Encode: encodeBaseHold, Decode: decodeBaseHold}
)

// encodeBaseHold writes a version, the index, the header, and the path, the log path and the
// record, each after its length.
func encodeBaseHold(h BaseHold) ([]byte, error) {
	b := le.AppendUint64([]byte{1}, h.Index)
	b = h.Header.Append(b)
	for _, path := range [][]b3.Digest{h.Path, h.LogPath} {
		b = append(b, byte(len(path)))
		for _, d := range path {
			b = append(b, d[:]...)
		}
	}
	return append(b, h.Record...), nil
}

func decodeBaseHold(b []byte) (h BaseHold, err error) {
	if len(b) < 1+8+record.BatchSize || b[0] != 1 {
		return h, errVersion
	}
	h.Index = le.Uint64(b[1:])
	if h.Header, err = record.DecodeBatch(b[9 : 9+record.BatchSize]); err != nil {
		return h, err
	}
	b = b[9+record.BatchSize:]
	for _, path := range []*[]b3.Digest{&h.Path, &h.LogPath} {
		if len(b) == 0 || len(b) < 1+int(b[0])*b3.Size {
			return h, errLength
		}
		*path = make([]b3.Digest, b[0])
		b = b[1:]
		for i := range *path {
			b = b[copy((*path)[i][:], b):]
		}
	}
	h.Record = append([]byte(nil), b...)
	return h, nil
}

var (
	baseAccounts = baseTable[uint64, BaseAccount]{BaseOfAccount, store.U64(), baseAccountValue}
	baseBalances = baseTable[StateKey, Balance]{BaseOfBalance, stateKeys(), baseBalanceValue}
	baseHolds    = baseTable[uint64, BaseHold]{BaseOfHold, store.U64(), baseHoldValue}
	baseOnces    = baseTable[OnceKey, Once]{BaseOfOnce, onceKeys(), onceValue()}
	baseAssets   = baseTable[uint32, BaseAsset]{BaseOfAsset, scaleKeys(), baseAssetValue}
)

// Base reads the state after the horizon: one generation of ledger/base.
type Base struct {
	r          store.Reader
	generation uint64 // 0: there is no row
}

// BaseOf returns the base of the horizon. It has no rows in a ledger without closed periods.
func BaseOf(r store.Reader) Base { return Base{r, GetHorizon(r).Generation} }

// BaseAt returns the base of a generation, which may not be complete yet.
func BaseAt(r store.Reader, generation uint64) Base { return Base{r, generation} }

// Account reads an account.
func (b Base) Account(ref uint64) (BaseAccount, bool) { return baseAccounts.get(b, ref) }

// Balance reads a balance.
func (b Base) Balance(k StateKey) (Balance, bool) { return baseBalances.get(b, k) }

// Hold reads a hold that was open at the horizon.
func (b Base) Hold(seq uint64) (BaseHold, bool) { return baseHolds.get(b, seq) }

// Once reads a permanent id, or the guard of a settlement.
func (b Base) Once(k OnceKey) (Once, bool) { return baseOnces.get(b, k) }

// Asset reads an asset.
func (b Base) Asset(ref uint32) (BaseAsset, bool) { return baseAssets.get(b, ref) }

// Accounts walks the accounts from a ref on.
func (b Base) Accounts(from uint64) iter.Seq2[uint64, BaseAccount] { return baseAccounts.from(b, from) }

// Balances walks the balances from a key on.
func (b Base) Balances(from StateKey) iter.Seq2[StateKey, Balance] { return baseBalances.from(b, from) }

// Holds walks the holds from a seq on.
func (b Base) Holds(from uint64) iter.Seq2[uint64, BaseHold] { return baseHolds.from(b, from) }

// Onces walks the guards of settlements, then the permanent ids.
func (b Base) Onces() iter.Seq2[OnceKey, Once] { return baseOnces.from(b, OnceKey{Guard: true}) }

// Assets walks the assets.
func (b Base) Assets() iter.Seq2[uint32, BaseAsset] { return baseAssets.from(b, 0) }

// Rows walks the rows of all kinds in the order of the file. Key and Value are valid until the next
// row.
func (b Base) Rows() iter.Seq[BaseRow] { return b.RowsFrom(BaseRow{}) }

// RowsFrom is Rows from the kind and key of a row on.
func (b Base) RowsFrom(from BaseRow) iter.Seq[BaseRow] {
	return func(yield func(BaseRow) bool) {
		if b.generation == 0 {
			return
		}
		first := append(append(generationKey(b.generation), byte(from.Kind)), from.Key...)
		for key, value := range b.r.Range(bBase, first, generationKey(b.generation+1)) {
			value, err := store.CutSum(key, value)
			if err == nil && len(key) < baseKeyPrefix {
				err = errLength
			}
			if err != nil {
				panic(wrong(bBase, key, "%w", err))
			}
			if !yield(BaseRow{BaseKind(key[baseKeyPrefix-1]), key[baseKeyPrefix:], value}) {
				return
			}
		}
	}
}

// StateRoot returns the root of all rows.
func (b Base) StateRoot() b3.Digest {
	h := NewStateHash()
	for row := range b.Rows() {
		h.Add(row)
	}
	return h.Root()
}

// PutBaseAccount writes an account into a generation.
func PutBaseAccount(w *store.Writes, generation, ref uint64, v BaseAccount) {
	baseAccounts.put(w, generation, ref, v)
}

// PutBaseBalance writes a balance into a generation.
func PutBaseBalance(w *store.Writes, generation uint64, k StateKey, v Balance) {
	baseBalances.put(w, generation, k, v)
}

// PutBaseHold writes an open hold into a generation.
func PutBaseHold(w *store.Writes, generation, seq uint64, v BaseHold) {
	baseHolds.put(w, generation, seq, v)
}

// PutBaseOnce writes a permanent id, or the guard of a settlement, into a generation.
func PutBaseOnce(w *store.Writes, generation uint64, k OnceKey, v Once) {
	baseOnces.put(w, generation, k, v)
}

// PutBaseAsset writes an asset into a generation.
func PutBaseAsset(w *store.Writes, generation uint64, ref uint32, v BaseAsset) {
	baseAssets.put(w, generation, ref, v)
}

// baseKeyPrefix is the length of what comes before the key of a kind: generation and kind.
const baseKeyPrefix = 8 + 1

func generationKey(generation uint64) []byte { return binary.BigEndian.AppendUint64(nil, generation) }

func (t baseTable[K, V]) at(generation uint64, k K) []byte {
	return t.key.Append(append(generationKey(generation), byte(t.kind)), k)
}

func (t baseTable[K, V]) decode(key, value []byte) V {
	value, err := store.CutSum(key, value)
	var v V
	if err == nil {
		v, err = t.value.Decode(value)
	}
	if err != nil {
		panic(wrong(bBase, key, "%w", err))
	}
	return v
}

func (t baseTable[K, V]) get(b Base, k K) (v V, known bool) {
	if b.generation == 0 {
		return v, false
	}
	key := t.at(b.generation, k)
	raw := b.r.Get(bBase, key)
	if raw == nil {
		return v, false
	}
	return t.decode(key, raw), true
}

func (t baseTable[K, V]) from(b Base, from K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if b.generation == 0 {
			return
		}
		end := append(generationKey(b.generation), byte(t.kind)+1)
		for key, value := range b.r.Range(bBase, t.at(b.generation, from), end) {
			k, err := t.key.Decode(key[baseKeyPrefix:])
			if err != nil {
				panic(wrong(bBase, key, "%w", err))
			}
			if !yield(k, t.decode(key, value)) {
				return
			}
		}
	}
}

func (t baseTable[K, V]) put(w *store.Writes, generation uint64, k K, v V) {
	key := t.at(generation, k)
	w.Put(bBase, key, store.AddSum(key, t.row(k, v).Value))
}
