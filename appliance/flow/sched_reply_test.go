//go:build flowsched

package flow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// answer is the part of a Reply that the scenarios use.
type answer interface {
	Claim() bool
	Answer(v int) bool
	Fail(err error) bool
	Canceled() bool
	Wait(ctx context.Context) (int, error)
}

var (
	errLeft    = errors.New("left")    // the cause of the waiter's context
	errRefused = errors.New("refused") // argument of Fail
)

// asked is what became of one job.
type asked struct {
	*world
	answer
	claims  int
	settled []string // outcomes of calls that returned true
	value   int
	err     error
}

// wait adds the waiter and one who makes it leave.
func (a *asked) wait() {
	ctx, cancel := context.WithCancelCause(a.ctx)
	a.thread("waiter", func() { a.value, a.err = a.Wait(ctx) })
	a.thread("leaver", func() { point("leaves"); cancel(errLeft) })
}

// work adds a worker, which answers with v if it has the job, perhaps too late.
func (a *asked) work(v int) {
	a.thread("worker", func() {
		if !a.Claim() {
			return
		}
		a.claims++
		if a.Answer(v) {
			a.settled = append(a.settled, fmt.Sprint(v, nil))
		}
	})
}

// refuse adds one that fails the job without a claim, as who discards a queue does.
func (a *asked) refuse() {
	a.thread("refuser", func() {
		if a.Fail(errRefused) {
			a.settled = append(a.settled, fmt.Sprint(0, errRefused))
		}
	})
}

// law: the waiter has exactly one outcome, and it is the one that was settled; a claimed job is not
// cancelled.
func (a *asked) law() error {
	switch {
	case a.claims > 1 || len(a.settled) > 1:
		a.check(false, "%d claims, settled %v", a.claims, a.settled)
	case a.err == errLeft:
		a.check(a.claims == 0 && len(a.settled) == 0 && a.Canceled(), "the waiter left, but %d claims, settled %v",
			a.claims, a.settled)
	case a.err == ErrUnknown:
		a.check(a.claims == 1 || len(a.settled) == 1, "unknown, but nothing was begun")
	default:
		a.check(slices.Equal(a.settled, []string{fmt.Sprint(a.value, a.err)}), "the waiter has %d, %v, settled is %v",
			a.value, a.err, a.settled)
	}
	return a.world.err
}

// answered: workers, refusers and the end of the waiter's context meet at one job, and its grace
// may pass at any moment.
func answered(make func() answer, workers, refusers int) scenario {
	return func(w *world) func() error {
		a := &asked{world: w, answer: make()}
		a.wait()
		for i := range workers {
			a.work(i + 1)
		}
		for range refusers {
			a.refuse()
		}
		w.clock(2 * replyGrace)
		return a.law
	}
}

func schedReply() answer { return NewReply[int]() }

func TestScheduleReply(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sc    scenario
		least int
		limit int
	}{
		{"one worker", answered(schedReply, 1, 0), 1000, 5_000},
		{"two workers", answered(schedReply, 2, 0), 1000, 5_000},
		{"worker and refuser", answered(schedReply, 1, 1), 1000, 5_000},
	} {
		t.Run(tt.name, func(t *testing.T) { holds(t, tt.sc, tt.least, tt.limit) })
	}
}

// rudeReply has a waiter that leaves without a look at whether the job is claimed.
type rudeReply struct{ *Reply[int] }

func (r rudeReply) Wait(ctx context.Context) (int, error) {
	done, over := either2("rude Wait", r.done, ctx.Done())
	select {
	case <-done:
		woken("rude Wait")
		return r.value, r.err
	case <-over:
		woken("rude Wait")
		r.state.Store(replyLeft)
		return 0, context.Cause(ctx)
	}
}

// hurriedReply says that it is answered before the answer is written.
type hurriedReply struct{ *Reply[int] }

func (r hurriedReply) Answer(v int) bool {
	if !r.swap(replyClaimed, replyAnswered) {
		return false
	}
	point("hurried Answer")
	r.value = v
	close(r.done)
	return true
}

func TestScheduleReplyTwins(t *testing.T) {
	t.Run("leaves a claimed job", func(t *testing.T) {
		breaks(t, answered(func() answer { return rudeReply{NewReply[int]()} }, 1, 0), "the waiter left, but 1 claims")
	})
	t.Run("not written", func(t *testing.T) {
		breaks(t, answered(func() answer { return hurriedReply{NewReply[int]()} }, 1, 0), "the waiter has 0")
	})
}
