package flow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Drain tells of one that is left behind, also when it is its hook that does not return.
func TestDrainCountsWhoIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		c := NewCatalog(nil, nil)
		fails := errors.New("fails")
		s := NewSupervisor(t.Context(), c, Hooks{Escalated: func(_, _ string, is bool) {
			if !is {
				<-hold
			}
		}})
		n := 0
		s.Start(Task{Service: "a", Name: "b", Count: 1, Restart: Always, Doc: "fails, then waits.", Run: func(ctx context.Context) error {
			if n++; n < 12 {
				return fails
			}
			<-ctx.Done()
			return context.Cause(ctx)
		}})
		time.Sleep(40 * time.Second)
		synctest.Wait()
		s.mu.Lock()
		b := s.branch("a")
		s.mu.Unlock()
		b.cancel(ErrCanceled)
		synctest.Wait()
		if got := s.Drain("a", time.Second, time.Second); got != 1 {
			t.Errorf("%d aborted, and one was left behind", got)
		}
		close(hold)
		s.Close()
	})
}
