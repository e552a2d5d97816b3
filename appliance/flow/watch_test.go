package flow

import (
	"sync"
	"testing"
)

func newWatch[T any](first T) *Watch[T] {
	return NewWatch(NewCatalog(nil, nil), Spec{Service: "t", Name: "cell"}, first)
}

// pair is torn if its halves differ.
type pair struct{ a, b, c, d int }

// While one task stores 1, 2, … n, followers see whole values that only grow, and all of them reach n: no wake-up is lost.
func TestWatchIsNeverTornAndWakes(t *testing.T) {
	const n = 5000
	w := newWatch(pair{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for last := 0; last < n; {
				v, next := w.Load()
				if v.a != v.d || v.b != v.c || v.a != v.b {
					t.Errorf("torn: %+v", v)
					return
				}
				if v.a < last {
					t.Errorf("%d after %d", v.a, last)
					return
				}
				if last = v.a; last < n {
					<-next
				}
			}
		})
	}
	for i := 1; i <= n; i++ {
		w.Store(pair{i, i, i, i})
	}
	wg.Wait()
}

// Concurrent stores: each closes exactly one channel, and one of them is last.
func TestWatchConcurrentStores(t *testing.T) {
	w := newWatch(0)
	_, first := w.Load()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 500 {
				w.Store(i + 1)
			}
		})
	}
	wg.Wait()
	<-first
	v, next := w.Load()
	if v < 1 || v > 8 {
		t.Errorf("value = %d", v)
	}
	select {
	case <-next:
		t.Error("the channel of the present value is closed")
	default:
	}
}
