package ledger

import (
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

func issueOf(nonce uint64) draft {
	return draft{ops: []Op{{Code: record.OpIssue, To: "a", Asset: "ron", Amount: engines.AmountOf(0, 1), Nonce: nonce}}}
}

func (s *stage) do(t *testing.T, d draft) *posted {
	t.Helper()
	out, err := storetest.Do(s.tx, store.Command[*posted](d.command()))
	if none, ok := err.(refusal); ok {
		return none.posted
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The group after a failed one starts where the last synced group ended.
func TestAbortedGroupIsGone(t *testing.T) {
	s := newStage(t)
	s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}})
	s.do(t, issueOf(1))
	s.end()
	was := s.b.cur
	s.do(t, issueOf(2))
	s.do(t, issueOf(3))
	s.b.Aborted()
	if is := s.b.cur; is.Head != was.Head || len(is.log.nodes) != len(was.log.nodes) {
		t.Errorf("it would begin at %+v, want %+v", is.Head, was.Head)
	}
	if c := s.b.states.find(tables.StateKey{Account: 2, Asset: 1}); c == nil || s.b.states.cur(c).v.Postings != 1 {
		t.Errorf("the receiver is at %+v", c)
	}
}

// The rows changed by a failed batch do not wait for a flush.
func TestUndoneRowsAreClean(t *testing.T) {
	s := newStage(t)
	s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}})
	s.end()
	dirty := s.b.dirty()
	failed := draft{
		ops: []Op{
			{Code: record.OpBatch, Atomic: true, Ops: append(issueOf(1).ops, issueOf(9).ops...)},
			{Code: record.OpFlags, From: "b", Set: record.NoDebit},
		},
	}
	if out := s.do(t, failed); !out.results[0].code.Refused() || out.results[1].code.Refused() {
		t.Fatalf("%+v", out.results)
	}
	s.end()
	if rows := s.b.dirty() - dirty; rows != 2 { // the name and the account of b
		t.Errorf("%d rows wait to be flushed, want those of the one account", rows)
	}
}

// A mark is flushed once.
func TestMarksAreWrittenOnce(t *testing.T) {
	s := newStage(t)
	s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}})
	for i := range uint64(tables.MarkEvery) {
		s.do(t, issueOf(i+1))
	}
	s.end()
	if n := s.b.marks.dirty.Load(); n != 2 {
		t.Fatalf("%d marks wait, want those of the account and of the issuer", n)
	}
	if _, err := storetest.Do(s.tx, flush{pass: s.b.newPass(), rows: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	s.end()
	if n := s.b.marks.dirty.Load(); n != 0 {
		t.Errorf("%d marks wait still", n)
	}
}
