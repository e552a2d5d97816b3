package wallet

import (
	"context"
	"runtime"
	"sync"
	"testing"
)

// Workers take, pass and lose the turn concurrently. One worker has it at a time, and the turn is
// never lost.
func TestOneTurn(t *testing.T) {
	tn, workers := newTurn(), []*worker{{}, {}, {}, {}}
	var has sync.Mutex
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			for range 1000 {
				if err := tn.take(context.Background(), w); err != nil {
					t.Error(err)
					return
				}
				if !has.TryLock() {
					t.Error("two have it")
					return
				}
				runtime.Gosched()
				has.Unlock()
				tn.pass(w)
				tn.pass(w)
			}
		})
	}
	wg.Wait()
	for range 4000 {
		tn.revoke()
	}
	if len(tn.free) != 1 {
		t.Error("it is lost")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	<-tn.free
	if tn.take(ctx, workers[0]) == nil || tn.holder.Load() != nil {
		t.Error("taken by one who is told to stop")
	}
}
