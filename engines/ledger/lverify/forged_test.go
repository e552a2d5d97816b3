package lverify_test

import (
	"bytes"
	"slices"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines"
	"ronbox/engines/ledger/record"
)

// forge parses an export, lets edit change records, and recomputes all digests. Only the contents
// of the records are wrong afterwards.
func forge(t testing.TB, text []byte, edit func(r *record.Record) bool) []byte {
	t.Helper()
	var out []byte
	var leaves []b3.Digest
	var prev b3.Digest
	var at int64
	accounts, assets := map[uint64]string{}, map[uint32]string{}
	for line := range bytes.Lines(text) {
		l, err := record.ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		switch l.Kind {
		case record.LineRecord:
			if edit(&l.Record) {
				l.Raw = l.Record.Append(nil)
			}
			leaves = append(leaves, merkle.Leaf(l.Raw))
			switch r := &l.Record; r.Op {
			case record.OpOpen:
				accounts[r.From] = r.Name
			case record.OpAsset:
				assets[r.Asset] = r.Name
			}
			l.Names = record.Names{
				From:  accounts[l.Record.From],
				To:    accounts[l.Record.To],
				Asset: assets[l.Record.Asset],
			}
			at = l.Record.At
		case record.LineBatch:
			l.Batch.At = at
			l.Batch.Merkle, l.Batch.Prev = merkle.Root(leaves), prev
			prev, leaves = l.Batch.Root(), nil
		}
		out = l.Append(out)
	}
	return out
}

// Well-formed records with valid digests but impossible contents are found.
func TestForgedRecords(t *testing.T) {
	text, _, _, _ := exported(t, 7, 150)
	one := engines.AmountOf(0, 1)
	if rep := verifyExport(t, forge(t, text, func(*record.Record) bool { return false })); !rep.OK {
		t.Fatalf("%v", rep.Findings)
	}
	is := func(op record.Op) func(*record.Record) bool { return func(r *record.Record) bool { return r.Op == op } }
	for _, tt := range []struct {
		doc  string
		of   func(*record.Record) bool
		edit func(*record.Record)
	}{
		{"more is moved than the states say", is(record.OpTransfer), func(r *record.Record) { r.Amount, _ = r.Amount.Add(one) }},
		{"money out of nothing", is(record.OpTransfer), func(r *record.Record) {
			r.Images[1].State.CreditsPosted, _ = r.Images[1].State.CreditsPosted.Add(one)
		}},
		{"a payer who pays less", is(record.OpBurn), func(r *record.Record) {
			r.Images[0].State.DebitsPosted, _ = r.Images[0].State.DebitsPosted.Sub(one)
		}},
		{"a day forgotten", is(record.OpTransfer), func(r *record.Record) { r.Images[0].State.DayDebits = engines.Amount{} }},
		{"a state forked", func(r *record.Record) bool { return r.Op == record.OpTransfer && r.Images[0].Prev != 0 }, func(r *record.Record) { r.Images[0].Prev = 0 }},
		{"a nonce used again", func(r *record.Record) bool { return r.Op == record.OpTransfer && r.Nonce > 1 }, func(r *record.Record) { r.Nonce = 1 }},
		{"no nonce", is(record.OpBurn), func(r *record.Record) { r.Nonce = 0 }},
		{"a hold that ends before it begins", is(record.OpHold), func(r *record.Record) { r.Expires = r.At }},
		{"a hold captured too late", is(record.OpCapture), func(r *record.Record) { r.Op = record.OpExpire }},
		{"a capture of another hold", is(record.OpCapture), func(r *record.Record) { r.Hold = 1 }},
		{"a release called a capture", is(record.OpRelease), func(r *record.Record) { r.Op = record.OpCapture }},
		{"a batch that was done otherwise", is(record.OpBatch), func(r *record.Record) {
			if r.Results[0] == 0 {
				r.Results[0] = byte(record.Aborted)
			} else {
				r.Results[0] = 0
			}
		}},
		{"a batch's op outside of it", func(r *record.Record) bool { return r.Op.MovesMoney() && r.Flags&record.FlagInner != 0 }, func(r *record.Record) { r.Flags = 0 }},
		{"an account frozen all along", is(record.OpOpen), func(r *record.Record) { r.Op, r.Name, r.Set = record.OpFlags, "", record.Frozen }},
		{"another time than its batch", is(record.OpTransfer), func(r *record.Record) { r.At++ }},
		{"a transfer called an issue", is(record.OpTransfer), func(r *record.Record) { r.Op = record.OpIssue }},
		{"a burn called a transfer", is(record.OpBurn), func(r *record.Record) { r.Op = record.OpTransfer }},
		{"a settlement in the middle", is(record.OpIssue), func(r *record.Record) {
			r.Dedupe = record.Dedupe{Kind: record.DedupeOnce, Key: [16]byte{1}}
		}},
	} {
		done := false
		forged := forge(t, text, func(r *record.Record) bool {
			if done || !tt.of(r) {
				return false
			}
			done = true
			r.Images = slices.Clone(r.Images)
			tt.edit(r)
			return true
		})
		if !done {
			t.Errorf("%s: no record to forge", tt.doc)
		}
		if rep := verifyExport(t, forged); rep.OK {
			t.Errorf("%s: not noticed", tt.doc)
		}
	}
}
