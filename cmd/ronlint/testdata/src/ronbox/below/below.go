// Package below waits, and says so to the packages above.
package below

import (
	"context"
	"os"
	"sync"
)

type Reader interface {
	Get(key string) string // want Get:`waits: a call of os.ReadFile`
	Len() int
}

type fileReader struct{ n int }

func (f *fileReader) Get(key string) string { // want Get:`waits: a call of os.ReadFile`
	b, _ := os.ReadFile(key)
	return string(b)
}

func (f *fileReader) Len() int { return f.n }

func Commit(ch chan int) { // want Commit:`waits: a channel send \(below.go:\d+\)`
	hand(ch)
}

func hand(ch chan int) { ch <- 1 } // want hand:`waits: a channel send`

func Offer(ch chan int) bool {
	select {
	case ch <- 1:
		return true
	default:
		return false
	}
}

type Store struct {
	mu sync.Mutex
	ch chan int
}

func (s *Store) Lock() *Store { // want Lock:`locks .*`
	s.mu.Lock()
	return s
}

func (s *Store) Unlock() { // want Unlock:`frees .*`
	s.mu.Unlock()
}

func (s *Store) View(ctx context.Context, f func()) { // want View:`waits: .*calls \[1\]`
	select {
	case <-ctx.Done():
	case s.ch <- 1:
	}
	f()
}

// Room holds as many as are ever sent.
func (s *Store) Room() {
	//lockwait: the channel has room for all that is ever sent
	s.ch <- 1
}

func Each(f func(int)) { f(1) } // want Each:`calls \[0\]`

func Rows(r Reader) func(yield func(string) bool) { // want Rows:`result waits: a call of os.ReadFile`
	return func(yield func(string) bool) { yield(r.Get("a")) }
}
