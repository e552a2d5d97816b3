package ledger_test

import (
	"errors"
	"testing"

	"ronbox/store"
)

// A read that returns errStale, however wrapped, is retried.
func TestStaleReadsBeginAnew(t *testing.T) {
	r := newRig(t, nil)
	tries := 0
	if err := r.l.ViewStale(r.ctx(), func() bool { tries++; return tries < 3 }); err != nil || tries != 3 {
		t.Errorf("%d tries, %v", tries, err)
	}
	if err := r.l.ViewStale(r.ctx(), func() bool { return true }); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("a row that is never there: %v", err)
	}
}
