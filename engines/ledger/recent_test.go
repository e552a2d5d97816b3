package ledger

import (
	"testing"

	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store/storetest"
)

// payee is the balance that issueOf pays.
var payee = tables.StateKey{Account: 2, Asset: 1}

// pass flushes everything at once.
func (s *stage) pass(t *testing.T) {
	t.Helper()
	if p := s.b.newPass(); p != nil {
		if _, err := storetest.Do(s.tx, flush{pass: p, rows: 1 << 10}); err != nil {
			t.Fatal(err)
		}
	}
	s.end()
}

// where returns the seqs of a row in its own table and in the recent table.
func (s *stage) where(k tables.StateKey) (home, recent uint64) {
	if b, ok := tables.GetBalance(s.tx.Reader(), k.Account, k.Asset); ok {
		home = b.State.LastSeq
	}
	for at, row := range tables.Recents(s.tx.Reader(), nil) {
		if at == k {
			recent = row.Balance.State.LastSeq
		}
	}
	return home, recent
}

// A row that changes repeatedly between passes is kept in the recent table, and moves to its own
// table after some passes without changes.
func TestBusyRowsLieTogether(t *testing.T) {
	s := newStage(t)
	s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}})
	s.do(t, issueOf(1))
	s.end()
	s.pass(t)
	once := s.b.cur.Seq
	if home, recent := s.where(payee); home != once || recent != 0 {
		t.Fatalf("changed once: it is at home as of %d, recent as of %d", home, recent)
	}
	s.do(t, issueOf(2))
	s.do(t, issueOf(3))
	s.end()
	s.pass(t)
	twice := s.b.cur.Seq
	if home, recent := s.where(payee); home != once || recent != twice {
		t.Fatalf("changed twice: it is at home as of %d, recent as of %d, want %d and %d", home, recent, once, twice)
	}
	for range recentRests {
		s.pass(t)
	}
	if home, recent := s.where(payee); home != once || recent != twice {
		t.Fatalf("at rest: it is at home as of %d, recent as of %d", home, recent)
	}
	if n := s.b.dirty(); n != 0 {
		t.Errorf("%d rows are said to be nowhere in the file", n)
	}
	s.do(t, issueOf(4))
	s.end()
	s.pass(t)
	again := s.b.cur.Seq
	if home, recent := s.where(payee); home != once || recent != again {
		t.Fatalf("changed again: it is at home as of %d, recent as of %d", home, recent)
	}
	for range recentRests + 1 {
		s.pass(t)
	}
	if home, recent := s.where(payee); home != again || recent != 0 {
		t.Fatalf("after its rest: it is at home as of %d, recent as of %d", home, recent)
	}
	if s.b.newPass() != nil || s.b.states.pinned.Load() != 0 || s.b.states.recent != 0 || s.b.accounts.recent != 0 {
		t.Error("something is still to be done")
	}
}

// A row goes to its own table if the recent table is full.
func TestRecentRowsAreBounded(t *testing.T) {
	s := newStage(t)
	s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}})
	s.b.states.recent = recentMost
	s.do(t, issueOf(1))
	s.do(t, issueOf(2))
	s.end()
	s.pass(t)
	if home, recent := s.where(payee); home != s.b.cur.Seq || recent != 0 {
		t.Errorf("it is at home as of %d, recent as of %d", home, recent)
	}
}
