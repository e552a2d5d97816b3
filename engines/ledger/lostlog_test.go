package ledger_test

import (
	"errors"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/store"
)

// If the last batch does not check, no read presents the state before it as the newest. A payment
// in that batch is reported neither as missing nor as unknown.
func TestSafeModeOfALastBatchThatDoesNotCheck(t *testing.T) {
	r := newRig(t, nil, neverVerified).declare("ron")
	r.accept(issue("alice", 100, 1))
	r.accept(issue("alice", 100, 2))
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Fatal(err)
	}
	log := r.keys(bucket("mlog")) // the last is beside the leaf of the next batch
	pay := transfer("alice", "bob", 7, 1)
	pay.Principal, pay.Reference = "p", "pay/1"
	r.accept(pay)
	if _, err := store.Commit(r.ctx(), r.store, store.Work, lose{bucket("mlog"), log[len(log)-1]}); err != nil {
		t.Fatal(err)
	}
	r.safe = true
	r.reopen()
	if r.l.SafeMode() == "" {
		t.Fatal("not in safe mode")
	}
	if out, err := r.l.Reference(r.ctx(), "p", "pay/1"); errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("the payment is said not to be there: %+v", out)
	}
	for _, account := range []string{"alice", "bob"} {
		b, err := r.l.Balance(r.ctx(), account, "ron", 0)
		if err == nil && b.Posted != amount(map[string]uint64{"alice": 193, "bob": 7}[account]) {
			t.Errorf("%s is said to have %v", account, b.Posted)
		}
	}
}

// In safe mode an op is answered with the outcome recorded under its reference.
func TestSafeModeAnswersReferences(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 200, 1))
	pay := transfer("alice", "bob", 7, 0)
	pay.Principal, pay.Reference = "p", "pay/1"
	r.accept(pay)
	r.l.Bar()
	p, err := r.l.Prepare(r.ctx(), &pay)
	if err != nil || p.Known == nil || !p.Known.Replayed {
		t.Errorf("the same words: %+v, %v", p, err)
	}
	other := pay
	other.Amount = amount(8)
	p, err = r.l.Prepare(r.ctx(), &other)
	if err != nil || p.Known == nil || p.Known.Reject == nil {
		t.Errorf("other words: %+v, %v", p, err)
	}
	fresh := pay
	fresh.Reference = "pay/2"
	if _, err := r.l.Prepare(r.ctx(), &fresh); !errors.Is(err, ledger.ErrSafeMode) {
		t.Errorf("a new reference: %v", err)
	}
}

// Balances that are only read do not fill the memory.
func TestWarmedBalancesAreEvicted(t *testing.T) {
	r := newRig(t, nil).declare("ron").start()
	r.accept(issue("alice", 7, 1))
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.l.Forgetful(0)
	r.accept(issue("bob", 1, 2)) // evicts
	for range 3 {                // a row that is used stays for a round
		if err := r.l.WarmBalance(r.ctx(), "alice", "ron"); err != nil {
			t.Fatal(err)
		}
		if err := r.l.WarmBalance(r.ctx(), "bob", "ron"); err != nil {
			t.Fatal(err)
		}
	}
	b, err := r.l.Balance(r.ctx(), "alice", "ron", 0)
	if err != nil || !b.Cold {
		t.Errorf("%+v, %v: the balance is in memory although there is room for none", b, err)
	}
}
