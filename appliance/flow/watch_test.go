package flow

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func newWatch[T any](first T) *Watch[T] {
	return NewWatch(NewCatalog(nil, nil), Spec{Service: "t", Name: "cell"}, first)
}

// pair is torn if its halves differ.
type pair struct{ a, b, c, d int }

// While one task stores 1, 2, … n, followers see whole values that only grow, and all of them reach
// n: no wake-up is lost.
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

func TestTicker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tick := Every(NewCatalog(nil, nil), Spec{Service: "wallet", Name: "metrics_tick"}, time.Second)
		time.Sleep(time.Minute) // nothing ticks before C
		start := time.Now()
		<-tick.C()
		if d := time.Since(start); d != time.Second {
			t.Errorf("first tick after %v", d)
		}
		time.Sleep(10 * time.Second) // misses ten, which merge into one
		<-tick.C()
		if at := <-tick.C(); at.Sub(start) != 12*time.Second {
			t.Errorf("tick at %v", at.Sub(start))
		}
		tick.Stop()
		tick.Stop()
		time.Sleep(time.Minute)
		start = time.Now()
		if at := <-tick.C(); at.Sub(start) != time.Second {
			t.Errorf("first tick of the new period after %v", at.Sub(start))
		}
		tick.Stop()
	})
	c := NewCatalog(nil, nil)
	if text := wantPanic(t, func() { Every(c, Spec{Service: "t", Name: "x"}, 0) }); !strings.Contains(
		text,
		"positive period",
	) {
		t.Errorf("panic = %q", text)
	}
}

// A new period counts from the moment it is set; the same one changes nothing, and one that is set
// while the ticker stands holds later.
func TestTickerChangesItsPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tick := Every(NewCatalog(nil, nil), Spec{Service: "registry", Name: "verify_tick"}, time.Hour)
		tick.Set(time.Minute)
		start := time.Now()
		if at := <-tick.C(); at.Sub(start) != time.Minute {
			t.Errorf("first tick after %v", at.Sub(start))
		}
		time.Sleep(30 * time.Second)
		tick.Set(time.Minute)
		if at := <-tick.C(); at.Sub(start) != 2*time.Minute {
			t.Errorf("second tick after %v", at.Sub(start))
		}
		tick.Set(time.Second)
		if at := <-tick.C(); at.Sub(start) != 2*time.Minute+time.Second {
			t.Errorf("third tick after %v", at.Sub(start))
		}
		tick.Stop()
	})
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		Booting.String(): "booting", Recovering.String(): "recovering", Running.String(): "running", Degraded.String(): "degraded",
		Draining.String(): "draining", Aborting.String(): "aborting", Stopping.String(): "stopping", Stopped.String(): "stopped",
		Poisoned.String(): "poisoned", Phase(99).String(): "phase(99)",
		Always.String(): "always", OneShot.String(): "one-shot", Never.String(): "never", Restart(99).String(): "restart(99)",
		RankRunRegistry.String(): "run_registry",
		RankFlights.String():     "flights", RankCacheMeta.String(): "cache_meta",
		RankCounters.String(): "counters", Rank(99).String(): "rank(99)",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// The slow tickers of a catalogue tick at the same moments, whenever each was started: after a
// period of its own, and not much later.
func TestSlowTickersTickTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCatalog(nil, nil)
		began := time.Now()
		for i, every := range []time.Duration{250 * time.Millisecond, time.Second, 5 * time.Second} {
			time.Sleep(137 * time.Millisecond)
			tick := Every(c, Spec{Service: "t", Name: fmt.Sprint("tick", i)}, every)
			start := time.Now()
			unit := min(every, time.Second)
			for n := range 3 {
				at := <-tick.C()
				if past := at.Sub(began) % unit; past != 0 {
					t.Errorf("%v: tick %d comes %v after the common moment", every, n, past)
				}
				after := at.Sub(start) - time.Duration(n)*every
				if after < every || after >= every+unit {
					t.Errorf("%v: tick %d after %v", every, n, at.Sub(start))
				}
			}
			tick.Stop()
		}
		fast := Every(c, Spec{Service: "t", Name: "fast"}, 100*time.Millisecond)
		time.Sleep(30 * time.Millisecond)
		start := time.Now()
		if at := <-fast.C(); at.Sub(start) != 100*time.Millisecond {
			t.Errorf("a fast ticker ticks after %v", at.Sub(start))
		}
		fast.Stop()
	})
}

// A ticker at rest ticks once a second, or at its own period if that is longer. Wake may be called
// by any task, and its first tick comes after one period.
func TestTickerRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewCatalog(nil, nil)
		tick := Every(c, Spec{Service: "t", Name: "tick"}, 25*time.Millisecond)
		slow := Every(c, Spec{Service: "t", Name: "slow"}, time.Minute)
		start := time.Now()
		next := func(from *Ticker) time.Duration {
			at := <-from.C()
			return at.Sub(start)
		}
		tick.Rest()
		tick.Rest()
		slow.Rest()
		slow.C()
		if at := next(tick); at != time.Second {
			t.Errorf("the first tick of a rest comes at %v", at)
		}
		if at := next(tick); at != 2*time.Second {
			t.Errorf("the second tick of a rest comes at %v", at)
		}
		time.Sleep(100 * time.Millisecond)
		tick.Set(50 * time.Millisecond) // holds after the rest
		tick.Wake()
		tick.Wake()
		if at := next(tick); at != 2150*time.Millisecond {
			t.Errorf("the first tick after a rest comes at %v", at)
		}
		if at := next(slow); at != time.Minute {
			t.Errorf("a slow ticker at rest ticks at %v", at)
		}
		tick.Stop()
		slow.Stop()
	})
}
