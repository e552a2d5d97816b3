package lverify

import (
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// derived recomputes the derived tables from the verified records and compares them.
func (v *file) derived() {
	flushed, c := tables.GetFlushed(v.r), v.chain
	if !v.reaches(flushed) {
		v.table("flush", 0, "the tables are said to have come to record %d of batch %d, where no batch ends, "+
			"or a rebuild was interrupted", flushed.Seq, flushed.Batches)
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
		d.moved, d.recents, d.based, d.records, d.states, d.names, d.scales, d.holds, d.onces, d.marks, d.nodes, d.keys,
		d.closed,
	} {
		if part(); v.err != nil || v.rep.full() {
			return
		}
	}
}

// reaches reports whether a batch ends where the tables have come to, at the horizon or after it.
func (v *file) reaches(f tables.Flushed) bool {
	if f.Batches <= v.horizon.Batch {
		return f == tables.Flushed{Seq: v.horizon.Seq, Batches: v.horizon.Batch}
	}
	b, known := tables.Batch(v.r, f.Batches)
	return known && b.Last() == f.Seq
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
	for seq, rec := range tables.Records(d.r, d.horizon.Seq+1, d.chain.seq+1) {
		d.older.take(d, rec)
		switch rec.Op {
		case record.OpOpen:
			d.opened(rec)
		case record.OpAsset:
			if name := d.over.AssetName(rec.Asset); name != rec.Name {
				d.table("refs", seq, "asset %d is called %q, not %q", rec.Asset, name, rec.Name)
			}
		case record.OpScale:
			d.decimals(rec.Asset, tables.Scale{Seq: rec.Seq, Decimals: rec.Decimals()})
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

// decimals checks the decimals of an asset.
func (d *derived) decimals(asset uint32, want tables.Scale) {
	d.scale++
	if s := d.over.Scale(asset); s != want {
		d.table("scales", want.Seq, "asset %d has %d decimals from record %d", asset, s.Decimals, s.Seq)
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
// one before a record that repeats it, which may be of a closed period.
func (d *derived) guard(rec *record.Record) {
	if rec.Guard == (record.Guard{}) {
		return
	}
	var owner b3.Digest
	copy(owner[:], rec.Guard.Owner[:])
	w, ok := d.over.Once(tables.OnceKey{Guard: true, Key: rec.Guard.Key})
	if w.Period != 0 && repeats(rec) {
		return // its words are in the file of the period
	}
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
	closed := merkle.LogCount(d.horizon.Batch)
	least, most := merkle.LogCount(d.flushed.Batches)-closed, merkle.LogCount(d.chain.batch)-closed
	if n := d.rows("ledger/mlog", store.U64().Append(nil, closed)); n < least || n > most {
		d.table("mlog", 0, "it has %d rows, the batches make %d", n, most)
	}
	for i, pos := range merkle.LogPeaks(d.horizon.Batch) {
		if stored, known := tables.LogNode(d.r, pos); !known || stored != d.peaks[i] {
			d.table("mlog", 0, "it has another node, or none, for a peak of the log of closed batches")
		}
	}
}

// rows counts those of a bucket from a key on, whatever they are.
func (d *derived) rows(name string, from []byte) (n uint64) {
	for _, b := range tables.DerivedBuckets() {
		if b.Name == name {
			for range d.r.Range(b, from, nil) {
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
	n, err := idem.Check(d.r, d.horizon.Seq, func(uint64, uint64) error {
		d.err = d.stop()
		return d.err
	})
	if d.rep.Keys = n; err != nil && d.err == nil {
		d.table("idem", 0, "%v", err)
	}
}

// based checks the rows that the base must have left, as records checks those of records.
func (d *derived) based() {
	for ref, was := range d.base.Accounts(0) {
		if a := d.over.Account(ref); a.OpenedSeq != was.OpenedSeq {
			d.table("state", was.OpenedSeq, "account %d is said to be opened by record %d", ref, a.OpenedSeq)
		}
		if !d.step() {
			return
		}
	}
	for ref, was := range d.base.Assets() {
		if was.Scale != (tables.Scale{}) {
			d.decimals(ref, was.Scale)
		}
	}
	var rec record.Record
	for _, h := range d.base.Holds(0) {
		if rec.Decode(h.Record) == nil { // else resume has found it
			d.made(&rec)
		}
	}
	for k, was := range d.base.Onces() {
		d.bound++
		if o, ok := d.over.Once(k); !ok || o != was {
			d.table("once", was.Seq, "the permanent id, or the guard, leads to record %d", o.Seq)
		}
		if !d.step() {
			return
		}
	}
}
