package ledger_test

import (
	"testing"

	"ronbox/store"
)

// A row that says where the ledger stands and does not decode puts it into safe mode; nobody is said to have nothing.
func TestSafeModeOfAHeadThatDoesNotDecode(t *testing.T) {
	for _, row := range []spoil{{2, []byte("head"), 0}, {2, []byte("format"), 0}, {2, []byte("store_key"), 0}, {12, []byte("low_seq"), 0}} {
		r := newRig(t, nil).declare("ron")
		for n := range uint64(4) {
			r.accept(issue("alice", 10, n+1))
		}
		if err := r.l.Flush(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if _, err := store.Commit[struct{}](r.ctx(), r.store, store.Work, row); err != nil {
			t.Fatal(err)
		}
		r.safe = true
		r.stop()
		if err := r.boot(); err != nil {
			t.Logf("%s: no boot: %v", row.key, err)
			r.stop()
			continue
		}
		if r.l.SafeMode() == "" {
			t.Errorf("%s: not in safe mode", row.key)
		}
		if b, err := r.l.Balance(r.ctx(), "alice", "ron", 0); err == nil && b.Posted != amount(40) {
			t.Errorf("%s: alice is said to have %v", row.key, b.Posted)
		}
		if a, err := r.l.Assets(r.ctx()); err == nil && (len(a) != 1 || a[0].Issued != amount(40)) {
			t.Errorf("%s: the assets are said to be %+v", row.key, a)
		}
		t.Logf("%s: %s", row.key, r.l.SafeMode())
		r.stop()
	}
}
