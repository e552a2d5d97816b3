package idem

import (
	"testing"

	"ronbox/store"
)

// Each lookup in a run that does not hold the key is counted once, by Find and by Lookup.
func TestMistakenIsCounted(t *testing.T) {
	const n, foreign = 2000, 40_000
	x, tx := filled(t, n)
	seal(t, x, tx)
	f, want, views := &x.set.Load().runs[0].filter, uint64(0), uint64(0)
	view := func(fn func(store.Reader) error) error {
		views++
		return fn(tx.Reader())
	}
	for i := uint64(n + 2); i < n+2+foreign; i++ {
		k := keyOf(i)
		if f.has(&k) {
			want++
		}
		if seq, found, err := x.Find(k, 0, view); found || err != nil {
			t.Fatalf("a key that is not there leads to %d, %v", seq, err)
		}
	}
	if got := x.Stats().Mistaken; got != want || views != want || want == 0 {
		t.Errorf("%d mistakes counted in %d views, want %d", got, views, want)
	}
	for i := uint64(1); i <= n; i++ {
		if _, found := x.Lookup(tx.Reader(), keyOf(i), 0, 0); !found {
			t.Fatalf("key %d is lost", i)
		}
	}
	if got := x.Stats().Mistaken; got != want {
		t.Errorf("%d mistakes once keys were found, want %d", got, want)
	}
}
