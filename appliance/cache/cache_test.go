package cache

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance/flow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// opened is an open cache of small values.
func opened(t *testing.T, change func(*Spec[string, int])) *Cache[string, int] {
	t.Helper()
	s := Spec[string, int]{Service: "wallet", Name: "some_cache", Doc: "some", Bytes: 1000, Entry: 10}
	if change != nil {
		change(&s)
	}
	c := New(flow.NewCatalog(nil, nil), s)
	if err := c.Open(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func (c *Cache[K, V]) put(key K, v V, cost int64) {
	c.Set(key, v, cost)
	c.Settle()
}

// Every Get is counted as a hit or a miss.
func TestHitsAndMisses(t *testing.T) {
	var hits, misses int
	c := opened(
		t,
		func(s *Spec[string, int]) { s.Hit, s.Miss = func(n int) { hits += n }, func(n int) { misses += n } },
	)
	c.put("a", 1, 1)
	if v, ok := c.Get("a"); v != 1 || !ok {
		t.Errorf("%d, %t", v, ok)
	}
	if v, ok := c.Get("b"); v != 0 || ok {
		t.Errorf("%d, %t", v, ok)
	}
	c.Purge()
	if _, ok := c.Get("a"); ok || hits != 1 || misses != 2 {
		t.Errorf("after a purge: %t, %d hits, %d misses", ok, hits, misses)
	}
}

// A key that was deleted is not found, and the others are.
func TestDel(t *testing.T) {
	c := opened(t, nil)
	c.put("a", 1, 1)
	c.put("b", 2, 1)
	c.Del("a")
	c.Settle()
	_, a := c.Get("a")
	if b, ok := c.Get("b"); a || !ok || b != 2 {
		t.Errorf("a found: %t, b = %d, %t", a, b, ok)
	}
	c.Close()
	c.Del("b")
}

// The total cost stays within the bound.
func TestCostIsBounded(t *testing.T) {
	c := opened(t, nil)
	kept := 0
	for i := range 500 {
		c.put(fmt.Sprint(i), i, 10)
	}
	for i := range 500 {
		if v, ok := c.Get(fmt.Sprint(i)); ok && v == i {
			kept += 10
		}
	}
	if kept == 0 || kept > 1000 {
		t.Errorf("%d bytes are kept, want some, and 1000 at most", kept)
	}
	c.put("large", 1, 1001)
	if _, ok := c.Get("large"); ok {
		t.Error("a value above the bound is kept")
	}
}

// A cache does nothing as time passes, however far a clock goes.
func TestDecadesCostNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := opened(t, nil)
		c.put("long", 1, 1)
		time.Sleep(40 * 365 * 24 * time.Hour)
		if _, ok := c.Get("long"); !ok {
			t.Error("the value has gone")
		}
		c.Close()
	})
}

// An older value does not take the place of a newer one.
func TestNewerStays(t *testing.T) {
	c := opened(t, func(s *Spec[string, int]) { s.Newer = func(old, v int) bool { return v >= old } })
	for _, v := range []int{2, 1, 3, 2} {
		c.put("a", v, 1)
	}
	if v, ok := c.Get("a"); v != 3 || !ok {
		t.Errorf("%d, %t", v, ok)
	}
}

// Exit is called with values that were replaced, deleted, refused because of their size, or purged.
func TestExit(t *testing.T) {
	var gone []int
	c := opened(t, func(s *Spec[string, int]) { s.Exit = func(v int) { gone = append(gone, v) } })
	c.put("a", 1, 1)
	c.put("a", 2, 1)
	c.Del("a")
	c.put("large", 3, 1001)
	c.put("b", 4, 1)
	c.Purge()
	gone = slices.DeleteFunc(gone, func(v int) bool { return v == 0 })
	if want := []int{1, 2, 3, 4}; !slices.Equal(gone, want) {
		t.Errorf("%v, want %v", gone, want)
	}
}

// Calls during Close, Open and Purge succeed, and after Close they find nothing.
func TestClosesBesideItsUsers(t *testing.T) {
	for range 20 {
		c := opened(t, nil)
		var found atomic.Int64
		var users sync.WaitGroup
		for i := range 4 {
			users.Go(func() {
				for n := range 200 {
					c.Set(fmt.Sprint(n), n, 1)
					if v, ok := c.Get(fmt.Sprint(n)); ok && v != n {
						found.Add(1)
					}
					if n%50 == i {
						c.Purge()
					}
				}
			})
		}
		if err := c.Open(); err != nil {
			t.Fatal(err)
		}
		c.Close()
		users.Wait()
		c.Settle()
		if _, ok := c.Get("1"); ok || found.Load() != 0 {
			t.Errorf("a closed cache answers: %t; %d wrong values", ok, found.Load())
		}
	}
}
