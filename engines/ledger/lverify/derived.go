package lverify

import (
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/engines/merkle"
)

// derived compares the derived tables with what the records make of them: the records were found good.
func (v *file) derived() {
	flushed, c := tables.GetFlushed(v.r), v.chain
	if last, known := tables.Batch(v.r, flushed.Batches); known && last.Last() != flushed.Seq || !known && flushed != (tables.Flushed{}) {
		v.table("flush", 0, "the tables are said to have come to record %d of batch %d, where no batch ends", flushed.Seq, flushed.Batches)
		return
	}
	d := &derived{file: v, over: newOverlay(v.r), flushed: flushed, totals: map[uint32]*totals{}, ends: ends{seed: c.ends.seed}}
	for _, rec := range tables.Records(v.r, flushed.Seq+1, c.seq+1) {
		if err := d.over.redo(rec); err != nil {
			v.table("state", rec.Seq, "%v", err)
			return
		}
		if !v.step() {
			return
		}
	}
	for _, part := range []func(){d.moved, d.recents, d.records, d.states, d.names, d.holds, d.onces, d.marks, d.nodes, d.keys} {
		if part(); v.err != nil || v.rep.full() {
			return
		}
	}
}

// table notes a finding of a table, but for a check that was told to stop: what it did not come to is not missing.
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
}

// records looks from each record at what it must have left: names, holds and permanent ids are never taken back.
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
		case record.OpOnce:
			d.once(rec)
		case record.OpHold:
			d.made(rec)
		case record.OpCapture, record.OpRelease, record.OpExpire:
			if h, ok := d.over.Hold(rec.Hold); !ok || h.Closing != seq || h.Closed != rec.Op {
				d.table("holds", seq, "hold %d is not closed by it", rec.Hold)
			}
		}
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

func (d *derived) once(rec *record.Record) {
	d.bound++
	if w, ok := d.over.Once(tables.OnceKey{Key: rec.Dedupe.Key}); !ok || w.Seq != rec.Seq || w.Digest != rec.Dedupe.Fingerprint {
		d.table("once", rec.Seq, "its permanent id leads to record %d", w.Seq)
	}
	if rec.Guard == (record.Guard{}) {
		return
	}
	var owner b3.Digest
	copy(owner[:], rec.Guard.Owner[:])
	w, ok := d.over.Once(tables.OnceKey{Guard: true, Key: rec.Guard.Key})
	if !ok || w.Seq > rec.Seq || w.Digest != owner {
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
		From: rec.From, To: rec.To, Asset: rec.Asset, Amount: rec.Amount, At: rec.At, Expires: rec.Expires, Closed: h.Closed, Closing: h.Closing,
	}
	if !ok || h != want {
		d.table("holds", rec.Seq, "the hold is not as the record made it")
	}
	if _, open := d.chain.open[rec.Seq]; open != h.Open() {
		d.table("holds", rec.Seq, "the hold is said to be closed by record %d", h.Closing)
	}
}

// moved reads what tokens moved: no record tells it, but each row checks, and none is of a day that the journal has not come to.
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
