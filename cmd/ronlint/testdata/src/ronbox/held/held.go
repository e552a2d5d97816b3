// Package held waits under locks in every way.
package held

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"ronbox/appliance/flow"

	"github.com/hashicorp/go-hclog"
	"go.etcd.io/bbolt"
)

type thing struct {
	mu    sync.Mutex
	rw    sync.RWMutex
	fm    *flow.Mutex
	ch    chan int
	n     int
	log   hclog.Logger
	hook  func()
	now   func() time.Time
	wg    sync.WaitGroup
	cond  *sync.Cond
	db    *bbolt.DB
	conn  net.Conn
	file  *os.File
	buf   bytes.Buffer
	w     io.Writer
	other map[int]*thing
}

func (t *thing) send() { // want send:`waits: a channel send`
	t.mu.Lock()
	t.ch <- 1 // want `t.mu \(since held.go:41\) is held over a channel send`
	t.mu.Unlock()
	t.ch <- 2
}

func (t *thing) deferred() { // want deferred:`waits: a channel receive`
	t.mu.Lock()
	defer t.mu.Unlock()
	<-t.ch // want `held over a channel receive`
}

func (t *thing) reading() { // want reading:`waits: a range`
	t.rw.RLock()
	for range t.ch { // want `t.rw .* is held over a range over a channel`
		t.n++
	}
	t.rw.RUnlock()
}

func (t *thing) ranked() { // want ranked:`waits: a select`
	t.fm.Lock()
	select { // want `t.fm .* is held over a select without default`
	case <-t.ch:
	case t.ch <- 1:
	}
	t.fm.Unlock()
}

func (t *thing) free() {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case t.ch <- 1:
	case <-t.ch:
	default:
	}
	close(t.ch)
	_ = t.now()
	go t.send()
	go func() { t.ch <- 1 }()
	f := func() { t.ch <- 2 }
	_ = f
	fmt.Fprintf(&t.buf, "%d", t.n)
	io.Copy(io.Discard, &t.buf)
	_ = t.log.With("a", 1)
	_ = fmt.Sprint(t.n)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = ctx.Err()
	slices.SortFunc([]int{1}, func(a, b int) int { return a - b })
}

func (t *thing) outside(ctx context.Context) { // want outside:`waits: .*`
	t.mu.Lock()
	defer t.mu.Unlock()
	time.Sleep(1)                                   // want `held over a call of time.Sleep`
	t.wg.Wait()                                     // want `held over a call of sync.WaitGroup.Wait`
	t.cond.Wait()                                   // want `held over a call of sync.Cond.Wait`
	t.log.Info("x")                                 // want `held over a call of hclog.Logger.Info`
	t.hook()                                        // want `held over a callback: the func value t.hook`
	_, _ = t.db.Begin(true)                         // want `held over a call of bbolt.DB.Begin`
	_, _ = t.conn.Write(nil)                        // want `held over a call of net.Conn.Write`
	_ = t.file.Sync()                               // want `held over a call of os.File.Sync`
	_, _ = t.w.Write(nil)                           // want `held over a call of io.Writer.Write`
	_, _ = os.ReadFile("x")                         // want `held over a call of os.ReadFile`
	fmt.Println(t.n)                                // want `held over a call of fmt.Println`
	fmt.Fprintln(t.w, t.n)                          // want `held over a call of fmt.Fprintln`
	_, _ = (&net.Dialer{}).DialContext(ctx, "", "") // want `held over a call of net.Dialer.DialContext`
	asks(ctx)                                       // want `held over a call of held.asks, which takes a context`
	slices.SortFunc([]int{1}, func(a, b int) int {
		t.ch <- 1 // want `held over a channel send`
		return 0
	})
}

func asks(context.Context) {}

func (t *thing) branches(b bool) { // want branches:`waits: .*`
	t.mu.Lock()
	if b {
		t.mu.Unlock()
		t.ch <- 1
		return
	}
	for t.n < 3 {
		t.n++
		if t.n == 2 {
			t.ch <- 1 // want `held over a channel send`
			break
		}
	}
	switch {
	case b:
		t.mu.Unlock()
	default:
		t.mu.Unlock()
	}
	t.ch <- 2
	if b {
		t.mu.Lock()
	}
	t.ch <- 3 // want `held over a channel send`
}

func (t *thing) again() { // want again:`waits: .*`
	t.mu.Lock()
	for {
		t.mu.Unlock()
		t.hook()
		t.mu.Lock()
		if t.n > 1 {
			break
		}
	}
	t.mu.Unlock()
}

func (t *thing) tried() { // want tried:`waits: .*`
	if !t.mu.TryLock() {
		t.ch <- 1
		return
	}
	t.ch <- 2 // want `held over a channel send`
	t.mu.Unlock()
	if t.mu.TryLock() {
		t.ch <- 3 // want `held over a channel send`
		t.mu.Unlock()
	} else {
		t.ch <- 4
	}
}

// The order of deferred calls counts.
func (t *thing) late(b bool) { // want late:`waits: .*`
	defer t.hook()
	t.mu.Lock()
	defer t.mu.Unlock()
	if b {
		defer t.log.Info("x") // want `held over a call of hclog.Logger.Info`
	}
	defer func() {
		t.mu.Unlock()
		t.ch <- 1
		t.mu.Lock()
		t.ch <- 2 // want `held over a channel send`
	}()
}

func (t *thing) closures() { // want closures:`waits: .*`
	f := func() { t.ch <- 2 } // want `held over a channel send`
	unlock := func() { t.mu.Unlock() }
	f()
	t.mu.Lock()
	f()
	unlock()
	func() {
		t.mu.Lock()
		t.ch <- 1 // want `held over a channel send`
	}()
	t.ch <- 3 // want `held over a channel send`
	t.mu.Unlock()
}

type embeds struct {
	sync.Mutex
	ch chan int
}

func (e *embeds) send() { // want send:`waits: .*`
	e.Lock()
	e.ch <- 1 // want `e.Mutex .* is held over a channel send`
	e.Mutex.Unlock()
	e.ch <- 1
}

func pointer(t *thing) { // want pointer:`waits: .*`
	m := &t.mu
	m.Lock()
	t.ch <- 1 // want `t.mu .* is held over a channel send`
	t.mu.Unlock()
	t.ch <- 1
	var l sync.Locker = &t.rw
	l.Lock()
	t.ch <- 1 // want `held over a channel send`
	l.Unlock()
}

func (t *thing) locked(i int) *thing { // want locked:`locks .*`
	o := t.other[i]
	o.mu.Lock()
	return o
}

func (t *thing) lock()   { t.mu.Lock() }   // want lock:`locks .*`
func (t *thing) unlock() { t.mu.Unlock() } // want unlock:`frees .*`

func (t *thing) byHelpers() { // want byHelpers:`waits: .*`
	o := t.locked(1)
	t.ch <- 1 // want `o.mu .* is held over a channel send`
	o.mu.Unlock()
	t.ch <- 1
	t.lock()
	t.ch <- 1 // want `t.mu .* is held over a channel send`
	t.unlock()
	t.ch <- 1
}

func each(n int, f func(int)) { // want each:`calls \[1\]`
	for i := range n {
		f(i)
	}
}

func (t *thing) higher(g func(int)) { // want higher:`waits: .*calls \[0\]`
	t.mu.Lock()
	defer t.mu.Unlock()
	each(3, func(i int) { t.n += i })
	each(3, func(i int) { t.ch <- i }) // want `held over a call of held.each, which reaches a channel send`
	each(3, g)                         // want `held over a callback: the func value g`
	g(1)                               // want `held over a callback: the func value g`
}

func (t *thing) walk() func(yield func(int) bool) { // want walk:`result waits: a channel receive`
	return func(yield func(int) bool) {
		for yield(<-t.ch) {
		}
	}
}

func (t *thing) count() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for yield(t.n) {
		}
	}
}

func (t *thing) iterate() { // want iterate:`waits: .*`
	t.mu.Lock()
	defer t.mu.Unlock()
	for range t.count() {
	}
	for range t.walk() { // want `held over a channel receive`
	}
	_ = slices.Collect(t.walk()) // want `held over .*a channel receive`
}

func two(a, b *thing) { // want two:`waits: .*`
	a.mu.Lock()
	b.mu.Lock()
	a.mu.Unlock()
	<-a.ch // want `^b.mu \(since held.go:\d+\) is held over a channel receive`
	b.mu.Unlock()
	<-b.ch
}

type shards[K comparable] struct {
	all [4]struct {
		mu   sync.Mutex
		keys map[K]chan int
	}
}

func (s *shards[K]) wait(k K, i int) { // want wait:`waits: .*`
	sh := &s.all[i]
	sh.mu.Lock()
	<-sh.keys[k] // want `s.all\[i\].mu .* is held over a channel receive`
	sh.mu.Unlock()
	s.all[i].mu.Lock()
	<-sh.keys[k] // want `s.all\[i\].mu .* is held over a channel receive`
	s.all[i].mu.Unlock()
	<-sh.keys[k]
}

func (s *shards[K]) waits(k K) { // want waits:`waits: .*`
	s.all[0].mu.Lock()
	defer s.all[0].mu.Unlock()
	s.wait(k, 1) // want `held over a call of shards.wait, which reaches a channel receive \(held.go:\d+\)`
}
