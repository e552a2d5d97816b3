package ledger

import (
	"testing"

	"ronbox/engines/ledger/record"
)

// An op may still be done at the last moment that its caller named.
func TestLastMoment(t *testing.T) {
	for _, tt := range []struct {
		until int64
		late  bool
	}{{0, false}, {4, true}, {5, false}, {6, false}} {
		m := move{code: record.OpFlags, at: 5, until: tt.until}
		if r := m.judge(); (r != nil && r.Code == record.Expired) != tt.late {
			t.Errorf("until %d, at 5: %v", tt.until, r)
		}
		x := run{at: 5}
		if r := x.late(&Op{ValidUntil: tt.until}); (r != nil) != tt.late {
			t.Errorf("until %d, at 5, of an account: %v", tt.until, r)
		}
	}
}
