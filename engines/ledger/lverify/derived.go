package lverify

import (
	"fmt"
	"iter"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// derived recomputes the derived tables from the verified records and compares them.
func (v *file) derived() {
	flushed, c := tables.GetFlushed(v.r), v.chain
	if last, known := tables.Batch(v.r, flushed.Batches); known && last.Last() != flushed.Seq ||
		!known && flushed != (tables.Flushed{}) {
		v.table("flush", 0, "the tables are said to have come to record %d of batch %d, where no batch ends",
			flushed.Seq, flushed.Batches)
		return
	}
	d := &derived{
		file:    v,
		over:    newOverlay(v.r),
		flushed: flushed,
		totals:  map[uint32]*totals{},
		ends:    ends{seed: c.ends.seed},
	}
	for _, rec := range tables.Records(v.r, flushed.Seq+1, c.seq+1) {
		if err := d.over.redo(rec); err != nil {
			v.table("state", rec.Seq, "%v", err)
			return
		}
		if !v.step() {
			return
		}
	}
	for _, part := range []func(){
		d.moved, d.recents, d.records, d.states, d.names, d.scales, d.holds, d.onces, d.marks, d.nodes, d.keys,
		d.closed,
	} {
		if part(); v.err != nil || v.rep.full() {
			return
		}
	}
}

// table adds a finding about a table, unless the check was told to stop: rows that it did not reach
// are not missing.
func (v *file) table(where string, seq uint64, format string, args ...any) {
	if v.err != nil {
		return
	}
	v.rep.found(Finding{Where: where, Seq: seq, Detail: fmt.Sprintf(format, args...)})
}

// derived is the second half of a check.
type derived struct {
	*file
	over    *overlay
	older   olderRows
	flushed tables.Flushed
	totals  map[uint32]*totals
	ends    ends
	bound   uint64 // permanent ids and guards that records have bound
	held    uint64 // holds that records have made
	scale   uint64 // assets that records have given decimals
}

// records checks the rows that each record must have left: names, holds and permanent ids are never
// deleted.
func (d *derived) records() {
	for seq, rec := range tables.Records(d.r, 1, d.chain.seq+1) {
		d.older.take(d, rec)
		switch rec.Op {
		case record.OpOpen:
			d.opened(rec)
		case record.OpAsset:
			if name := d.over.AssetName(rec.Asset); name != rec.Name {
				d.table("refs", seq, "asset %d is called %q, not %q", rec.Asset, name, rec.Name)
			}
		case record.OpScale:
			d.scaled(rec)
		case record.OpOnce:
			d.once(rec)
		case record.OpHold:
			d.made(rec)
		case record.OpCapture, record.OpRelease, record.OpExpire:
			if h, ok := d.over.Hold(rec.Hold); !ok || h.Closing != seq || h.Closed != rec.Op {
				d.table("holds", seq, "hold %d is not closed by it", rec.Hold)
			}
		}
		d.guard(rec)
		if !d.step() {
			return
		}
	}
	d.older.end(d)
}

func (d *derived) opened(rec *record.Record) {
	if name := d.over.Name(rec.From); name != rec.Name {
		d.table("refs", rec.Seq, "account %d is called %q, not %q", rec.From, name, rec.Name)
	}
	if a := d.over.Account(rec.From); a.OpenedSeq != rec.Seq {
		d.table("state", rec.Seq, "account %d is said to be opened by record %d", rec.From, a.OpenedSeq)
	}
}

func (d *derived) scaled(rec *record.Record) {
	d.scale++
	if s := d.over.Scale(rec.Asset); s != (tables.Scale{Seq: rec.Seq, Decimals: rec.Decimals()}) {
		d.table("scales", rec.Seq, "asset %d has %d decimals from record %d", rec.Asset, s.Decimals, s.Seq)
	}
}

func (d *derived) once(rec *record.Record) {
	if repeats(rec) {
		return
	}
	d.bound++
	if w, ok := d.over.Once(tables.OnceKey{Key: rec.Dedupe.Key}); !ok || w.Seq != rec.Seq ||
		w.Digest != rec.Dedupe.Fingerprint {
		d.table("once", rec.Seq, "its permanent id leads to record %d", w.Seq)
	}
}

// guard looks for the row of a record's guard. A reference was bound by the record itself, or by
// one before a record that repeats it.
func (d *derived) guard(rec *record.Record) {
	if rec.Guard == (record.Guard{}) {
		return
	}
	var owner b3.Digest
	copy(owner[:], rec.Guard.Owner[:])
	w, ok := d.over.Once(tables.OnceKey{Guard: true, Key: rec.Guard.Key})
	late := w.Seq > rec.Seq || repeats(rec) && w.Seq == rec.Seq || rec.Op.MovesMoney() && w.Seq != rec.Seq
	if !ok || late || w.Digest != owner {
		d.table("once", rec.Seq, "its guard leads to record %d, or to another owner", w.Seq)
	}
	if w.Seq == rec.Seq {
		d.bound++
	}
}

func (d *derived) made(rec *record.Record) {
	d.held++
	h, ok := d.over.Hold(rec.Seq)
	want := tables.Hold{
		From:    rec.From,
		To:      rec.To,
		Asset:   rec.Asset,
		Amount:  rec.Amount,
		At:      rec.At,
		Expires: rec.Expires,
		Closed:  h.Closed,
		Closing: h.Closing,
	}
	if !ok || h != want {
		d.table("holds", rec.Seq, "the hold is not as the record made it")
	}
	if _, open := d.chain.open[rec.Seq]; open != h.Open() {
		d.table("holds", rec.Seq, "the hold is said to be closed by record %d", h.Closing)
	}
}

// moved reads the amounts moved by tokens. Records do not show them, but each row must have a valid
// checksum and a day that is not after the journal's.
func (d *derived) moved() {
	for k := range tables.Moved(d.r) {
		if int64(k.Day) > d.chain.at/int64(24*time.Hour) {
			d.table("moved", 0, "it has a row of day %d, which is to come", k.Day)
		}
		if !d.step() {
			return
		}
	}
}

// nodes counts the rows of the log of batch roots: each that must be there was compared.
func (d *derived) nodes() {
	n, least, most := d.rows("ledger/mlog"), merkle.LogCount(d.flushed.Batches), merkle.LogCount(d.chain.batch)
	if n < least || n > most {
		d.table("mlog", 0, "it has %d rows, the batches make %d", n, most)
	}
}

// rows counts those of a bucket, whatever they are.
func (d *derived) rows(name string) (n uint64) {
	for _, b := range tables.DerivedBuckets() {
		if b.Name == name {
			for range d.r.Range(b, nil, nil) {
				if n++; !d.step() {
					return n
				}
			}
		}
	}
	return n
}

// keys checks the sealed runs of the idempotency index.
func (d *derived) keys() {
	n, err := idem.Check(d.r, func(uint64, uint64) error {
		d.err = d.stop()
		return d.err
	})
	if d.rep.Keys = n; err != nil && d.err == nil {
		d.table("idem", 0, "%v", err)
	}
}

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
				d.older.accounts[k.Account] = olderAccount{row: a}
			}
		} else if b, both := tables.GetBalance(d.r, k.Account, k.Asset); both {
			before = b.State.LastSeq
			d.stored(k, &b)
			d.older.balances[k] = olderBalance{seq: before, postings: b.Postings}
		}
		if seq <= before {
			d.table("recent", seq, "account %d, asset %d: ledger/state has a row that is as new", k.Account, k.Asset)
		}
		if !d.step() {
			return
		}
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
