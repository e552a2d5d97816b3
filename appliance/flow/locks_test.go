package flow

import (
	"strings"
	"sync"
	"testing"
)

// In order, within one service, and released before a wait, locks work the same with and without
// checks.
func TestMutexInOrder(t *testing.T) {
	c := NewCatalog(nil, nil)
	outer, inner := NewMutex(c, "wallet", RankRunRegistry), NewMutex(c, "wallet", RankCounters)
	q := newQueue[int](1)
	var n int
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				outer.Lock()
				inner.Lock()
				n++
				outer.Unlock() // any order of release
				inner.Unlock()
			}
		})
	}
	wg.Wait()
	if n != 800 {
		t.Errorf("n = %d", n)
	}
	if err := q.Send(t.Context(), 1); err != nil {
		t.Error(err)
	}
}

func TestMutexNeedsARank(t *testing.T) {
	for _, r := range []Rank{0, RankCounters + 1} {
		if text := wantPanic(t, func() { NewMutex(NewCatalog(nil, nil), "wallet", r) }); !strings.Contains(
			text,
			"no place in the order",
		) {
			t.Errorf("panic = %q", text)
		}
	}
}

// Readers share the lock, a writer has it alone, and it is in the catalogue under its rank.
func TestRWMutex(t *testing.T) {
	c := NewCatalog(nil, nil)
	m := NewRWMutex(c, "wallet", RankCacheMeta)
	var both sync.WaitGroup
	both.Add(2)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			m.RLock()
			defer m.RUnlock()
			both.Done()
			both.Wait()
		})
	}
	wg.Wait()
	n := 0
	for range 4 {
		wg.Go(func() {
			for range 100 {
				m.Lock()
				n++
				m.Unlock()
			}
		})
	}
	wg.Wait()
	if n != 400 || m.String() != "wallet.cache_meta" || !strings.Contains(c.Markdown(), "`cache_meta`") {
		t.Errorf("n = %d, %v", n, m)
	}
}
