//go:build flowsched

package flow

import (
	"context"
	"testing"
)

// sentJob is a job in a queue with its reply.
type sentJob struct {
	n     int
	reply *Reply[int]
}

// worked: producers of one job each, a queue, workers, and a shutdown that discards the rest; if
// leave is set, the producers may leave. Every accepted job is answered once, and applied if and
// only if its producer learns so.
func worked(producers int, leave bool, take func(*Reply[int]) bool) scenario {
	return func(w *world) func() error {
		q := newQueue[sentJob](2)
		applied, accepted, outcomes := map[int]int{}, 0, map[int]error{}
		ctx, cancel := context.WithCancelCause(w.ctx)
		for n := range producers {
			w.thread("producer", func() {
				j := sentJob{n, NewReply[int]()}
				if err := q.TrySend(j); err != nil {
					w.check(err == ErrClosed, "TrySend = %v", err)
					return
				}
				accepted++
				v, err := j.reply.Wait(ctx)
				w.check(err != nil || v == n, "%d is answered with %d", n, v)
				outcomes[n] = err
			})
			w.thread("worker", func() {
				for {
					j, err := q.Recv(w.ctx)
					if err != nil {
						w.check(err == ErrClosed, "Recv = %v", err)
						return
					}
					if take(j.reply) {
						applied[j.n]++
						j.reply.Answer(j.n)
					}
				}
			})
		}
		w.thread("shutdown", func() {
			for _, j := range q.Discard("test") {
				w.check(j.reply.Fail(ErrCanceled) || leave, "a discarded job was settled")
			}
		})
		if leave {
			w.thread("leaver", func() { point("leaves"); cancel(errLeft) })
		}
		return func() error {
			cancel(nil)
			w.check(len(outcomes) == accepted, "%d accepted, outcomes %v", accepted, outcomes)
			for n, err := range outcomes {
				w.check(err == nil || err == ErrCanceled || leave && err == errLeft, "%d: %v", n, err)
				w.check((err == nil) == (applied[n] == 1) && applied[n] <= 1,
					"%d is applied %d times, its producer has %v", n, applied[n], err)
			}
			return w.err
		}
	}
}

func TestScheduleJobs(t *testing.T) {
	claim := func(r *Reply[int]) bool { return r.Claim() }
	t.Run("2x2 and shutdown", func(t *testing.T) { holds(t, worked(2, false, claim), 1000, 8_000) })
	t.Run("1x1, shutdown and leaver", func(t *testing.T) { holds(t, worked(1, true, claim), 1000, 5_000) })
	t.Run("twin", func(t *testing.T) { // looks whether the producer has left, but does not claim
		breaks(t, worked(1, true, func(r *Reply[int]) bool { return !r.Canceled() }),
			"is applied 1 times, its producer has left")
	})
}
