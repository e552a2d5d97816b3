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
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/fill"
)

// twoHosts lets a rig fetch from slow.example, where every try times out, and from good.example,
// which answers after 50 ms.
func twoHosts(r *rig) {
	r.cfg.Mode, r.cfg.Allow = config.ModeLive, []string{"slow.example", "good.example"}
}

func slowAndGood(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error {
	pause, tries := 50*time.Millisecond, 1
	if host == "slow.example" {
		pause, tries = r.Timeout, 3
	}
	for range tries {
		r.Trying()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if host == "slow.example" {
		return context.DeadlineExceeded
	}
	body := "of " + strings.TrimPrefix(r.URL, "https://"+host+"/")
	return take(
		&upstream.Answer{Header: http.Header{"Etag": {`"a"`}}, Length: int64(len(body)), Body: strings.NewReader(body)})
}

// During 240 GETs of a slow host every fill of another host is served in time.
func TestSlowHostLeavesRoomForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoHosts)
		*r.e.Get() = slowAndGood
		r.start()
		var all sync.WaitGroup
		for i := range 240 {
			all.Go(func() { _, _, _ = r.read(fmt.Sprint("slow.example/", i)) })
		}
		synctest.Wait()
		if running := r.e.Fills().Load().Running; running != 4 {
			t.Errorf("the slow host holds %d of 8 workers, want half", running)
		}
		for i := range 60 {
			all.Go(func() {
				began, name := time.Now(), fmt.Sprint(i)
				if body, _, err := r.read("good.example/" + name); err != nil || body != "of "+name ||
					time.Since(began) > 2*time.Second {
					t.Errorf("%s: %q, %v after %s", name, body, err, time.Since(began))
				}
			})
		}
		all.Wait()
		time.Sleep(15 * time.Second)
		if has := r.e.Fills().Load(); has != (fill.Load{}) || r.e.Flights().Len() != 0 {
			t.Errorf("%+v although all callers have left", has)
		}
		r.stop()
	})
}

// Two slow hosts leave workers and places for a third, and every fill of the third is served in
// time. When one of the two ends its fills, the other may use more workers.
func TestTwoSlowHostsLeaveRoomForAThird(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, twoHosts, func(r *rig) {
			r.cfg.Allow = append(r.cfg.Allow, "slower.example", "other.example")
			r.cfg.Ingress.RPSLimit = 100_000
		})
		*r.e.Get() = func(ctx context.Context, host string, q upstream.Request, take func(*upstream.Answer) error) error {
			if host == "slower.example" {
				host = "slow.example"
			}
			return slowAndGood(ctx, host, q, take)
		}
		r.start()
		var all sync.WaitGroup
		for i := range 400 {
			for _, host := range []string{"slow.example", "slower.example"} {
				all.Go(func() { _, _, _ = r.read(fmt.Sprint(host, "/", i)) })
			}
		}
		synctest.Wait()
		// The first host alone takes half, and then half of the rest: at most three quarters.
		if has := r.e.Fills().Load(); has.Running < 6 || has.Running > 7 || has.Waiting > 512*3/4 {
			t.Errorf("two slow hosts hold %d of 8 workers and %d of 512 places", has.Running, has.Waiting)
		}
		for round := range 3 { // during the 15 s of a slow fill
			for i := range 20 {
				for _, host := range []string{"good.example", "other.example"} {
					all.Go(func() {
						began, path := time.Now(), fmt.Sprint(host, "/", i, "?", round)
						if _, _, err := r.read(path); err != nil || time.Since(began) > 3*time.Second {
							t.Errorf("%s: %v after %s", path, err, time.Since(began))
						}
					})
				}
			}
			time.Sleep(4 * time.Second)
		}
		all.Wait()
		time.Sleep(15 * time.Second)
		if has := r.e.Fills().Load(); has != (fill.Load{}) {
			t.Errorf("all have ended: %+v", has)
		}
		r.stop()
	})
}

// One host takes at most as much of the queue as it leaves free if edge.allow names several hosts,
// and the whole queue otherwise.
func TestShareOfTheQueue(t *testing.T) {
	for _, tt := range []struct {
		hosts          []string
		places, others int
	}{{[]string{"slow.example", "good.example"}, 5, 3}, {[]string{"slow.example"}, 10, 0}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, twoHosts,
				func(r *rig) { r.cfg.Allow, r.cfg.Queues.WorkTX, r.cfg.Fill.Workers = tt.hosts, 10, 2 })
			*r.e.Get() = slowAndGood
			r.start()
			var all sync.WaitGroup
			busy := map[string]*atomic.Int64{"slow.example": {}, "good.example": {}}
			ask := func(host string, n int) {
				for i := range n {
					all.Go(func() {
						if _, _, err := r.read(fmt.Sprint(host, "/", i)); errors.Is(err, flow.ErrBusy) {
							busy[host].Add(1)
						}
					})
					synctest.Wait()
				}
			}
			workers := map[bool]int{true: 2, false: 1}[len(tt.hosts) == 1]
			ask("slow.example", workers+tt.places+3)
			if n := busy["slow.example"].Load(); n != 3 {
				t.Errorf("%v: %d refused, want 3", tt.hosts, n)
			}
			if len(tt.hosts) > 1 {
				ask("good.example", 1+tt.others)
				if n := busy["good.example"].Load(); n != 0 {
					t.Errorf("%d of the other host refused", n)
				}
			}
			if n := r.count("queue_dropped_total", "queue", "work"); n != 3 {
				t.Errorf("%v counted", n)
			}
			all.Wait()
			r.stop()
		})
	}
}

// A fill that all its callers have left in the queue is not begun, and its place is free again. A
// fill that a POST began is begun anyway, and a running fill continues.
func TestAbandonedFills(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, live, func(r *rig) { r.cfg.Fill.Workers, r.cfg.Queues.WorkTX = 1, 2 })
		var mu sync.Mutex
		var begun []string // guarded by mu
		*r.e.Get() = answers(func(_ context.Context, q upstream.Request) error {
			mu.Lock()
			begun = append(begun, strings.TrimPrefix(q.URL, "https://example.com/"))
			mu.Unlock()
			time.Sleep(20 * time.Second)
			return nil
		})
		r.start()
		var all sync.WaitGroup
		leave := func(name string, after time.Duration, ask func(ctx context.Context) error) {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), after)
				defer cancel()
				if err := ask(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
			})
			synctest.Wait()
		}
		get := func(name string) func(context.Context) error {
			return func(ctx context.Context) error { _, err := r.e.Asset(ctx, "example.com/"+name, ""); return err }
		}
		post := func(name string) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := r.e.Fill(ctx, fill.Request{URL: "https://example.com/" + name})
				return err
			}
		}
		leave("running", time.Second, get("running"))
		leave("posted", time.Second, post("posted"))
		leave("left", time.Second, get("left"))
		leave("left", 2*time.Second, get("left")) // the second caller of the same fill
		r.refused("example.com/more", flow.ErrBusy)
		time.Sleep(1500 * time.Millisecond)
		if n := r.e.Fills().Load().Waiting; n != 2 {
			t.Errorf("%d wait while one caller is left", n)
		}
		time.Sleep(time.Second)
		if n := r.e.Fills().Load().Waiting; n != 1 {
			t.Errorf("%d wait after the last caller has left", n)
		}
		leave("late", 30*time.Second, func(ctx context.Context) error {
			_, err := r.e.Fill(ctx, fill.Request{URL: "https://example.com/late"})
			return err
		})
		all.Wait()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(begun, " "); got != "running posted late" {
			t.Errorf("begun: %s", got)
		}
		r.sound()
		r.stop()
	})
}

// A fill has the latest deadline of its callers, also when it is ready: no worker begins it later.
// A caller that joins may extend the deadline.
func TestFillKeepsItsDeadline(t *testing.T) {
	for joined, want := range map[time.Duration]int64{0: 0, 3 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, live)
			var begun atomic.Int64
			*r.e.Get() = answers(func(context.Context, upstream.Request) error { begun.Add(1); return nil })
			var workers []flow.Task
			for _, task := range r.e.Tasks() {
				if task.Name == fill.TaskName {
					workers = append(workers, task)
					continue
				}
				r.sup.Start(task)
			}
			var all sync.WaitGroup
			began := time.Now()
			all.Go(func() {
				if _, _, err := r.read("example.com/x"); !errors.Is(err, context.DeadlineExceeded) ||
					!within(time.Since(began), 5*time.Second) {
					t.Errorf("%v after %s", err, time.Since(began))
				}
			})
			if joined > 0 {
				all.Go(func() {
					time.Sleep(joined)
					if body, _, err := r.read("example.com/x"); err != nil || body != "of x" {
						t.Errorf("joined: %q, %v", body, err)
					}
				})
			}
			time.Sleep(6 * time.Second)
			if n := r.e.Fills().Load().Ready; n != 1 {
				t.Errorf("%d are ready for a worker", n)
			}
			r.sup.Start(workers...)
			all.Wait()
			synctest.Wait()
			has := r.e.Fills().Load()
			if begun.Load() != want || has != (fill.Load{}) || r.e.Flights().Len() != 0 {
				t.Errorf("joined after %s: %d begun, then %+v", joined, begun.Load(), has)
			}
			r.stop()
		})
	}
}

// Paths that fail with 500 do not open the breaker, and each is fetched once in 5 s for GETs. A 503
// of a single path does not open it either.
func TestFaultyPathsSpareTheHost(t *testing.T) {
	t.Parallel()
	for _, status := range []int{500, 501, 507, 503} {
		h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
			if strings.HasPrefix(q.URL.Path, "/bad/") {
				w.WriteHeader(status)
				return
			}
			echo(w, q)
		})
		r := newRig(t, on(h))
		r.start()
		for i := range 60 {
			path := fmt.Sprintf("%s/bad/%d", h.name, i)
			if status == 503 {
				path = fmt.Sprintf("%s/bad/%d", h.name, i%2)
				r.clock.Add(int64(faultyFor))
			}
			if _, _, err := r.read(path); reason(err) != asset.Upstream5xx && reason(err) != asset.UpstreamUnavailable ||
				errors.Is(err, upstream.ErrOpen) {
				t.Fatalf("%d, %d: %v", status, i, err)
			}
		}
		r.want(h.name+"/good", "of good")
		if n := r.count("circuit_open_total", "svc", h.name); n != 0 {
			t.Errorf("%d: opened %v times", status, n)
		}
	}
}

// A 5xx is remembered for its path for 5 s: GETs are refused with the same reason, a POST asks
// again.
func TestFaultIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, live)
		asked := 0
		*r.e.Get() = func(_ context.Context, _ string, q upstream.Request, _ func(*upstream.Answer) error) error {
			q.Trying()
			asked++
			return &upstream.StatusError{Status: http.StatusInternalServerError}
		}
		r.start()
		for i, step := range []struct {
			wait  time.Duration
			post  bool
			asked int
		}{{0, false, 1}, {0, false, 1}, {0, true, 2}, {faultyFor - time.Second, false, 2}, {2 * time.Second, false, 3}} {
			r.e.Absent().Settle()
			time.Sleep(step.wait)
			var err error
			if step.post {
				_, err = r.e.Fill(t.Context(), fill.Request{URL: "https://example.com/x"})
			} else {
				_, _, err = r.read("example.com/x")
			}
			if reason(err) != asset.Upstream5xx || asked != step.asked {
				t.Errorf("step %d: %v, asked %d times, want %d", i, err, asked, step.asked)
			}
		}
		r.stop()
	})
}
