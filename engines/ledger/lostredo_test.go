package ledger_test

import (
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// If an account row is lost, the redo of a record that used one of its nonces does not open the
// account again. A new account would lose its flags.
func TestLostAccountIsNotRedone(t *testing.T) {
	const alice = 2
	r := newRig(t, nil, neverVerified).declare("ron")
	r.accept(issue("alice", 100, 1))
	r.accept(ledger.Op{Code: record.OpFlags, From: "alice", Set: record.NoCredit})
	for range 8 {
		if _, err := r.l.FlushSlice(r.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.keys(bucket("recent"))); n != 0 {
		t.Fatalf("%d rows are recent", n)
	}
	if _, err := r.l.Commit(r.ctx(), []ledger.Op{issue("alice", 1, 2)}); err != nil {
		t.Fatal(err)
	}
	if outs, _ := r.l.Commit(r.ctx(), []ledger.Op{issue("alice", 1, 3)}); outs[0].Reject == nil {
		t.Fatal("alice takes credit")
	}
	r.accept(transfer("alice", "carol", 1, 1)) // not flushed: redone
	if _, err := store.Commit(r.ctx(), r.store, store.Work,
		lose{bucket("state"), []byte{7: alice, 11: 0}}); err != nil {
		t.Fatal(err)
	}
	r.safe = true
	r.reopen()
	if outs, err := r.l.Commit(r.ctx(), []ledger.Op{issue("alice", 1, 2)}); r.l.SafeMode() == "" {
		t.Errorf("not in safe mode: %+v, %v", outs, err)
	}
}
