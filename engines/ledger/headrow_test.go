package ledger_test

import (
	"errors"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/store"
)

// A head row that does not decode puts the ledger into safe mode. No read then returns a lower
// balance, reports a used key as new, or reports an empty ledger.
func TestSafeModeOfAHeadThatDoesNotDecode(t *testing.T) {
	for _, late := range []uint64{0, 1} {
		safeModeOfAHead(t, late)
	}
}

func safeModeOfAHead(t *testing.T, late uint64) {
	for _, row := range []spoil{{2, []byte("head"), 0}, {2, []byte("format"), 0}, {2, []byte("store_key"), 0}, {12, []byte("low_seq"), 0}} {
		r := newRig(t, nil).declare("ron")
		for n := range uint64(4) {
			r.accept(issue("alice", 10, n+1))
		}
		if err := r.l.Flush(r.ctx()); err != nil {
			t.Fatal(err)
		}
		for n := range late {
			r.accept(keyed(issue("alice", 10, n+5), "late"), issue("bob", 10, n+6))
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
		if b, err := r.l.Balance(r.ctx(), "alice", "ron", 0); err == nil && b.Posted != amount(40+10*late) {
			t.Errorf("%s: alice is said to have %v", row.key, b.Posted)
		}
		if a, err := r.l.Assets(r.ctx()); err == nil && (len(a) != 1 || a[0].Issued != amount(40+20*late)) {
			t.Errorf("%s: the assets are said to be %+v", row.key, a)
		}
		if b, err := r.l.Balance(r.ctx(), "bob", "ron", 0); err == nil && b.Posted != amount(10*late) {
			t.Errorf("%s: bob is said to have %v", row.key, b.Posted)
		}
		if _, found, err := r.l.Find(r.ctx(), ledger.DedupeKey{Scope: "alice", Key: "late"}, [32]byte{},
			0); err == nil && !found &&
			late > 0 {
			t.Errorf("%s: a key is said to be new", row.key)
		}
		if h, err := r.l.Head(r.ctx()); err == nil && h.Batches == 0 {
			t.Errorf("%s: the ledger is said to be empty", row.key)
		}
		if p, err := r.l.History(r.ctx(), ledger.HistoryQuery{Account: "alice", Asset: "ron", Limit: 10}); err == nil &&
			len(p.Entries) != int(4+late) {
			t.Errorf("%s: %d postings of alice", row.key, len(p.Entries))
		}
		t.Logf("%s: %s", row.key, r.l.SafeMode())
		r.stop()
	}
}

// In safe mode a read does not wait for a record that can no longer be written.
func TestSafeModeWaitsForNoRecord(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 10, 1))
	r.l.Bar()
	r.safe = true
	if _, err := r.l.Balance(r.ctx(), "alice", "ron", 1000); !errors.Is(err, ledger.ErrSafeMode) {
		t.Errorf("balance after a record that never comes: %v", err)
	}
}
