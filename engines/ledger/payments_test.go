package ledger_test

import (
	"slices"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Payments are the records of the journal whatever the number of views that it takes, in both
// directions, from any record to any other.
func TestPaymentsInSlices(t *testing.T) {
	r := newRig(t, nil).declare("ron", "eur")
	r.accept(issue("alice", 1_000_000, 1))
	const n = 2500
	var want []uint64
	for i := range uint64(n) {
		to := "shop"
		if i%20 == 7 {
			to = "rare"
		}
		seq := r.accept(transfer("alice", to, 1, i+1))[0].Receipt.Seq
		if to == "rare" {
			want = append(want, seq)
		}
	}
	head, err := r.l.Head(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	seqs := func(f ledger.PaymentFilter, from, to uint64) (all []uint64) {
		t.Helper()
		if err := r.l.Payments(r.ctx(), f, from, to, func(out *ledger.Outcome) error {
			all = append(all, out.Receipt.Seq)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	rare := ledger.PaymentFilter{Account: "rare", Ops: []record.Op{record.OpTransfer}}
	if got := seqs(rare, 1, head.Seq); !slices.Equal(got, want) {
		t.Errorf("%d of %d: %v", len(got), len(want), got)
	}
	rare.Newest = true
	got := seqs(rare, 1, head.Seq)
	slices.Reverse(got)
	if !slices.Equal(got, want) {
		t.Errorf("newest first: %d of %d: %v", len(got), len(want), got)
	}
	if got := seqs(ledger.PaymentFilter{Asset: "eur"}, 1, head.Seq); got != nil {
		t.Errorf("in eur: %v", got)
	}
	all := seqs(ledger.PaymentFilter{Newest: true}, 100, 300)
	if len(all) != 201 || all[0] != 300 || all[200] != 100 {
		t.Errorf("records 300 to 100: %v", all)
	}
}
