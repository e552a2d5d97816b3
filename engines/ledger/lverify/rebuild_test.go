package lverify_test

import (
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines/ledger/lverify"
	"ronbox/store"
)

// A rebuild comes to the tables that the ledger wrote as it went, whatever was done and however damaged they are.
func TestRebuildIsLiveState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		f := newFile(t).open(true)
		f.fill(seed, rapid.IntRange(1, 40).Draw(rt, "calls"))
		f.flush()
		var want []row
		f.view(func(r store.Reader) { want = rows(r) })
		f.close()
		f.open(false)
		damage := put{}
		for _, r := range want {
			if r.b.Class == store.Derived && rapid.IntRange(0, 3).Draw(rt, "damage") == 0 {
				damage = append(damage, row{r.b, r.key, []byte("damaged")})
			}
		}
		if _, err := store.Commit(t.Context(), f.s, store.Work, damage); err != nil {
			rt.Fatal(err)
		}
		if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); err != nil {
			rt.Fatal(err)
		}
		f.view(func(r store.Reader) { same(t, rows(r), want) })
		f.close()
	})
}
