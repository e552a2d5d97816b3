package ledger_test

import (
	"testing"
)

// A balance that has left memory is read from the file until it is warmed.
func TestWarmBalance(t *testing.T) {
	r := newRig(t, nil).declare("ron").start()
	r.accept(issue("alice", 7, 1))
	for done := false; !done; {
		var err error
		if done, err = r.l.FlushSlice(r.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	r.l.Forgetful(0)
	r.accept(issue("bob", 1, 2)) // evicts
	r.l.Forgetful(1 << 16)
	read := func(cold bool) {
		t.Helper()
		b, err := r.l.Balance(r.ctx(), "alice", "ron", 0)
		if err != nil || b.Posted != amount(7) || b.Cold != cold {
			t.Errorf("%+v, %v; want cold %t", b, err, cold)
		}
	}
	read(true)
	for _, account := range []string{"alice", "nobody"} {
		if err := r.l.WarmBalance(r.ctx(), account, "ron"); err != nil {
			t.Errorf("%s: %v", account, err)
		}
	}
	read(false)
	r.accept(issue("bob", 1, 3))
	read(false)
}
