package tables

import (
	"testing"

	"ronbox/engines"
	"ronbox/store"
	"ronbox/store/storetest"
)

// The rows of past days are deleted a few at a time. The rows of the current day stay.
func TestMovedDaysGo(t *testing.T) {
	tx := storetest.NewTx(t, Buckets()...)
	key := func(day uint32, token byte) MovedKey { return MovedKey{Day: day, Token: [8]byte{token}, Asset: 1} }
	do(t, tx, func(_ store.Reader, w *store.Writes) {
		for token := range byte(3) {
			PutMoved(w, key(7, token), engines.AmountOf(0, 7))
			PutMoved(w, key(8, token), engines.AmountOf(0, 8))
		}
	})
	for _, want := range []int{4, 3, 3} {
		do(t, tx, func(r store.Reader, w *store.Writes) { DropMoved(r, w, 8, 2) })
		left := 0
		for range Moved(tx.Reader()) {
			left++
		}
		if left != want {
			t.Errorf("%d rows are left, want %d", left, want)
		}
	}
	if got := GetMoved(tx.Reader(), key(8, 2)); got != engines.AmountOf(0, 8) {
		t.Errorf("of today there is %v", got)
	}
	if got := GetMoved(tx.Reader(), key(7, 2)); !got.IsZero() {
		t.Errorf("of yesterday there is %v", got)
	}
}
