//go:build flowsched

package flow

import "testing"

// pipelined has the structure of the registry's pipeline: proposals and commits wait in two queues
// for one task, which publishes each version on a bus before it answers. A shutdown closes both
// queues. Every accepted job is answered. A proposal becomes one version, however often it is
// committed. The reader of the bus sees every answered version. All threads see the end.
func pipelined(committed func(done map[int]bool, n int) bool) scenario {
	return func(w *world) func() error {
		proposals, commits := newQueue[sentJob](1), newQueue[sentJob](2)
		bus := NewBroadcast[item](
			NewCatalog(nil, nil),
			Spec{Service: "t", Name: "committed", Cap: 2, Policy: DropOldest},
		)
		news := bus.Subscribe("reader")
		accepted, answered, versions, read, lost := 0, 0, 0, 0, uint64(0)
		ask := func(q *Queue[sentJob], name string, n int) {
			w.thread(name, func() {
				j := sentJob{n, NewReply[int]()}
				if err := q.TrySend(j); err != nil {
					w.check(err == ErrClosed, "TrySend = %v", err)
					return
				}
				accepted++
				v, err := j.reply.Wait(w.ctx)
				w.check(err == nil && v == n, "%d is answered with %d, %v", n, v, err)
				answered++
			})
		}
		ask(proposals, "proposer", 1)
		ask(commits, "committer", 2)
		ask(commits, "committer again", 2)
		w.thread("pipeline", func() {
			done := map[int]bool{}
			props, apprs := proposals.C(), commits.C()
			for props != nil || apprs != nil {
				a, b := either2("pipeline", props, apprs)
				var j sentJob
				var ok bool
				select {
				case j, ok = <-a:
					if woken("pipeline, a proposal"); !ok {
						props = nil
					}
				case j, ok = <-b:
					if woken("pipeline, a commit"); !ok {
						apprs = nil
					}
				}
				if !ok || !j.reply.Claim() {
					continue
				}
				if j.n == 2 && !committed(done, j.n) {
					done[j.n] = true
					versions++
					bus.Publish(item{1, versions})
				}
				j.reply.Answer(j.n)
			}
			bus.Close()
		})
		w.thread("reader", func() {
			for {
				v, lagged, err := news.Recv(w.ctx)
				if err != nil {
					w.check(err == ErrClosed, "Recv = %v", err)
					return
				}
				w.check(v.n > read, "version %d after %d", v.n, read)
				read, lost = v.n, lost+lagged
			}
		})
		w.thread("shutdown", func() {
			proposals.Close()
			commits.Close()
		})
		return func() error {
			w.check(answered == accepted, "%d accepted, %d answered", accepted, answered)
			w.check(versions <= 1, "%d versions of one proposal", versions)
			w.check(read == versions && lost == 0, "%d versions, the reader has %d and lost %d", versions, read, lost)
			return w.err
		}
	}
}

func TestSchedulePipeline(t *testing.T) {
	once := func(done map[int]bool, n int) bool { return done[n] }
	t.Run("two queues and shutdown", func(t *testing.T) { holds(t, pipelined(once), 1000, 8_000) })
	t.Run("twin", func(t *testing.T) { // does not check the state of the proposal
		breaks(t, pipelined(func(map[int]bool, int) bool { return false }), "2 versions of one proposal")
	})
}
