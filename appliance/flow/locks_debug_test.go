//go:build flowdebug

package flow

import (
	"strings"
	"sync"
	"testing"
	"time"
)

func TestLockOrderIsChecked(t *testing.T) {
	c := NewCatalog(nil, nil)
	outer, inner := NewMutex(c, "wallet", RankRunRegistry), NewMutex(c, "wallet", RankCounters)
	shard, other := NewMutex(c, "wallet", RankRunRegistry), NewMutex(c, "index", RankCounters)
	for _, tt := range []struct {
		doc         string
		first, next *Mutex
		want        string
	}{
		{"outer after inner", inner, outer, "rank inversion"},
		{"two of one rank", outer, shard, "rank inversion"},
		{"itself again", outer, outer, "rank inversion"},
		{"of two services", outer, other, "another service"},
	} {
		tt.first.Lock()
		if text := wantPanic(t, tt.next.Lock); !strings.Contains(text, tt.want) {
			t.Errorf("%s: panic = %q", tt.doc, text)
		}
		tt.first.Unlock()
		tt.next.Lock() // it is free, and the refusal left no trace
		tt.next.Unlock()
	}
}

func TestWaitingWhileHoldingIsChecked(t *testing.T) {
	c := NewCatalog(nil, nil)
	m, q, b := NewMutex(c, "wallet", RankCounters), newQueue[int](1), newBus(1)
	sub, super := b.Subscribe("test"), NewSupervisor(t.Context(), c, Hooks{})
	tick := Every(c, Spec{Service: "t", Name: "tick"}, time.Hour)
	waits := map[string]func(){
		"Queue.Send":        func() { _ = q.Send(t.Context(), 1) },
		"Queue.Recv":        func() { _, _ = q.Recv(t.Context()) },
		"Queue.C":           func() { q.C() },
		"Queue.Close":       q.Close,
		"Reply.Wait":        func() { _, _ = NewReply[int]().Wait(t.Context()) },
		"Subscription.Recv": func() { _, _, _ = sub.Recv(t.Context()) },
		"Retrier.Do":        func() { _ = Retry(func(int) time.Duration { return 1 }, 1, nil).Do(t.Context(), nil) },
		"Fan":               func() { _ = Fan(t.Context(), 1, nil) },
		"Ticker.C":          func() { tick.C() },
		"Supervisor.Drain":  func() { super.Drain("t", 0, 0) },
		"Supervisor.Close":  super.Close,
	}
	for name, wait := range waits {
		m.Lock()
		if text := wantPanic(t, wait); !strings.Contains(text, name+" while holding wallet.counters") {
			t.Errorf("%s: panic = %q", name, text)
		}
		if q.TrySend(1) == nil { // never waits, so it may be called
			<-q.items
		}
		m.Unlock()
	}
	super.Close()
}

func TestUnlockByAnotherGoroutineIsChecked(t *testing.T) {
	m := NewMutex(NewCatalog(nil, nil), "wallet", RankCounters)
	m.Lock()
	var wg sync.WaitGroup
	wg.Go(func() {
		if text := wantPanic(t, m.Unlock); !strings.Contains(text, "does not hold it") {
			t.Errorf("panic = %q", text)
		}
	})
	wg.Wait()
	m.Unlock()
}

// A lock that readers share has its place in the order, to read as well as to write.
func TestRWMutexOrderIsChecked(t *testing.T) {
	c := NewCatalog(nil, nil)
	m, inner := NewRWMutex(c, "wallet", RankCacheMeta), NewMutex(c, "wallet", RankCounters)
	inner.Lock()
	for _, take := range []func(){m.RLock, m.Lock} {
		if text := wantPanic(t, take); !strings.Contains(text, "rank inversion") {
			t.Errorf("panic = %q", text)
		}
	}
	inner.Unlock()
	m.RLock()
	inner.Lock()
	inner.Unlock()
	m.RUnlock()
}
