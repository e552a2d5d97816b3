package edge_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/tables"
)

// live lets a rig fetch from example.com, with get in the place of the client.
func live(r *rig) { r.cfg.Mode, r.cfg.Allow = config.ModeLive, []string{"example.com"} }

// fake replaces the clients of all hosts.
type fake func(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error

// answers is a host that returns the path of every URL after wait has returned.
func answers(wait func(context.Context, upstream.Request) error) fake {
	return func(ctx context.Context, _ string, r upstream.Request, take func(*upstream.Answer) error) error {
		if err := wait(ctx, r); err != nil {
			return err
		}
		r.Trying()
		body := "of " + strings.TrimPrefix(r.URL, "https://example.com/")
		return take(
			&upstream.Answer{
				Header: http.Header{"Etag": {`"a"`}},
				Length: int64(len(body)),
				Body:   strings.NewReader(body),
			},
		)
	}
}

// within reports whether d differs from want by at most 100 ms.
func within(d, want time.Duration) bool { return (d - want).Abs() <= 100*time.Millisecond }

// A request waits 5 s for a fill, and the fill continues. Its tries have 5 s, or an hour if a POST
// began it.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, live)
		var mu sync.Mutex
		var tries []time.Duration // guarded by mu
		*r.e.Get() = answers(func(ctx context.Context, q upstream.Request) error {
			mu.Lock()
			tries = append(tries, q.Timeout)
			mu.Unlock()
			time.Sleep(8 * time.Second)
			return context.Cause(ctx)
		})
		r.start()
		began := time.Now()
		r.refused("example.com/x", context.DeadlineExceeded)
		if d := time.Since(began); !within(d, 5*time.Second) {
			t.Errorf("refused after %s", d)
		}
		began = time.Now()
		r.want("example.com/x", "of x")
		mu.Lock()
		if len(tries) != 1 || !within(time.Since(began), 3*time.Second) { // the same fill
			t.Errorf("%d tries after %s", len(tries), time.Since(began))
		}
		mu.Unlock()
		began = time.Now()
		if f, err := r.e.Fill(context.Background(), fill.Request{URL: "https://example.com/y"}); err != nil || !f.New ||
			!within(time.Since(began), 8*time.Second) {
			t.Errorf("%+v, %v after %s", f, err, time.Since(began))
		}
		early, cancel := context.WithTimeout(context.Background(), time.Second)
		began = time.Now()
		if _, err := r.e.Asset(early, "example.com/z", ""); !errors.Is(err, context.DeadlineExceeded) ||
			!within(time.Since(began), time.Second) {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		cancel()
		mu.Lock()
		defer mu.Unlock()
		if len(tries) != 3 || tries[0] != 5*time.Second || tries[1] != fill.LongTry {
			t.Errorf("tries of %v", tries)
		}
		r.stop()
	})
}

// The pauses between tries are those of the seed: min(800 ms, 50 ms·2ⁿ) + U[0, 50 ms].
func TestPauses(t *testing.T) {
	t.Parallel()
	d := config.DefaultConfig().Retry.LiveFill
	for n, least := range []time.Duration{50, 100, 200, 400, 800, 800} {
		least *= time.Millisecond
		seen := map[bool]int{}
		for range 2000 {
			pause := d.After(n)
			if pause < least || pause > least+50*time.Millisecond {
				t.Fatalf("after failure %d: %s", n, pause)
			}
			seen[pause < least+25*time.Millisecond]++
		}
		if seen[true] < 800 || seen[false] < 800 {
			t.Errorf("after failure %d: not spread evenly, %v", n, seen)
		}
		if d := (config.RetryRule{BaseMS: d.BaseMS, MaxMS: d.MaxMS}); d.After(n) != least {
			t.Errorf("without jitter: %s", d.After(n))
		}
	}
}

// A POST that joins the fill of a GET begins another fill if that one had too little time.
func TestJoinedFillHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, live)
		*r.e.Get() = answers(func(ctx context.Context, q upstream.Request) error {
			if q.Timeout < 20*time.Second {
				time.Sleep(q.Timeout)
				return context.DeadlineExceeded
			}
			time.Sleep(20 * time.Second)
			return nil
		})
		r.start()
		var all sync.WaitGroup
		all.Go(func() {
			if _, _, err := r.read("example.com/x"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("GET: %v", err)
			}
		})
		synctest.Wait()
		if f, err := r.e.Fill(context.Background(), fill.Request{URL: "https://example.com/x"}); err != nil || !f.New {
			t.Errorf("POST: %+v, %v", f, err)
		}
		all.Wait()
		r.stop()
	})
}

// A refresh that joins a fill which found the object stored fetches the object anyway.
func TestRefreshIsNoLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, live)
		*r.e.Get() = answers(func(context.Context, upstream.Request) error { return nil })
		r.start()
		o := r.want("example.com/x", "of x")
		const url = "https://example.com/x"
		looked := make(chan struct{})
		var all sync.WaitGroup
		all.Go(func() {
			_, err := r.e.Flights().Do(
				context.Background(),
				url,
				struct{}{},
				time.Minute,
				func(context.Context) (fill.Filled, error) {
					<-looked
					return fill.Filled{Stored: tables.Stored{URL: url, Digest: o.Digest}}, nil
				},
			)
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if f, err := r.e.Fill(context.Background(), fill.Request{URL: url, Refresh: true}); err != nil || !f.New {
				t.Errorf("%+v, %v", f, err)
			}
		})
		synctest.Wait()
		close(looked)
		all.Wait()
		r.stop()
	})
}

// A shutdown lets a running fill end within the drain deadline, cancels fills that have not begun,
// and aborts fills that take longer.
func TestShutdown(t *testing.T) {
	for took, aborted := range map[time.Duration]int{2 * time.Second: 0, 10 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, live, func(r *rig) { r.cfg.Fill.Workers = 1 })
			*r.e.Get() = answers(func(ctx context.Context, _ upstream.Request) error {
				select {
				case <-time.After(took):
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			r.start()
			var all sync.WaitGroup
			outcome := map[string]error{}
			var mu sync.Mutex
			for _, name := range []string{"a", "b", "c"} {
				all.Go(func() {
					_, err := r.e.Fill(context.Background(), fill.Request{URL: "https://example.com/" + name})
					mu.Lock()
					defer mu.Unlock()
					outcome[name] = err
				})
				synctest.Wait()
			}
			began := time.Now()
			r.drain(r.cfg.DrainDeadline.D())
			if d := time.Since(began); !within(d, min(took, 3*time.Second)) {
				t.Errorf("drained in %s", d)
			}
			all.Wait()
			if (outcome["a"] == nil) != (aborted == 0) ||
				outcome["a"] != nil && !errors.Is(outcome["a"], flow.ErrCanceled) {
				t.Errorf("running: %v", outcome["a"])
			}
			for _, name := range []string{"b", "c"} {
				if !errors.Is(outcome[name], flow.ErrCanceled) {
					t.Errorf("%s had not begun: %v", name, outcome[name])
				}
			}
			if n := r.count("tasks_canceled_total", "kind", fill.TaskName); n != 2 {
				t.Errorf("%v counted as cancelled", n)
			}
			if n := r.count("tasks_aborted_total", "kind", fill.TaskName); n != float64(aborted) {
				t.Errorf("%v counted as aborted", n)
			}
			if _, err := r.e.Fill(context.Background(), fill.Request{URL: "https://example.com/d"}); !errors.Is(
				err,
				flow.ErrClosed,
			) {
				t.Errorf("after it: %v", err)
			}
			r.noTemps()
		})
	}
}

// One producer, a queue of 2, one consumer, and a shutdown at every point: every accepted job has
// exactly one answer, the shutdown is always seen, and the consumer receives at most the 2 queued
// jobs after it and begins neither.
func TestShutdownAtEveryPoint(t *testing.T) {
	for _, at := range []int{0, 1, 3} { // fills that have ended before the shutdown
		for more := range 3 { // jobs that are queued at the shutdown
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, live, func(r *rig) { r.cfg.Fill.Workers, r.cfg.Queues.WorkTX = 1, 2 })
				turn := make(chan struct{})
				var begun atomic.Int64
				*r.e.Get() = answers(func(ctx context.Context, _ upstream.Request) error {
					begun.Add(1)
					<-turn
					return nil
				})
				r.start()
				var all sync.WaitGroup
				var done, canceled atomic.Int64
				accepted := int64(0)
				ask := func() {
					url := fmt.Sprintf("https://example.com/%d", accepted)
					accepted++
					all.Go(func() {
						switch _, err := r.e.Fill(context.Background(), fill.Request{URL: url}); {
						case err == nil:
							done.Add(1)
						case errors.Is(err, flow.ErrCanceled):
							canceled.Add(1)
						default:
							t.Errorf("%v", err)
						}
					})
					synctest.Wait()
				}
				for range at {
					ask()
					turn <- struct{}{}
					synctest.Wait()
				}
				for range more + 1 { // one runs, the others wait
					ask()
				}
				if more == 2 {
					if _, err := r.e.Fill(context.Background(),
						fill.Request{URL: "https://example.com/more"}); !errors.Is(err, flow.ErrBusy) {
						t.Errorf("a third in a queue of 2: %v", err)
					}
				}
				r.phase.Store(flow.Draining)
				started := begun.Load()
				close(turn)
				r.stop()
				all.Wait()
				if begun.Load() != started || done.Load() != int64(at)+1 || canceled.Load() != int64(more) ||
					accepted != done.Load()+canceled.Load() {
					t.Errorf("%d accepted: %d done, %d cancelled, %d begun after the shutdown", accepted, done.Load(),
						canceled.Load(), begun.Load()-started)
				}
			})
		}
	}
}

// Half of the workers are killed under load: readiness fails while fills are refused, the other
// workers continue, every caller is answered, and readiness returns within a second after the
// restart.
func TestHalfTheWorkersKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, live, func(r *rig) { r.cfg.Queues.WorkTX, r.cfg.Ingress.RPSLimit = 8, 100_000 })
		var kill atomic.Int64
		*r.e.Get() = answers(func(ctx context.Context, _ upstream.Request) error {
			if kill.Add(-1) >= 0 {
				panic("killed")
			}
			time.Sleep(20 * time.Millisecond)
			return nil
		})
		r.start()
		ready := func() bool { return r.board.Report(service, "").Ready }
		time.Sleep(time.Second)
		if !ready() {
			t.Fatalf("not ready at first: %v", r.board.Report(service, "").Causes)
		}
		var all sync.WaitGroup
		var ok, busy, canceled atomic.Int64
		load := func(rounds, width int) {
			for i := range rounds {
				for k := range width {
					all.Go(func() {
						_, _, err := r.read(fmt.Sprintf("example.com/%d/%d/%d", time.Now().UnixNano(), i, k))
						switch {
						case err == nil:
							ok.Add(1)
						case errors.Is(err, flow.ErrBusy):
							busy.Add(1)
						case errors.Is(err, flow.ErrCanceled):
							canceled.Add(1)
						default:
							t.Error(err)
						}
					})
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		load(50, 7) // of 8 that are possible
		if !ready() || busy.Load() > 0 {
			t.Fatalf("%d refused before anything was killed: %v", busy.Load(), r.board.Report(service, "").Causes)
		}
		kill.Store(4)
		load(10, 7) // the queue is full after 60 ms, before any relaunch
		if ready() || busy.Load() == 0 || canceled.Load() != 4 {
			t.Errorf("ready %t after the kill, %d refused, %d cancelled", ready(), busy.Load(), canceled.Load())
		}
		if r.board.Report("", "").WriteReady != true {
			t.Error("the node is not ready for it")
		}
		for r.e.Fills().Missing() > 0 { // restarted after 100 to 400 ms
			load(1, 3)
		}
		load(45, 3)
		if !ready() {
			t.Errorf("not ready 0.9 s after the relaunch: %v", r.board.Report(service, "").Causes)
		}
		all.Wait()
		if n := r.count("service_restarts_total", "task", fill.TaskName); n != 4 {
			t.Errorf("%v restarts", n)
		}
		if n := r.count("tasks_spawned_total", "kind", fill.TaskName); n < 8 {
			t.Errorf("%v spawned", n)
		}
		r.sound()
		r.stop()
	})
}
