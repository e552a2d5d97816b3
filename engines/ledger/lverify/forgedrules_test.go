package lverify_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// little returns the export of a small ledger with known records. Each call is a batch.
//
//	batch 1: records 1 open sys:issue:ron, 2 asset
//	batch 2: 3 open alice, 4 issue of 100 to her
//	batch 3: 5 flags of alice; batch 4: 6 open bob, 7 flags of bob
//	batch 5: 8 and batch 6: 9 holds of 5 for bob; batches 7 and 8: 10 and 11 their captures
//	batch 9: 12 and 13 transfers of 10 to bob, inside a batch, 14 its results: done, done, refused
//	batches 10 and 11: 15 and 17 settlements, of 16 and 18, transfers of 5 to bob
//	batch 12: 19 transfer of 60 from alice to bob: she has nothing left
func little(t testing.TB) []byte {
	t.Helper()
	f := newFile(t).open(true)
	defer f.close()
	var last ledger.Outcome
	do := func(o ledger.Op) {
		t.Helper()
		f.clock.Advance(time.Second)
		outs, err := f.l.Commit(t.Context(), []ledger.Op{o})
		if err != nil || outs[0].Reject != nil {
			t.Fatalf("%+v, %v", outs, err)
		}
		last = outs[0]
	}
	pay := func(code record.Op, n, nonce uint64) ledger.Op {
		o := ledger.Op{Code: code, From: "alice", To: "bob", Asset: "ron", Amount: engines.AmountOf(0, n), Nonce: nonce}
		if code == record.OpHold {
			o.ExpiresIn = time.Hour
		}
		return o
	}
	do(ledger.Op{Code: record.OpAsset, Asset: "ron"})
	do(ledger.Op{Code: record.OpIssue, To: "alice", Asset: "ron", Amount: engines.AmountOf(0, 100), Nonce: 1})
	do(ledger.Op{Code: record.OpFlags, From: "alice", Clear: record.Frozen})
	do(ledger.Op{Code: record.OpFlags, From: "bob", Clear: record.Frozen})
	do(pay(record.OpHold, 5, 1))
	first := last.Receipt.TxID
	do(pay(record.OpHold, 5, 2))
	second := last.Receipt.TxID
	do(ledger.Op{Code: record.OpCapture, Hold: first})
	do(ledger.Op{Code: record.OpCapture, Hold: second})
	do(
		ledger.Op{
			Code: record.OpBatch,
			Ops: []ledger.Op{
				pay(record.OpTransfer, 10, 3),
				pay(record.OpTransfer, 10, 4),
				pay(record.OpTransfer, 1000, 5),
			},
		},
	)
	for _, id := range []string{"one", "two"} {
		f.clock.Advance(time.Second)
		once := ledger.Once{
			Domain: "d",
			ID:     id,
			Digest: b3.Sum([]byte(id)),
			Guard:  ledger.Guard{Key: "tenant", Owner: "run"},
		}
		if out, err := f.l.Settle(t.Context(), once, []ledger.Op{pay(record.OpTransfer, 5, 0)}); err != nil ||
			out.Reject != nil {
			t.Fatalf("%+v, %v", out, err)
		}
	}
	do(pay(record.OpTransfer, 60, 5))
	do(ledger.Op{Code: record.OpIssue, To: "alice", Asset: "ron", Amount: engines.AmountOf(0, 10), Nonce: 2})
	refer := func(o ledger.Op, reference string) ledger.Op {
		o.Reference = reference
		return o
	}
	do(refer(pay(record.OpTransfer, 1, 6), "one"))
	do(refer(pay(record.OpTransfer, 1, 7), "two"))
	do(ledger.Op{Code: record.OpBatch, Ops: []ledger.Op{
		refer(pay(record.OpTransfer, 1, 8), "three"), refer(pay(record.OpTransfer, 1, 9), "one"),
	}})
	return f.export()
}

// journalOf is a command that writes the journal of an export and, of the derived tables, only the
// names.
type journalOf []byte

func (journalOf) Kind() string { return "ledger.tamper/1" }

func (c journalOf) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	var raws [][]byte
	var head tables.Head
	tables.PutGenesis(w, tables.StoreKey{1})
	for line := range bytes.Lines(c) {
		l, err := record.ParseLine(line)
		if err != nil {
			return done, err
		}
		switch l.Kind {
		case record.LineRecord:
			switch raws = append(raws, l.Raw); l.Record.Op {
			case record.OpOpen:
				head.Accounts++
				tables.PutName(w, l.Record.From, l.Record.Name)
			case record.OpAsset:
				head.Assets++
				tables.PutAsset(w, l.Record.Asset, l.Record.Name)
			case record.OpHold:
				head.OpenHolds++
			case record.OpCapture:
				head.OpenHolds--
			}
		case record.LineBatch:
			tables.PutBatch(w, &head, &l.Batch, raws)
			raws = nil
		}
	}
	tables.PutHead(w, head)
	return done, nil
}

// verifyJournal checks the journal of a forged export in a file, starting with batch from.
func verifyJournal(t *testing.T, text []byte, from uint64) lverify.Report {
	t.Helper()
	tx := storetest.NewTx(t, tables.Buckets()...)
	if _, err := storetest.Do(tx, journalOf(text)); err != nil {
		t.Fatal(err)
	}
	rep, err := lverify.Verify(t.Context(), tx.Reader(), lverify.Options{From: from})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// A journal that breaks any rule of the ledger is found, in a file and in an export, even if all
// its digests are valid.
func TestForgedRules(t *testing.T) {
	text := little(t)
	batch := map[uint64]uint64{} // of records
	forge(t, text, func(r *record.Record) bool { batch[r.Seq] = r.Batch; return false })
	if len(batch) != 25 || !verifyJournal(t, text, 0).OK || !verifyExport(t, text).OK {
		t.Fatalf("%d records; %v, %v", len(batch), verifyJournal(t, text, 0).Findings, verifyExport(t, text).Findings)
	}
	five := engines.AmountOf(0, 5)
	more := func(a *engines.Amount) { *a, _ = a.Add(five) }
	for _, tt := range []struct {
		doc  string
		tail bool // a check from the batch on finds it too
		edit map[uint64]func(r *record.Record)
	}{
		{"a payer without funds", true, map[uint64]func(*record.Record){19: func(r *record.Record) {
			more(&r.Amount)
			more(&r.Images[0].State.DebitsPosted)
			more(&r.Images[0].State.DayDebits)
			more(&r.Images[1].State.CreditsPosted)
		}}},
		{"a nonce that was used", false, map[uint64]func(*record.Record){19: func(r *record.Record) { r.Nonce = 4 }}},
		{"a hold resolved twice", false, map[uint64]func(*record.Record){11: func(r *record.Record) { r.Hold = 8 }}},
		{"a hold resolved before it was made", true, map[uint64]func(*record.Record){10: func(r *record.Record) { r.Hold = 12 }}},
		{"a hold captured after its time", false, map[uint64]func(*record.Record){8: func(r *record.Record) { r.Expires = r.At + 1 }}},
		{"an account that is frozen pays", false, map[uint64]func(*record.Record){5: func(r *record.Record) { r.Set, r.Clear = record.Frozen, 0 }}},
		{"an account that may not be credited is", false, map[uint64]func(*record.Record){7: func(r *record.Record) { r.Set, r.Clear = record.NoCredit, 0 }}},
		{"a name given twice", false, map[uint64]func(*record.Record){6: func(r *record.Record) { r.Name = "alice" }}},
		{"an asset that someone else issues", false, map[uint64]func(*record.Record){1: func(r *record.Record) { r.Name = "mallory" }}},
		{"an issuance account without an asset", true, map[uint64]func(*record.Record){6: func(r *record.Record) { r.Name = "sys:issue:gold" }}},
		{"an account opened for nothing", true, map[uint64]func(*record.Record){7: func(r *record.Record) { r.From = 2 }}},
		{"a permanent id used twice", false, map[uint64]func(*record.Record){17: func(r *record.Record) { r.Dedupe.Key = settledKey(t, text, 15) }}},
		{"a guard of two owners", false, map[uint64]func(*record.Record){17: func(r *record.Record) { r.Guard.Owner[0]++ }}},
		{"a settlement that does not stand or fall as a whole", true, map[uint64]func(*record.Record){15: func(r *record.Record) { r.Flags = 0 }}},
		{"an atomic batch done in part", true, map[uint64]func(*record.Record){
			12: func(r *record.Record) { r.Flags |= record.FlagAtomic },
			13: func(r *record.Record) { r.Flags |= record.FlagAtomic },
			14: func(r *record.Record) { r.Flags |= record.FlagAtomic },
		}},
		{"an op of another kind than its batch", true, map[uint64]func(*record.Record){13: func(r *record.Record) { r.Flags |= record.FlagAtomic }}},
		{"a payment alone that is said to be part of a whole", true, map[uint64]func(*record.Record){19: func(r *record.Record) { r.Flags = record.FlagAtomic }}},
		{"a strange op among those of a batch", true, map[uint64]func(*record.Record){
			13: func(r *record.Record) { r.Flags = 0 },
			14: func(r *record.Record) { r.Results[1] = byte(record.NonceGap) },
		}},
		{"a batch of which nothing was done", true, map[uint64]func(*record.Record){
			12: func(r *record.Record) { r.Flags = 0 }, 13: func(r *record.Record) { r.Flags = 0 },
			14: func(r *record.Record) { r.Results[0], r.Results[1] = byte(record.NonceGap), byte(record.NonceGap) },
		}},
		{"a refusal that no batch records", true, map[uint64]func(*record.Record){14: func(r *record.Record) { r.Results[2] = byte(record.Aborted) }}},
		{"time that stands", true, map[uint64]func(*record.Record){5: func(r *record.Record) { r.At -= int64(time.Second) }}},
		{"a state forked off an older one", true, map[uint64]func(*record.Record){19: func(r *record.Record) { r.Images[0].Prev = 13 }}},
		{"a state begun anew", false, map[uint64]func(*record.Record){12: func(r *record.Record) { r.Images[1].Prev = 0 }}},
		{"a change of flags with a reference", true, map[uint64]func(*record.Record){5: func(r *record.Record) { r.Guard.Key[0] = 1 }}},
		{"a reference of two payments", false, map[uint64]func(*record.Record){22: func(r *record.Record) { r.Guard = guardOf(t, text, 21) }}},
		{"a repetition without a reference", true, map[uint64]func(*record.Record){24: func(r *record.Record) { r.Guard = record.Guard{} }}},
		{"a repetition of nothing", false, map[uint64]func(*record.Record){24: func(r *record.Record) { r.Guard.Key[0]++ }}},
		{"a repetition of other words", false, map[uint64]func(*record.Record){24: func(r *record.Record) { r.Guard.Owner[0]++ }}},
		{"a repetition outside of a batch", true, map[uint64]func(*record.Record){24: func(r *record.Record) { r.Flags = 0 }}},
		{"a repetition that the results do not tell", true, map[uint64]func(*record.Record){25: func(r *record.Record) { r.Results[1] = byte(record.NonceGap) }}},
		{"results that tell of one more", true, map[uint64]func(*record.Record){14: func(r *record.Record) { r.Results[2] = byte(record.Replayed) }}},
		{"a payment that sets flags", true, map[uint64]func(*record.Record){19: func(r *record.Record) { r.Set = record.Frozen }}},
		{"an opening with a memo", true, map[uint64]func(*record.Record){3: func(r *record.Record) { r.Memo = "m" }}},
		{"flags in an asset", true, map[uint64]func(*record.Record){5: func(r *record.Record) { r.Asset = 1 }}},
		{"a batch from someone", true, map[uint64]func(*record.Record){14: func(r *record.Record) { r.From = 2 }}},
		{"a payment that ends a hold", true, map[uint64]func(*record.Record){19: func(r *record.Record) { r.Hold = 8 }}},
		{"an op of a batch with a key of its own", true, map[uint64]func(*record.Record){13: func(r *record.Record) { r.Dedupe.Kind = record.DedupeKey }}},
		{"an op of a batch with a principal", true, map[uint64]func(*record.Record){13: func(r *record.Record) { r.Principal[0] = 1 }}},
	} {
		from := uint64(1 << 60)
		forged := forge(t, text, func(r *record.Record) bool {
			edit := tt.edit[r.Seq]
			if edit == nil {
				return false
			}
			r.Images = slices.Clone(r.Images)
			edit(r)
			from = min(from, r.Batch)
			return true
		})
		if rep := verifyExport(t, forged); rep.OK {
			t.Errorf("%s: not noticed in an export", tt.doc)
		}
		if rep := verifyJournal(t, forged, 0); rep.OK {
			t.Errorf("%s: not noticed in a file", tt.doc)
		}
		if rep := verifyJournal(t, forged, max(2, from-1)); tt.tail && rep.OK {
			t.Errorf("%s: not noticed from batch %d on", tt.doc, from-1)
		}
	}
}

// guardOf returns the guard of a record.
func guardOf(t *testing.T, text []byte, seq uint64) (g record.Guard) {
	forge(t, text, func(r *record.Record) bool {
		if r.Seq == seq {
			g = r.Guard
		}
		return false
	})
	return g
}

// settledKey returns the hashed id of a settlement.
func settledKey(t *testing.T, text []byte, seq uint64) (key [16]byte) {
	forge(t, text, func(r *record.Record) bool {
		if r.Seq == seq {
			key = r.Dedupe.Key
		}
		return false
	})
	return key
}
