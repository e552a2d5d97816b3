package ledger

import (
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// The committer rejects an op if its debits and credits differ, or if it leaves the payer with a
// negative balance.
func TestAssertConserved(t *testing.T) {
	sum := func(n uint64) engines.Amount { return engines.AmountOf(0, n) }
	type change = func(from, to *record.State)
	for _, tt := range []struct {
		name   string
		issues bool
		change change
		panics bool
	}{
		{"nothing", false, func(_, _ *record.State) {}, false},
		{"a payment", false, func(from, to *record.State) { from.DebitsPosted, to.CreditsPosted = sum(30), sum(20) }, false},
		{"more debited", false, func(from, to *record.State) { from.DebitsPosted, to.CreditsPosted = sum(31), sum(20) }, true},
		{"more credited", false, func(from, to *record.State) { from.DebitsPosted, to.CreditsPosted = sum(30), sum(21) }, true},
		{"a hold", false, func(from, to *record.State) { from.DebitsHeld, to.CreditsHeld = sum(15), sum(25) }, false},
		{"holds that grow apart", false, func(from, to *record.State) { from.DebitsHeld, to.CreditsHeld = sum(15), sum(26) }, true},
		{"a hold that ends", false, func(from, to *record.State) { from.DebitsHeld, to.CreditsHeld = sum(5), sum(15) }, false},
		{"holds that shrink apart", false, func(from, to *record.State) { from.DebitsHeld, to.CreditsHeld = sum(5), sum(14) }, true},
		{"one hold that grows and one that shrinks", false, func(from, to *record.State) { from.DebitsHeld, to.CreditsHeld = sum(15), sum(15) }, true},
		{"below zero", false, func(from, to *record.State) { from.DebitsPosted, to.CreditsPosted = sum(101), sum(91) }, true},
		{"below zero with what is held", false, func(from, to *record.State) { from.DebitsPosted, to.CreditsPosted = sum(91), sum(81) }, true},
		{"an issue", true, func(from, to *record.State) { from.DebitsPosted, to.CreditsPosted = sum(101), sum(91) }, false},
	} {
		from := record.State{CreditsPosted: sum(100), DebitsPosted: sum(20), DebitsHeld: sum(10)}
		to := record.State{CreditsPosted: sum(10), CreditsHeld: sum(20)}
		m := &move{
			from: side{account: &tables.Account{}, state: &from, issues: tt.issues},
			to:   side{account: &tables.Account{}, state: &to},
		}
		was := m.balances()
		tt.change(&from, &to)
		if got := panics(func() { m.assertConserved(was) }); got != tt.panics {
			t.Errorf("%s: panics %v", tt.name, got)
		}
	}
}

func panics(fn func()) (did bool) {
	defer func() { did = recover() != nil }()
	fn()
	return false
}
