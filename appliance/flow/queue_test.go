package flow

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// In any sequence of calls a queue behaves like a bounded list.
func TestQueueIsABoundedList(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 4).Draw(t, "cap")
		q, model, closed, n := newQueue[int](capacity), []int(nil), false, 0
		t.Repeat(map[string]func(*rapid.T){
			"TrySend": func(t *rapid.T) {
				n++
				var want error
				switch {
				case closed:
					want = ErrClosed
				case len(model) == capacity:
					want = ErrBusy
				default:
					model = append(model, n)
				}
				if err := q.TrySend(n); err != want {
					t.Fatalf("TrySend = %v, want %v", err, want)
				}
			},
			"Send with an ended context": func(t *rapid.T) {
				if err := q.Send(over, -1); err != context.Canceled {
					t.Fatalf("Send = %v, want the cause of ctx", err)
				}
			},
			"Recv": func(t *rapid.T) {
				if len(model) == 0 && !closed {
					return
				}
				v, err := q.Recv(context.Background())
				if len(model) == 0 {
					if err != ErrClosed {
						t.Fatalf("Recv = %v, want ErrClosed", err)
					}
					return
				}
				if v != model[0] || err != nil {
					t.Fatalf("Recv = %d, %v, want %d", v, err, model[0])
				}
				model = model[1:]
			},
			"Close": func(*rapid.T) { closed = true; q.Close() },
			"Discard": func(t *rapid.T) {
				if !closed {
					return
				}
				if left := q.Discard("test"); !slices.Equal(left, model) {
					t.Fatalf("Discard = %v, want %v", left, model)
				}
				model = nil
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) || q.Cap() != capacity {
					t.Fatalf("Len, Cap = %d, %d, want %d, %d", q.Len(), q.Cap(), len(model), capacity)
				}
			},
		})
	})
}

// sent is an item of the concurrent tests: the n-th of its producer.
type sent struct{ producer, n int }

// produce sends n items and returns those that were accepted.
func produce(q *Queue[sent], producer, n int, wait bool) (accepted []sent) {
	for i := range n {
		v, err := sent{producer, i}, error(nil)
		if wait {
			err = q.Send(context.Background(), v)
		} else {
			err = q.TrySend(v)
		}
		if err == nil {
			accepted = append(accepted, v)
		}
	}
	return accepted
}

// With concurrent senders, receivers and closers, the accepted items come out once, in order per
// producer, and no send meets a closed channel. A blocked Send may still succeed after Close.
func TestQueueKeepsWhatItAccepts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := newQueue[sent](rapid.IntRange(1, 3).Draw(t, "cap"))
		producers := rapid.SliceOfN(rapid.Bool(), 1, 4).Draw(t, "producers that wait")
		items := rapid.IntRange(1, 30).Draw(t, "items each")
		consumers := rapid.IntRange(0, 3).Draw(t, "consumers")
		closeAfter := rapid.IntRange(0, items).Draw(t, "close after items of the first")
		discard := consumers == 0 || rapid.Bool().Draw(t, "discard")

		var wg sync.WaitGroup
		accepted, received := make([][]sent, len(producers)+1), make([][]sent, consumers+1)
		for p, wait := range producers {
			wg.Go(func() { accepted[p] = produce(q, p, items, wait) })
		}
		for c := range consumers {
			wg.Go(func() {
				for v := range q.C() {
					received[c] = append(received[c], v)
				}
			})
		}
		accepted[len(producers)] = produce(q, len(producers), closeAfter, false)
		if discard {
			received[consumers] = q.Discard("test")
		} else {
			q.Close()
		}
		wg.Wait()
		checkKept(t, slices.Concat(accepted...), received)
	})
}

func checkKept(t *rapid.T, accepted []sent, received [][]sent) {
	seen := map[sent]int{}
	for _, list := range received {
		last := map[int]int{}
		for _, v := range list {
			seen[v]++
			if before, ok := last[v.producer]; ok && before >= v.n {
				t.Fatalf("producer %d: item %d came after item %d", v.producer, v.n, before)
			}
			last[v.producer] = v.n
		}
	}
	if len(seen) != len(accepted) {
		t.Fatalf("%d different items came out, %d were accepted", len(seen), len(accepted))
	}
	for _, v := range accepted {
		if seen[v] != 1 {
			t.Fatalf("%+v came out %d times", v, seen[v])
		}
	}
}

// The trap: senders are blocked on a full queue when it closes, and a receiver makes room at that
// moment. Each Send either wins, and its item comes out, or is refused; it must never panic. Both
// ends are reached: in every other round there is room before the close.
func TestQueueCloseAgainstBlockedSends(t *testing.T) {
	const senders = 4
	won, refused := 0, 0
	for round := range 3000 {
		q := newQueue[int](1)
		_ = q.TrySend(-1)
		results, start := make(chan error, senders), make(chan struct{})
		for i := range senders {
			go func() { results <- q.Send(context.Background(), i) }()
		}
		var wg sync.WaitGroup
		wg.Go(func() { <-start; q.Close() })
		wg.Go(func() { <-start; q.Close() })
		out := 0
		if round%2 == 1 {
			<-q.C()
			out++
			runtime.Gosched()
		}
		close(start)
		for range q.C() {
			out++
		}
		wg.Wait()
		accepted := 1
		for range senders {
			switch err := <-results; err {
			case nil:
				accepted++
				won++
			case ErrClosed:
				refused++
			default:
				t.Fatal(err)
			}
		}
		if out != accepted {
			t.Fatalf("%d accepted, %d came out", accepted, out)
		}
	}
	if won == 0 || refused == 0 {
		t.Errorf("won %d, refused %d: the race was not run", won, refused)
	}
}

// Senders that never wait run into the close at full speed: none meets a closed channel and nothing
// is lost.
func TestQueueCloseAgainstTrySends(t *testing.T) {
	const senders = 3
	for range 4000 {
		q := newQueue[int](100 * senders)
		var accepted atomic.Int64
		var wg, running sync.WaitGroup
		running.Add(senders)
		for range senders {
			wg.Go(func() {
				running.Done()
				for range 100 {
					if q.TrySend(1) != nil {
						return // closed: there is room for all
					}
					accepted.Add(1)
				}
			})
		}
		running.Wait()
		left := q.Discard("test")
		wg.Wait()
		if len(left) != int(accepted.Load()) {
			t.Fatalf("%d accepted, %d came out", accepted.Load(), len(left))
		}
	}
}

// The trap, step by step: while a sender is inside, a closed queue keeps its channel open, and what
// that sender enqueues after the close still comes out. The sender is held inside by hand.
func TestQueueStaysOpenForASenderInside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[int](1)
		if !q.enter() {
			t.Fatal("a new queue refuses a sender")
		}
		closed := make(chan struct{})
		go func() { q.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Fatal("Close returned while a sender is inside")
		case _, ok := <-q.C():
			t.Fatalf("C yields (ok %v) while a sender is inside and nothing was sent", ok)
		default:
		}
		if err := q.TrySend(2); err != ErrClosed {
			t.Fatalf("TrySend after Close = %v", err)
		}
		q.items <- 1 // the blocked Send wins after Close
		q.leave()
		<-closed
		if v, ok := <-q.C(); v != 1 || !ok {
			t.Fatalf("C = %d, %v, want the item sent after Close", v, ok)
		}
		if _, ok := <-q.C(); ok {
			t.Fatal("C yields twice")
		}
	})
}

func TestQueueWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue[int](1)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := q.Recv(ctx); err != context.DeadlineExceeded || time.Since(start) != 3*time.Second {
			t.Errorf("Recv on an empty queue = %v after %v", err, time.Since(start))
		}
		_ = q.TrySend(1)
		if _, err := q.Recv(ctx); err != context.DeadlineExceeded || q.Len() != 1 {
			t.Errorf("Recv with an ended context = %v, %d left", err, q.Len())
		}
		why := errors.New("stop")
		ctx2, stop := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { stop(why) })
		if err := q.Send(ctx2, 2); err != why {
			t.Errorf("Send to a full queue = %v, want the cause of ctx", err)
		}
		time.AfterFunc(time.Second, q.Close)
		if err := q.Send(t.Context(), 3); err != ErrClosed {
			t.Errorf("Send to a queue that closes = %v", err)
		}
		if v, err := q.Recv(t.Context()); v != 1 || err != nil {
			t.Errorf("Recv after Close = %d, %v", v, err)
		}
	})
}

func TestQueueMetrics(t *testing.T) {
	m := newFakeMeter()
	q := NewQueue[int](NewCatalog(m, nil), Spec{Service: "t", Name: "jobs_tx", Cap: 2, Policy: RejectNew})
	for i := range 5 {
		_ = q.TrySend(i)
	}
	if d := m.gauges["queue_depth{t,queue,jobs}"](); d != 2 {
		t.Errorf("queue_depth = %v, want 2", d)
	}
	if c := m.gauges["queue_capacity{t,queue,jobs}"](); c != 2 {
		t.Errorf("queue_capacity = %v, want 2", c)
	}
	q.Discard("test") // 2, beside the 3 refused
	_ = q.TrySend(9)
	if n := m.count("queue_dropped_total{t,queue,jobs}"); n != 6 {
		t.Errorf("queue_dropped_total = %d, want 6", n)
	}
}
