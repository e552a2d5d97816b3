package ledgertest

import (
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// A payment's receipt is proven by the ledger that gave it.
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
