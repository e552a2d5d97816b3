//go:build flowsched

package flow

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

// Two threads of two steps each are run in all six orders, and no more often.
func TestScheduleFindsAllOrders(t *testing.T) {
	orders := map[string]int{}
	e := explore(t, func(w *world) func() error {
		order := ""
		for _, name := range []string{"a", "b"} {
			w.thread(name, func() {
				for range 2 {
					point("step")
					order += name
				}
			})
		}
		return func() error { orders[order]++; return nil }
	}, 100)
	if len(orders) != 6 || e.count() != 6 || e.cut {
		t.Errorf("%d schedules, %v by preemptions, %v", e.count(), e.ran, orders)
	}
}

// The schedule decides between two ready cases of a select. Waiting threads are woken, and fake
// time advances when all threads wait.
func TestScheduleTakesEveryCase(t *testing.T) {
	took := map[string]int{}
	explore(t, func(w *world) func() error {
		full, closed := make(chan int, 1), make(chan struct{})
		full <- 1
		close(closed)
		w.thread("chooser", func() {
			a, b, c := either3("choose", full, closed, (chan<- int)(nil))
			select {
			case <-a:
				took["value"]++
			case <-b:
				took["closed"]++
			case c <- 1:
				took["nil"]++
			}
		})
		return func() error { return nil }
	}, 100)
	if took["value"] != 1 || took["closed"] != 1 || len(took) != 2 {
		t.Errorf("taken %v", took)
	}
}

func TestScheduleFindsWhatIsWrong(t *testing.T) {
	ran := 0
	for _, tt := range []struct {
		name, want string
		sc         scenario
	}{
		{"lost update", "n = 1", func(w *world) func() error {
			n := 0
			for range 2 {
				w.thread("adder", func() {
					point("reads")
					was := n
					point("writes")
					n = was + 1
				})
			}
			return func() error { w.check(n == 2, "n = %d", n); return w.err }
		}},
		{"locks in two orders", "deadlock", func(w *world) func() error {
			locks := [2]lock{}
			for i := range 2 {
				w.thread("locker", func() {
					locks[i].Lock()
					if quitLock(w.ctx, &locks[1-i]) {
						locks[1-i].Unlock()
					}
					locks[i].Unlock()
				})
			}
			return func() error { return nil }
		}},
		{"waits for nothing", "deadlock: waiter waits after point", func(w *world) func() error {
			w.thread("waiter", func() {
				point("point")
				<-w.ctx.Done()
				woken("waiter")
			})
			return func() error { return nil }
		}},
		{"goes round in circles", "no end after 5000 steps", func(w *world) func() error {
			w.thread("runner", func() {
				for w.ctx.Err() == nil {
					point("round")
				}
			})
			return func() error { return nil }
		}},
		{"a panic", "thread: panic: oh", func(w *world) func() error {
			w.thread("thread", func() { panic("oh") })
			return func() error { return nil }
		}},
	} {
		t.Run(tt.name, func(t *testing.T) { breaks(t, tt.sc, tt.want) })
	}
	t.Run("something else decides", func(t *testing.T) {
		e := explore(t, func(w *world) func() error {
			ran++
			w.thread("a", func() { point(fmt.Sprint("run ", ran)); point("again") })
			w.thread("b", func() { point("one"); point("two") })
			return func() error { return nil }
		}, 100)
		if !errors.Is(e.breach, errDiverged) {
			t.Errorf("%d schedules, %v", e.count(), e.breach)
		}
	})
}

// quitLock takes l unless ctx ends first.
func quitLock(ctx context.Context, l *lock) bool {
	exploring.Load().stop("lock", func() bool { return !l.held || ctx.Err() != nil })
	if l.held {
		return false
	}
	l.mu.Lock()
	l.held = true
	return true
}

// A schedule is written as a string and read back.
func TestScheduleSpelling(t *testing.T) {
	p, err := read(spell([]decision{{n: 3, took: 2}, {n: 2}, {n: 36, took: 35}, {n: 2}}))
	if err != nil || string(p.took) != "\x02\x00\x23" {
		t.Errorf("%v, %v", p.took, err)
	}
	if _, err := read("01!"); err == nil {
		t.Error("nonsense is read")
	}
}
