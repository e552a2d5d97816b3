package ledger

import (
	"fmt"
	"testing"

	"ronbox/engines/ledger/record"
	"ronbox/store/storetest"
)

// A refused command leaves no flush work to the next one.
func TestRefusedOpsFlushNothing(t *testing.T) {
	s := newStage(t)
	s.do(t, draft{ops: []Op{{Code: record.OpAsset, Asset: "ron"}}})
	for i := range uint64(100) {
		d := issueOf(i + 1)
		d.ops[0].To = fmt.Sprint("user", i)
		s.do(t, d)
	}
	s.end()
	if _, err := storetest.Do(s.tx, flush{pass: s.b.newPass(), rows: 1}); err != nil {
		t.Fatal(err)
	}
	s.end()
	for range 50 {
		failed := draft{
			ops: []Op{{Code: record.OpBatch, Atomic: true, Ops: append(issueOf(101).ops, issueOf(999).ops...)}},
		}
		if out := s.do(t, failed); !out.results[0].code.Refused() {
			t.Fatalf("%+v", out.results)
		}
	}
	s.end()
	was := s.b.cur.hand.at
	d := issueOf(101)
	c := d.command()
	c.flush = flushRule{rows: 1, dirtyMax: 1}
	if _, err := storetest.Do(s.tx, c); err != nil {
		t.Fatal(err)
	}
	s.end()
	if n := s.b.cur.hand.at - was; s.b.cur.hand.pass == nil || n > 4 {
		t.Errorf("a payment of two rows wrote %d behind", n)
	}
}
