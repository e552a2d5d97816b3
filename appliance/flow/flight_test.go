package flow

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// newFlight returns a flight in a catalogue of its own, with room for 2 waiters beside the first
// and 3 calls.
func newFlight(m Meter) *Flight[string, int, int] {
	return NewFlight[string, int, int](
		NewCatalog(m, nil),
		FlightSpec{Service: "t", Name: "lookup", Shards: 2, Waiters: 2, Calls: 3},
	)
}

// In any sequence of joins, claims, answers and departures a flight is a map from a key to who
// waits for it.
func TestFlightIsAMapOfWaiters(t *testing.T) {
	over, cancel := context.WithCancelCause(t.Context())
	cancel(ErrCanceled)
	type entry struct {
		call             *Call[string, int, int]
		fence, waiting   int
		claimed, settled bool
	}
	rapid.Check(t, func(t *rapid.T) {
		f, under, n := newFlight(nil), map[string]*entry{}, 0
		var old []*entry
		key := func(t *rapid.T) string { return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "key") }
		end := func(k string) {
			under[k].settled = true
			old = append(old, under[k])
			delete(under, k)
		}
		t.Repeat(map[string]func(*rapid.T){
			"Join": func(t *rapid.T) {
				k, fence := key(t), rapid.IntRange(0, 1).Draw(t, "fence")
				e := under[k]
				c, first, err := f.Join(k, fence)
				switch {
				case e == nil && len(under) == 3:
					if err != ErrBusy {
						t.Fatalf("a fourth key: %v", err)
					}
				case e == nil:
					if !first || err != nil || c.Key() != k {
						t.Fatalf("first Join = %v, %v", first, err)
					}
					under[k] = &entry{call: c, fence: fence, waiting: 1}
				case e.fence != fence:
					if err != ErrFenceMoved {
						t.Fatalf("Join with another fence = %v", err)
					}
				case e.waiting == 3:
					if err != ErrFlightFull {
						t.Fatalf("Join a full call = %v", err)
					}
				default:
					if c != e.call || first || err != nil {
						t.Fatalf("Join = %v, %v, %v", c, first, err)
					}
					e.waiting++
				}
			},
			"Claim": func(t *rapid.T) {
				if e := under[key(t)]; e != nil {
					if e.call.Claim() == e.claimed {
						t.Fatalf("Claim of a call claimed %v", e.claimed)
					}
					e.claimed = true
				}
			},
			"Answer": func(t *rapid.T) {
				k := key(t)
				if e := under[k]; e != nil {
					if n++; !e.call.Answer(n) {
						t.Fatal("an open call takes no answer")
					}
					end(k)
					for range e.waiting {
						// an answer that is there goes before the end of ctx
						if v, err := e.call.Wait(over); v != n || err != nil {
							t.Fatalf("Wait = %d, %v", v, err)
						}
					}
				}
			},
			"leave": func(t *rapid.T) {
				k := key(t)
				if e := under[k]; e != nil && !e.claimed {
					if _, err := e.call.Wait(over); err != ErrCanceled {
						t.Fatalf("Wait = %v", err)
					}
					if e.waiting--; e.waiting == 0 {
						end(k)
						if !e.call.Canceled() {
							t.Fatal("a call all have left is not cancelled")
						}
					}
				}
			},
			"": func(t *rapid.T) {
				if f.Len() != len(under) {
					t.Fatalf("Len = %d, want %d", f.Len(), len(under))
				}
				for _, e := range old {
					if e.call.Claim() || e.call.Answer(0) || e.call.Fail(errWork) {
						t.Fatal("a call that is over does something")
					}
				}
			},
		})
	})
}

// However many ask, one run answers all, on a context of its own.
func TestFlightRunsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFlight[string, int, int](
			NewCatalog(nil, nil),
			FlightSpec{Service: "t", Name: "lookup", Waiters: 99, Calls: 1},
		)
		type mark struct{}
		runs := 0
		run := func(ctx context.Context) (int, error) {
			runs++
			if end, ok := ctx.Deadline(); !ok || time.Until(end) != time.Minute || ctx.Value(mark{}) == nil {
				t.Error("the run has not its own deadline and the values of its first caller")
			}
			time.Sleep(time.Second)
			return 7, ctx.Err()
		}
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(
					context.WithValue(t.Context(), mark{}, 1),
					time.Duration(i+1)*20*time.Millisecond,
				)
				defer cancel()
				began := time.Now()
				v, err := f.Do(ctx, "k", 0, time.Minute, run)
				switch took := time.Since(began); {
				case i < 49 && (err != context.DeadlineExceeded || took != time.Duration(i+1)*20*time.Millisecond):
					t.Errorf("waiter %d: %v after %v", i, err, took)
				case i > 49 && (v != 7 || err != nil || took != time.Second):
					t.Errorf("waiter %d: %d, %v after %v", i, v, err, took)
				}
			})
		}
		wg.Wait()
		if runs != 1 || f.Len() != 0 {
			t.Errorf("%d runs, %d under way", runs, f.Len())
		}
		if err := f.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestFlightOwnDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := newFlight(nil).Do(t.Context(), "k", 0, time.Second, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		if err != context.DeadlineExceeded || time.Since(began) != time.Second {
			t.Errorf("Do = %v after %v", err, time.Since(began))
		}
	})
}

// Waiters of a claimed call get a grace and then know that they do not know; a late answer meets
// nobody and frees the key.
func TestFlightClaimedCallIsNotCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight(nil)
		c, first, err := f.Join("k", 0)
		if !first || err != nil || !c.Claim() {
			t.Fatal(first, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if _, err := c.Wait(ctx); err != ErrUnknown || time.Since(began) != time.Second+time.Second/10 {
			t.Errorf("Wait = %v after %v", err, time.Since(began))
		}
		late, first, err := f.Join("k", 0)
		if late != c || first || err != nil || c.Canceled() {
			t.Errorf("a claimed call whose waiter has left is not joined: %v, %v", first, err)
		}
		time.AfterFunc(1050*time.Millisecond, func() { c.Answer(5) })
		ctx2, cancel2 := context.WithTimeout(t.Context(), time.Second)
		defer cancel2()
		if v, err := late.Wait(ctx2); v != 5 || err != nil {
			t.Errorf("an answer within the grace: %d, %v", v, err)
		}
		if _, first, _ := f.Join("k", 0); !first {
			t.Error("the key of a settled call is not free")
		}
	})
}

// A call begun by Join that Do joins and leaves unclaimed ends with its last waiter too.
func TestFlightDoLeavesAnUnclaimedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFlight(nil)
		c, _, _ := f.Join("k", 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		go func() {
			if _, err := c.Wait(ctx); err != context.DeadlineExceeded {
				t.Errorf("Wait = %v", err)
			}
		}()
		if _, err := f.Do(ctx, "k", 0, time.Hour, nil); err != context.DeadlineExceeded {
			t.Errorf("Do = %v", err)
		}
		synctest.Wait()
		if !c.Canceled() || c.Claim() || f.Len() != 0 {
			t.Error("the call outlived its waiters")
		}
	})
}

func TestFlightPanic(t *testing.T) {
	m := newFakeMeter()
	f := newFlight(m)
	for want, run := range map[string]func(context.Context) (int, error){
		"panic: boom": func(context.Context) (int, error) { panic("boom") },
		"Goexit":      func(context.Context) (int, error) { runtime.Goexit(); return 0, nil },
		"work":        func(context.Context) (int, error) { return 0, errors.New("work") },
	} {
		if _, err := f.Do(t.Context(), "k", 0, time.Minute, run); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Do = %v, want %q", err, want)
		}
	}
	if n := m.count("tasks_panicked_total{t,kind,lookup}"); n != 1 {
		t.Errorf("counted %d panics", n)
	}
	if err := f.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFlightCloseJoinsItsRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ended := newFlight(nil), false
		go func() {
			_, _ = f.Do(t.Context(), "k", 0, time.Minute,
				func(context.Context) (int, error) { time.Sleep(time.Second); ended = true; return 0, nil })
		}()
		synctest.Wait()
		if err := f.Close(t.Context()); err != nil || !ended {
			t.Errorf("Close = %v, run ended %v", err, ended)
		}
		if _, _, err := f.Join("k", 0); err != ErrClosed {
			t.Errorf("Join = %v", err)
		}
		if err := f.Close(t.Context()); err != nil {
			t.Errorf("a second Close = %v", err)
		}
	})
}

// If the context of Close ends, Close aborts the runs. It reports only unsettled calls and runs
// that ignore the abort.
func TestFlightCloseAborts(t *testing.T) {
	for _, tt := range []struct {
		doc   string
		deaf  bool
		joins int
		left  string
	}{
		{"a run that listens", false, 0, ""},
		{"a run that does not", true, 0, "1 calls"},
		{"a call without an answer", false, 1, "1 calls"},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFlight(nil)
			cause := make(chan error, 1)
			go func() {
				_, err := f.Do(t.Context(), "k", 0, time.Hour, func(ctx context.Context) (int, error) {
					if tt.deaf {
						time.Sleep(time.Minute)
						return 0, nil
					}
					<-ctx.Done()
					return 0, context.Cause(ctx)
				})
				cause <- err
			}()
			for range tt.joins {
				c, _, _ := f.Join("other", 0)
				defer c.Fail(ErrCanceled)
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			err := f.Close(ctx)
			if got := fmt.Sprint(err); (err == nil) != (tt.left == "") || !strings.Contains(got, tt.left) {
				t.Errorf("%s: Close = %v", tt.doc, err)
			}
			if err := <-cause; !tt.deaf && err != ErrAborted {
				t.Errorf("%s: the run ended with %v", tt.doc, err)
			}
		})
	}
}

func TestFlightSpecsThatCannotWork(t *testing.T) {
	for _, s := range []FlightSpec{
		{Name: "n", Calls: 1}, {Service: "t", Calls: 1}, {Service: "t", Name: "n"},
		{Service: "t", Name: "n", Calls: 1, Waiters: -1}, {Service: "t", Name: "n", Calls: 1, Shards: 3},
	} {
		wantPanic(t, func() { NewFlight[int, int, int](NewCatalog(nil, nil), s) })
	}
}

// Many callers of few keys, some impatient: one call a key at a time, exactly one answer for
// everyone, nothing left at the end.
func TestFlightConcurrently(t *testing.T) {
	f := NewFlight[int, int, int64](
		NewCatalog(nil, nil),
		FlightSpec{Service: "t", Name: "lookup", Shards: 4, Waiters: 3, Calls: 8},
	)
	var under [8]atomic.Int32
	var runs, answers, refused atomic.Int64
	run := func(key int) func(context.Context) (int64, error) {
		return func(context.Context) (int64, error) {
			if under[key].Add(1) != 1 {
				t.Error("two calls of one key at once")
			}
			defer under[key].Add(-1)
			runtime.Gosched()
			return runs.Add(1), nil
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 500 {
				ctx, key := t.Context(), (g+i)%len(under)
				if i%5 == 0 {
					ctx = over
				}
				switch _, err := f.Do(ctx, key, 0, time.Minute, run(key)); err {
				case nil:
					answers.Add(1)
				case ErrFlightFull, context.Canceled:
					refused.Add(1)
				default:
					t.Errorf("Do = %v", err)
				}
			}
		})
	}
	wg.Wait()
	if err := f.Close(t.Context()); err != nil || f.Len() != 0 {
		t.Errorf("Close = %v with %d under way", err, f.Len())
	}
	if answers.Load()+refused.Load() != 16*500 {
		t.Errorf("%d answers and %d refusals for %d callers", answers.Load(), refused.Load(), 16*500)
	}
}

// The same, with calls that workers settle: a call is answered once or left by all, never both.
func TestFlightSettledByWorkers(t *testing.T) {
	f := NewFlight[int, int, int](
		NewCatalog(nil, nil),
		FlightSpec{Service: "t", Name: "post", Shards: 4, Waiters: 8, Calls: 64},
	)
	work := newQueue[*Call[int, int, int]](16)
	var workers, callers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for c := range work.C() {
				if !c.Claim() {
					continue
				}
				if c.Key()%3 == 0 {
					c.Fail(errWork)
				}
				c.Answer(c.Key()) // does nothing after a Fail
			}
		})
	}
	over, cancel := context.WithCancelCause(t.Context())
	cancel(ErrCanceled)
	for g := range 8 {
		callers.Go(func() {
			for i := range 500 {
				key, ctx := (i+g)%10, t.Context()
				if i%7 == 0 {
					ctx = over
				}
				c, first, err := f.Join(key, 0)
				if err != nil {
					t.Errorf("Join = %v", err)
					return
				}
				if first && work.TrySend(c) != nil {
					c.Fail(ErrBusy)
				}
				v, err := c.Wait(ctx)
				if ok := err == nil && v == key && key%3 != 0 || err == errWork && key%3 == 0 || err == ErrBusy ||
					err == ErrCanceled && ctx == over; !ok {
					t.Errorf("key %d: %d, %v", key, v, err)
				}
			}
		})
	}
	callers.Wait()
	work.Close()
	workers.Wait()
	if err := f.Close(t.Context()); err != nil || f.Len() != 0 {
		t.Errorf("Close = %v with %d under way", err, f.Len())
	}
}

func BenchmarkFlight(b *testing.B) {
	f := NewFlight[[16]byte, [32]byte, int](
		NewCatalog(nil, nil),
		FlightSpec{Service: "t", Name: "post", Shards: 64, Waiters: 8, Calls: 1024},
	)
	ctx := b.Context()
	b.Run("join and answer", func(b *testing.B) {
		var key [16]byte
		b.ReportAllocs()
		for b.Loop() {
			key[0]++
			c, _, _ := f.Join(key, [32]byte{})
			c.Claim()
			c.Answer(1)
			_, _ = c.Wait(ctx)
		}
	})
	b.Run("do", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = f.Do(ctx, [16]byte{}, [32]byte{}, time.Minute, func(context.Context) (int, error) { return 1, nil })
		}
	})
}
