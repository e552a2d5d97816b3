package tables

import (
	"bytes"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// StateHash computes the root of a state, row by row in the order of the file: the digest of each
// row's kind, and of its key and value after their lengths.
type StateHash struct{ h *b3.Hasher }

// NewStateHash returns the hash of no rows.
func NewStateHash() StateHash { return StateHash{b3.New()} }

// Add adds the next row.
func (s StateHash) Add(row BaseRow) {
	var head [9]byte
	head[0] = byte(row.Kind)
	le.PutUint32(head[1:], uint32(len(row.Key)))
	le.PutUint32(head[5:], uint32(len(row.Value)))
	_, _ = s.h.Write(head[:]) // never fails
	_, _ = s.h.Write(row.Key)
	_, _ = s.h.Write(row.Value)
}

// Root returns the root of the rows so far.
func (s StateHash) Root() b3.Digest { return s.h.Sum32() }

var (
	errBaseKind = errors.New("unknown kind of row")
	errBaseHold = errors.New("its record made no hold, or another one")
)

// Open returns the hold as ledger/holds has it while it is open, and an error unless its record is
// the one that made the hold seq.
func (h *BaseHold) Open(seq uint64) (Hold, error) {
	rec, err := record.Decode(h.Record)
	if err == nil && (rec.Op != record.OpHold || rec.Seq != seq) {
		err = errBaseHold
	}
	return Hold{
		From: rec.From, To: rec.To, Asset: rec.Asset, Amount: rec.Amount, At: rec.At, Expires: rec.Expires,
	}, err
}

// Clone returns a copy of row that stays valid.
func (row BaseRow) Clone() BaseRow {
	return BaseRow{row.Kind, bytes.Clone(row.Key), bytes.Clone(row.Value)}
}

// parse decodes a row of the kind of t.
func (t baseTable[K, V]) parse(row BaseRow) (k K, v V, err error) {
	if row.Kind != t.kind {
		return k, v, errBaseKind
	}
	if k, err = t.key.Decode(row.Key); err == nil {
		v, err = t.value.Decode(row.Value)
	}
	return k, v, err
}

// row returns the row of v.
func (t baseTable[K, V]) row(k K, v V) BaseRow {
	value, err := t.value.Encode(v)
	if err != nil {
		panic("tables: a row of the base: " + err.Error()) // each kind has a fixed form
	}
	return BaseRow{t.kind, t.key.Append(nil, k), value}
}

// Account decodes the row of an account.
func (row BaseRow) Account() (ref uint64, a BaseAccount, err error) { return baseAccounts.parse(row) }

// Balance decodes the row of a balance.
func (row BaseRow) Balance() (k StateKey, b Balance, err error) { return baseBalances.parse(row) }

// Hold decodes the row of a hold.
func (row BaseRow) Hold() (seq uint64, h BaseHold, err error) { return baseHolds.parse(row) }

// Once decodes the row of a permanent id or a guard.
func (row BaseRow) Once() (k OnceKey, o Once, err error) { return baseOnces.parse(row) }

// Asset decodes the row of an asset.
func (row BaseRow) Asset() (ref uint32, a BaseAsset, err error) { return baseAssets.parse(row) }

// AccountRow returns the row of an account.
func AccountRow(ref uint64, a BaseAccount) BaseRow { return baseAccounts.row(ref, a) }

// BalanceRow returns the row of a balance.
func BalanceRow(k StateKey, b Balance) BaseRow { return baseBalances.row(k, b) }

// HoldRow returns the row of a hold.
func HoldRow(seq uint64, h BaseHold) BaseRow { return baseHolds.row(seq, h) }

// OnceRow returns the row of a permanent id or a guard.
func OnceRow(k OnceKey, o Once) BaseRow { return baseOnces.row(k, o) }

// AssetRow returns the row of an asset.
func AssetRow(ref uint32, a BaseAsset) BaseRow { return baseAssets.row(ref, a) }

// Restore writes the row of a derived table that a rebuild makes of row: what the records up to the
// horizon had made of it.
func (row BaseRow) Restore(w *store.Writes) error {
	switch row.Kind {
	case BaseOfAccount:
		ref, a, err := row.Account()
		PutAccount(w, ref, a.Account)
		return err
	case BaseOfBalance:
		k, b, err := row.Balance()
		PutBalance(w, k, b)
		return err
	case BaseOfHold:
		seq, b, err := row.Hold()
		if err != nil {
			return err
		}
		h, err := b.Open(seq)
		PutHold(w, seq, h)
		return err
	case BaseOfOnce:
		k, o, err := row.Once()
		PutOnce(w, k, o)
		return err
	case BaseOfAsset:
		ref, a, err := row.Asset()
		if err == nil && a.Scale != (Scale{}) {
			PutScale(w, ref, a.Scale)
		}
		return err
	}
	return errBaseKind
}

// Line returns the line of a period file that shows row. It has the name of an account or an asset.
func (row BaseRow) Line(name string) (l record.BaseLine, err error) {
	l.Row = row.Value
	switch row.Kind {
	case BaseOfAccount:
		l.Base, l.Name = record.BaseAccount, name
		l.Ref, err = store.U64().Decode(row.Key)
	case BaseOfBalance:
		var k StateKey
		k, err = stateKeys().Decode(row.Key)
		l.Base, l.Ref, l.Asset = record.BaseBalance, k.Account, k.Asset
	case BaseOfHold:
		l.Base = record.BaseHold
		l.Seq, err = store.U64().Decode(row.Key)
	case BaseOfOnce:
		var k OnceKey
		k, err = onceKeys().Decode(row.Key)
		l.Base, l.Key = record.BaseOnce, k.Key
		if k.Guard {
			l.Base = record.BaseGuard
		}
	case BaseOfAsset:
		l.Base, l.Name = record.BaseAsset, name
		l.Asset, err = scaleKeys().Decode(row.Key)
	default:
		err = errBaseKind
	}
	return l, err
}

// BaseRowOf returns the row that a line of a period file shows.
func BaseRowOf(l *record.BaseLine) BaseRow {
	row := BaseRow{Value: l.Row}
	switch l.Base {
	case record.BaseAccount:
		row.Kind, row.Key = BaseOfAccount, store.U64().Append(nil, l.Ref)
	case record.BaseBalance:
		row.Kind, row.Key = BaseOfBalance, stateKeys().Append(nil, StateKey{l.Ref, l.Asset})
	case record.BaseHold:
		row.Kind, row.Key = BaseOfHold, store.U64().Append(nil, l.Seq)
	case record.BaseGuard, record.BaseOnce:
		row.Kind = BaseOfOnce
		row.Key = onceKeys().Append(nil, OnceKey{Guard: l.Base == record.BaseGuard, Key: l.Key})
	case record.BaseAsset:
		row.Kind, row.Key = BaseOfAsset, scaleKeys().Append(nil, l.Asset)
	}
	return row
}
