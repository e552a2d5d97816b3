package lverify_test

import (
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// scaled returns a file with decimals of ron, by record 3, and of eur, by record 6.
func scaled(t *testing.T) *file {
	t.Helper()
	f := newFile(t).open(true)
	f.do(ledger.Op{Code: record.OpAsset, Asset: "ron"})
	f.do(ledger.Op{Code: record.OpScale, Asset: "ron", Amount: engines.AmountOf(0, 2)})
	f.do(ledger.Op{Code: record.OpScale, Asset: "eur", Amount: engines.AmountOf(0, 3)})
	return f
}

// Decimals are sound before their row is written, after it, and after a rebuild. A row of decimals
// that no record set, or of other ones, and a missing row are found.
func TestScaleRows(t *testing.T) {
	f := scaled(t)
	if rep := f.verify(lverify.Options{}); !rep.OK {
		t.Fatalf("not flushed: %+v", rep.Findings)
	}
	f.flush()
	f.close()
	f.open(false)
	sound := func(what string, want bool) {
		t.Helper()
		if rep := f.verify(lverify.Options{}); rep.OK != want {
			t.Errorf("%s: %+v", what, rep.Findings)
		}
	}
	sound("flushed", true)
	for what, damage := range map[string]scales{
		"other decimals": {1: {Seq: 3, Decimals: 3}},
		"another record": {1: {Seq: 4, Decimals: 2}},
		"one too many":   {3: {Seq: 3, Decimals: 2}},
		"a missing one":  {2: {}},
	} {
		if _, err := store.Commit(t.Context(), f.s, store.Work, damage); err != nil {
			t.Fatal(err)
		}
		sound(what, false)
		if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); err != nil {
			t.Fatal(err)
		}
		sound(what+", rebuilt", true)
	}
}

// scales is a command that writes decimals by asset; the zero Scale deletes a row.
type scales map[uint32]tables.Scale

func (scales) Kind() string { return "ledger.tamper/1" }

func (c scales) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	for asset, s := range c {
		if s == (tables.Scale{}) {
			w.Delete(tables.Scales, []byte{0, 0, 0, byte(asset)})
		} else {
			tables.PutScale(w, asset, s)
		}
	}
	return done, nil
}

// An export and a journal in which decimals are set twice, or by a record of another form, are not
// sound.
func TestForgedScales(t *testing.T) {
	f := scaled(t)
	text := f.export()
	for what, tt := range map[string]struct {
		seq  uint64
		edit func(*record.Record)
	}{
		"twice":          {6, func(r *record.Record) { r.Asset = 1 }},
		"with an owner":  {3, func(r *record.Record) { r.From = 1 }},
		"inside a batch": {3, func(r *record.Record) { r.Flags = record.FlagInner }},
	} {
		forged := forge(t, text, func(r *record.Record) bool {
			if r.Seq == tt.seq {
				tt.edit(r)
			}
			return r.Seq == tt.seq
		})
		if rep := verifyExport(t, forged); rep.OK {
			t.Errorf("%s: not noticed in an export", what)
		}
		if rep := verifyJournal(t, forged, 0); rep.OK {
			t.Errorf("%s: not noticed in a file", what)
		}
	}
	if rep := verifyExport(t, text); !rep.OK {
		t.Errorf("%+v", rep.Findings)
	}
}
