package ledgertest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
)

// The receipt of a payment can be proven by the ledger that returned it.
func TestModelProvesWhatItAnswers(t *testing.T) {
	m := NewModel(NewClock().Now)
	ten := engines.AmountOf(0, 10)
	outs, err := m.Commit(t.Context(), []ledger.Op{
		{Code: record.OpAsset, Asset: "ron"},
		{Code: record.OpIssue, To: "alice", Asset: "ron", Amount: ten, Nonce: 1},
		{Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: ten, Nonce: 1, Memo: "thanks"},
		{Code: record.OpTransfer, From: "alice", To: "bob", Asset: "ron", Amount: ten, Nonce: 2},
	})
	if err != nil || outs[3].Reject == nil || outs[3].Reject.Code != record.InsufficientFunds {
		t.Fatalf("%+v, %v", outs, err)
	}
	for _, out := range outs[:3] {
		p, err := m.Prove(t.Context(), out.Receipt.TxID, 0)
		if err != nil {
			t.Fatal(err)
		}
		if proven, err := p.Verify(); err != nil || proven != out.Receipt {
			t.Errorf("%v: proven %+v, answered %+v", err, proven, out.Receipt)
		}
	}
	if v, err := m.Balance(t.Context(), "bob", "ron", 0); err != nil || v.Posted != ten {
		t.Errorf("%+v, %v", v, err)
	}
}

// An export of a Model verifies like that of a real ledger.
func TestModelsExportIsProven(t *testing.T) {
	for seed := range uint64(8) {
		clock := NewClock()
		m, d := NewModel(clock.Now), NewDice(seed)
		if err := m.Declare(t.Context(), "ron", "silver"); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			clock.Advance(time.Minute)
			ops := d.Call()
			for i := range ops {
				for k := range ops[i].Ops { // as the engine, it does not say in a batch's ops who asked for the batch
					ops[i].Ops[k].Principal = "someone"
				}
			}
			outs, err := m.Commit(t.Context(), ops)
			if err != nil {
				t.Fatal(err)
			}
			for i, out := range outs {
				d.Note(ops[i], out)
			}
			if err := m.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		big := ledger.Op{
			Code:   record.OpBatch,
			Dedupe: ledger.DedupeKey{Scope: "s", Key: "big"},
			Idem:   "big",
			Memo:   "many",
		}
		for i := range 2 * record.MaxResults {
			nonce := d.nonces["sys:issue:ron"] + uint64(i) + 1
			big.Ops = append(
				big.Ops,
				ledger.Op{Code: record.OpIssue, To: "zoe", Asset: "ron", Amount: engines.AmountOf(0, 1), Nonce: nonce},
			)
		}
		pay := []ledger.Op{
			{Code: record.OpTransfer, From: "zoe", To: "yves", Asset: "ron", Amount: engines.AmountOf(0, 1)},
		}
		if outs, err := m.Commit(t.Context(), []ledger.Op{big}); err != nil || outs[0].Reject != nil {
			t.Fatalf("%+v, %v", outs, err)
		}
		if out, err := m.Settle(t.Context(), ledger.Once{Domain: "d", ID: "i"}, pay); err != nil || out.Reject != nil {
			t.Fatalf("%+v, %v", out, err)
		}
		var text bytes.Buffer
		err := m.Export(t.Context(), 0, 0, func(l record.Line) error {
			text.Write(l.Append(nil))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		head, err := m.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if rep, err := lverify.VerifyExport(t.Context(), &text, lverify.Options{}); err != nil || !rep.OK ||
			rep.Head != head {
			t.Fatalf("seed %d: %+v, %v", seed, rep, err)
		}
	}
}

// A reopened model has all the state of the earlier one, except that its time restarts at the last
// stamp of the journal. The earlier model does nothing any more.
func TestReopen(t *testing.T) {
	clock := NewClock()
	m := NewModel(clock.Now)
	if err := m.Declare(t.Context(), "ron"); err != nil {
		t.Fatal(err)
	}
	op := ledger.Op{
		Code:   record.OpIssue,
		To:     "bo",
		Asset:  "ron",
		Amount: engines.AmountOf(0, 1),
		Nonce:  1,
		Idem:   "k",
		Dedupe: ledger.DedupeKey{Scope: "s", Key: "k"},
		TTL:    time.Hour,
	}
	first, err := m.Commit(t.Context(), []ledger.Op{op})
	if err != nil || first[0].Reject != nil {
		t.Fatalf("%+v, %v", first, err)
	}
	clock.Advance(-time.Minute)
	was, _ := m.Head(t.Context())
	next := m.Reopen()
	if _, err := m.Commit(t.Context(), []ledger.Op{op}); !errors.Is(err, ledger.ErrUnavailable) {
		t.Errorf("the one before: %v", err)
	}
	if head, err := next.Head(t.Context()); err != nil || head != was {
		t.Errorf("head %+v, %v, was %+v", head, err, was)
	}
	if again, err := next.Commit(t.Context(), []ledger.Op{op}); err != nil || !again[0].Replayed ||
		again[0].Receipt != first[0].Receipt {
		t.Errorf("again: %+v, %v", again, err)
	}
	op.Dedupe.Key, op.Idem, op.Nonce = "l", "l", 2
	if outs, err := next.Commit(
		t.Context(),
		[]ledger.Op{op},
	); err != nil || outs[0].Receipt.At <= first[0].Receipt.At ||
		outs[0].Receipt.Seq != was.Seq+1 {
		t.Errorf("after it: %+v, %v", outs, err)
	}
}
