package flow

import (
	"bytes"
	"context"
	"errors"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// What a channel holds and has lost shows for queue, bus, cell and ticker; a mere name does not
// show.
func TestChannelsShowTheirState(t *testing.T) {
	c := NewCatalog(nil, nil)
	q := NewQueue[int](c, Spec{Service: "a", Name: "jobs_tx", Cap: 2, Policy: RejectNew})
	b := NewBroadcast[int](c, Spec{Service: "a", Name: "events", Cap: 3})
	NewWatch(c, Spec{Service: "b", Name: "cell"}, 1)
	Every(c, Spec{Service: "b", Name: "tick"}, time.Hour)
	c.Declare(Spec{Service: "b", Name: "alias", Kind: KindWatch, Cap: 1, Policy: LastWins})
	c.DeclareHeld(
		Spec{Service: "b", Name: "ring", Kind: KindQueue, Cap: 9, Policy: "drop newest"},
		func() (int, uint64) { return 4, 2 },
	)
	for i := range 3 {
		_ = q.TrySend(i)
	}
	slow, quick := b.Subscribe("slow"), b.Subscribe("quick")
	defer slow.Close()
	defer quick.Close()
	for i := range 5 {
		b.Publish(i)
		quick.Next()
	}
	want := map[string][2]uint64{
		"a.jobs_tx": {2, 1}, "a.events": {3, 2}, "b.cell": {1, 0}, "b.tick": {0, 0}, "b.ring": {4, 2},
	}
	got := c.Channels()
	if len(got) != len(want) {
		t.Errorf("%d channels, want %d: %+v", len(got), len(want), got)
	}
	last := ""
	for _, ch := range got {
		name := ch.Service + "." + ch.Name
		if w := want[name]; uint64(ch.Len) != w[0] || ch.Dropped != w[1] {
			t.Errorf("%s holds %d and lost %d, want %v", name, ch.Len, ch.Dropped, w)
		}
		if name < last {
			t.Errorf("%s after %s", name, last)
		}
		last = name
	}
}

// The life of an instance is seen from outside: it runs, waits out a delay, runs again, and is
// done.
func TestTasksShowTheirLives(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		lives := 0
		flaky := func(ctx context.Context) error {
			if lives++; lives == 1 {
				time.Sleep(time.Second)
				return errors.New("first life")
			}
			return until(ctx)
		}
		began := time.Now()
		r.Start(Task{Service: "s", Name: "flaky", Run: flaky},
			Task{Service: "s", Name: "worker", Count: 11, Run: until},
			Task{Service: "r", Name: "once", Restart: OneShot, Run: func(context.Context) error { return nil }})
		synctest.Wait()
		states := r.Tasks()
		if len(states) != 13 || states[0].Task != "once" || states[1].Task != "flaky" || states[12].Index != 10 {
			t.Fatalf("%+v", states)
		}
		want := func(i int, s LifeState, restarts int, since time.Duration, last string) {
			t.Helper()
			got := r.Tasks()[i]
			text := ""
			if got.LastError != nil {
				text = got.LastError.Error()
			}
			if got.State != s || got.Restarts != restarts || got.Since.Sub(began) != since || text != last {
				t.Errorf("%s: %+v, want %s %d %v %q", got.Task, got, s, restarts, since, last)
			}
		}
		want(0, LifeDone, 0, 0, "")
		want(1, LifeRunning, 0, 0, "")
		time.Sleep(time.Second)
		synctest.Wait()
		want(1, LifeBackoff, 0, time.Second, "first life")
		time.Sleep(restartHi)
		synctest.Wait()
		if got := r.Tasks()[1]; got.State != LifeRunning || got.Restarts != 1 || got.LastError == nil {
			t.Errorf("the second life: %+v", got)
		}
		time.Sleep(restartWindow)
		if got := r.Tasks()[1]; got.Restarts != 0 {
			t.Errorf("a minute later %d restarts are recent", got.Restarts)
		}
		r.Close()
		for _, s := range r.Tasks() {
			if s.State != LifeDone {
				t.Errorf("%s is %s after the end", s.Task, s.State)
			}
		}
	})
}

// A goroutine profile labels each goroutine with its task, including those that a task started.
func TestGoroutinesAreLabelled(t *testing.T) {
	s := NewSupervisor(t.Context(), NewCatalog(nil, nil), Hooks{})
	defer s.Close()
	up := make(chan struct{})
	s.Start(Task{Service: "edge", Name: "worker", Run: func(ctx context.Context) error {
		return Fan(ctx, 2, func(ctx context.Context, i int) error {
			if i == 0 {
				close(up)
			}
			return until(ctx)
		})
	}})
	<-up
	var list bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&list, 1); err != nil {
		t.Fatal(err)
	}
	if want := `{"service":"edge", "task":"worker"}`; !strings.Contains(list.String(), want) {
		t.Errorf("no goroutine is labelled %s:\n%s", want, list.String())
	}
}
