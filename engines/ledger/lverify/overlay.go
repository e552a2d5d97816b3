package lverify

import (
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// overlay is what the records that are not flushed make of the derived tables: rows over those of the file.
type overlay struct {
	tables.Stored
	balances map[tables.StateKey]tables.Balance
	accounts map[uint64]tables.Account
	names    map[uint64]string
	assets   map[uint32]string
	holds    map[uint64]tables.Hold
	onces    map[tables.OnceKey]tables.Once
	marks    map[tables.MarkKey]uint64
}

var _ tables.Former = (*overlay)(nil)

func newOverlay(r store.Reader) *overlay {
	return &overlay{
		Stored: tables.Stored{Reader: r}, balances: map[tables.StateKey]tables.Balance{}, accounts: map[uint64]tables.Account{},
		names: map[uint64]string{}, assets: map[uint32]string{}, holds: map[uint64]tables.Hold{}, onces: map[tables.OnceKey]tables.Once{},
		marks: map[tables.MarkKey]uint64{},
	}
}

// redo takes a record that may be flushed or not.
func (o *overlay) redo(rec *record.Record) error {
	var c tables.Changes
	if err := c.Derive(rec, o); err != nil {
		return err
	}
	for _, b := range c.Balances() {
		o.balances[b.Key] = b.New
	}
	for _, m := range c.Marks() {
		o.marks[m.MarkKey] = m.Seq
	}
	for _, b := range c.Onces() {
		o.onces[b.Key] = b.New
	}
	if c.Account.Ref != 0 {
		o.accounts[c.Account.Ref] = c.Account.New
	}
	switch {
	case c.Name.Ref == 0:
	case c.Name.Asset:
		o.assets[uint32(c.Name.Ref)] = c.Name.Name
	default:
		o.names[c.Name.Ref] = c.Name.Name
	}
	if c.Hold.Seq != 0 {
		o.holds[c.Hold.Seq] = c.Hold.New
	}
	return nil
}

// Balance is a row with all records.
func (o *overlay) Balance(k tables.StateKey) tables.Balance {
	if b, ok := o.balances[k]; ok {
		return b
	}
	return o.Stored.Balance(k)
}

// Account is a row with all records.
func (o *overlay) Account(ref uint64) tables.Account {
	if a, ok := o.accounts[ref]; ok {
		return a
	}
	return o.Stored.Account(ref)
}

// Hold is a row with all records.
func (o *overlay) Hold(seq uint64) (tables.Hold, bool) {
	if h, ok := o.holds[seq]; ok {
		return h, true
	}
	return o.Stored.Hold(seq)
}

// Once is a row with all records.
func (o *overlay) Once(k tables.OnceKey) (tables.Once, bool) {
	if w, ok := o.onces[k]; ok {
		return w, true
	}
	return o.Stored.Once(k)
}

// Name is that of an account, "" for none.
func (o *overlay) Name(ref uint64) string {
	if name, ok := o.names[ref]; ok {
		return name
	}
	name, _ := tables.Name(o.Reader, ref)
	return name
}

// AssetName is that of an asset, "" for none.
func (o *overlay) AssetName(ref uint32) string {
	if name, ok := o.assets[ref]; ok {
		return name
	}
	name, _ := tables.AssetName(o.Reader, ref)
	return name
}
