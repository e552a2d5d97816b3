package lverify

import (
	"iter"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// olderRows are the rows of ledger/state that have a newer row in ledger/recent. They are not read
// at present, but they must match an earlier state of the newer row.
type olderRows struct {
	balances map[tables.StateKey]olderBalance
	accounts map[uint64]olderAccount
	met      int // how many the records have come by
}

// olderBalance is such a balance. Its state was compared with its record.
type olderBalance struct {
	seq           uint64 // of that record
	postings, now uint64 // as the row counts them, and up to the record at hand
}

type olderAccount struct{ row, now tables.Account }

// recents checks that rows of ledger/recent are newer than those of ledger/state, and keeps what
// they stand before.
func (d *derived) recents() {
	d.older = olderRows{balances: map[tables.StateKey]olderBalance{}, accounts: map[uint64]olderAccount{}}
	for k, row := range tables.Recents(d.r, nil) {
		seq, before := row.Balance.State.LastSeq, uint64(0)
		if k.Asset == 0 {
			seq = row.Account.LastSeq
			if a, both := tables.GetAccount(d.r, k.Account); both {
				before = a.LastSeq
				d.olderAccount(k.Account, a)
			}
		} else if b, both := tables.GetBalance(d.r, k.Account, k.Asset); both {
			before = b.State.LastSeq
			d.olderBalance(k, &b)
		}
		if seq <= before {
			d.table("recent", seq, "account %d, asset %d: ledger/state has a row that is as new", k.Account, k.Asset)
		}
		if !d.step() {
			return
		}
	}
}

// olderAccount keeps a row that has a newer one. The base begins its count; a row before the base
// is of a record that may be dropped, and nothing tells what it was.
func (d *derived) olderAccount(ref uint64, a tables.Account) {
	was, _ := d.base.Account(ref)
	d.older.accounts[ref] = olderAccount{row: a, now: was.Account}
	if a.LastSeq > d.horizon.Seq {
		return
	}
	if d.older.met++; a.LastSeq > was.LastSeq || a.LastSeq == was.LastSeq && a != was.Account {
		d.table("state", a.LastSeq, "account %d: the row is not that of the base", ref)
	}
}

// olderBalance is olderAccount for a balance.
func (d *derived) olderBalance(k tables.StateKey, b *tables.Balance) {
	was, _ := d.base.Balance(k)
	seq := b.State.LastSeq
	if seq >= was.State.LastSeq {
		d.stored(k, b)
	}
	if d.older.balances[k] = (olderBalance{seq, b.Postings, was.Postings}); seq <= d.horizon.Seq {
		d.older.met++
	}
}

// take goes on by a record, and checks the rows that it made.
func (o *olderRows) take(d *derived, rec *record.Record) {
	if o.met == len(o.balances)+len(o.accounts) {
		return
	}
	for i := range rec.Images {
		k := tables.StateKey{Account: rec.Images[i].Account, Asset: rec.Images[i].Asset}
		b, has := o.balances[k]
		if !has || rec.Seq > b.seq {
			continue
		}
		b.now++
		o.balances[k] = b
		if rec.Seq == b.seq {
			o.meet(d, k, rec.Seq, b.now == b.postings)
		}
	}
	a, has := o.accounts[rec.From]
	if !has || rec.Seq > a.row.LastSeq || !tables.ChangesAccount(rec) {
		return
	}
	a.now, _ = a.now.After(rec)
	o.accounts[rec.From] = a
	if rec.Seq == a.row.LastSeq {
		o.meet(d, tables.StateKey{Account: rec.From}, rec.Seq, a.now == a.row)
	}
}

// meet notes that the records have come by a row.
func (o *olderRows) meet(d *derived, k tables.StateKey, seq uint64, same bool) {
	if o.met++; !same {
		d.table(
			"state",
			seq,
			"account %d, asset %d: the row is not what the records up to there make, "+
				"though a newer one is in ledger/recent",
			k.Account,
			k.Asset,
		)
	}
}

// end looks for rows that no record made.
func (o *olderRows) end(d *derived) {
	if all := len(o.balances) + len(o.accounts); o.met != all {
		d.table("state", 0, "the records make %d of %d rows that have a newer one in ledger/recent", o.met, all)
	}
}

// newest walks accounts and balances, each as the newer of its rows has it; first those of
// ledger/state alone.
func (d *derived) newest() iter.Seq2[tables.StateKey, tables.Row] {
	return func(yield func(tables.StateKey, tables.Row) bool) {
		for k, row := range tables.States(d.r, tables.StateKey{}) {
			_, older := d.older.balances[k]
			if k.Asset == 0 {
				_, older = d.older.accounts[k.Account]
			}
			if !older && !yield(k, row) {
				return
			}
		}
		for k, row := range tables.Recents(d.r, nil) {
			if !yield(k, row) {
				return
			}
		}
	}
}
