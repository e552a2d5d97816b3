// Package above holds locks over what the package below does.
package above

import (
	"context"
	"sync"

	"ronbox/below"
)

type top struct {
	mu sync.Mutex
	ch chan int
	s  *below.Store
	n  int
}

func (t *top) all(ctx context.Context, r below.Reader) { // want all:`waits: .*`
	t.mu.Lock()
	defer t.mu.Unlock()
	below.Commit(t.ch)              // want `t.mu .* is held over a call of below.Commit, which reaches a channel send \(below.go:\d+\)`
	t.s.View(ctx, func() { t.n++ }) // want `held over a call of Store.View, which reaches a select`
	_ = r.Get("a")                  // want `held over a call of Reader.Get, which reaches a call of os.ReadFile`
	_ = r.Len()
	below.Offer(t.ch)
	t.s.Room()
	below.Each(func(i int) { t.n += i })
	below.Each(func(i int) { t.ch <- i }) // want `held over a call of below.Each, which reaches a channel send`
	for range below.Rows(r) {             // want `held over a call of os.ReadFile`
	}
}

func (t *top) locks() { // want locks:`waits: .*`
	t.s.Lock()
	<-t.ch // want `t.s.mu .* is held over a channel receive`
	t.s.Unlock()
	<-t.ch
}
