package ledger

import (
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines/ledger/tables"
)

// A pass finishes before half of redoMost records have arrived, as long as no slice needs more rows
// than allowed.
func TestFlushKeepsPace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := &flushPass{states: make([]tables.StateKey, rapid.IntRange(1, 1<<16).Draw(t, "rows"))}
		came, done := uint64(0), 0
		for done < p.len() {
			n := rapid.Uint64Range(1, 1<<14).Draw(t, "records")
			due := p.due(n)
			if due > dueMost {
				t.Fatalf("%d rows in a slice", due)
			}
			came, done = came+n, done+max(512, due)
		}
		if slack := uint64(1<<14 + 1<<9); came > redoMost/2+slack {
			t.Fatalf("%d records came in a pass of %d rows", came, p.len())
		}
	})
	if n := (&flushPass{states: make([]tables.StateKey, 1<<20)}).due(1 << 60); n != dueMost {
		t.Errorf("%d rows are due", n)
	}
}
