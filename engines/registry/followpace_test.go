package registry_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// chattyHub names a version each microsecond and counts the requests for its checkpoint.
type chattyHub struct {
	*fakeHub
	asked atomic.Int64
}

func (h *chattyHub) Checkpoint(ctx context.Context) ([]byte, error) {
	h.asked.Add(1)
	return h.fakeHub.Checkpoint(ctx)
}

func (h *chattyHub) Hear(ctx context.Context, _ uint64, heard func(uint64)) error {
	for ctx.Err() == nil {
		heard(1)
		time.Sleep(100 * time.Microsecond)
	}
	return context.Cause(ctx)
}

// A hub that tells of versions without end causes few rounds, and so few writes of what it has
// signed anew.
func TestFollowerOfAChattyHub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub(t)
		cover(h.of)
		r := newFollower(t, h)
		chatty := &chattyHub{fakeHub: h}
		setHub(r, chatty)
		r.Start()
		r.WaitFor("the genesis", func() bool { return r.Engine.Head().Head.Version == 1 })
		before := chatty.asked.Load()
		time.Sleep(time.Second)
		if n := chatty.asked.Load() - before; n > 10 {
			t.Errorf("the hub was asked %d times within a second", n)
		}
		r.Stop()
		h.of.Stop()
	})
}

// A follower that makes no rounds keeps what it knows of the hub: a fork is not over because the
// own log was found damaged.
func TestFollowerThatRestsKeepsTheFault(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 1)
	r := newFollower(t, h)
	f := newRounds(r)
	f.try(t)
	r.Engine.Follower().Restore(&tables.FollowFault{State: follow.Fork})
	why := "version 1: flipped"
	r.Engine.ChainError().Store(&why)
	if got := f.try(t); got.State != follow.Fork {
		t.Errorf("%+v", got)
	}
	if got := audited(r); len(got) > 0 {
		t.Errorf("audited %v", got)
	}
	r.Engine.Follower().Restore(nil)
	if got := f.try(t); got.State != follow.Waiting || !strings.Contains(got.Detail, "chain") {
		t.Errorf("without a fault: %+v", got)
	}
}

// A follower whose own mark cannot be written says so.
func TestFollowerWithoutAMark(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 1)
	r := newFollower(t, h)
	mark := r.MarkFile()
	_ = os.Remove(mark)
	if err := os.MkdirAll(filepath.Join(mark, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(r.Ctx(), registrytest.Patience)
	defer stop()
	if err := r.Engine.Follower().Task().Run(ctx); err == nil || ctx.Err() != nil {
		t.Fatalf("the task ended with %v", err)
	}
	if got := r.Engine.Follower().Status(); got.State != follow.Waiting ||
		!strings.Contains(got.Detail, "this node cannot go on") {
		t.Errorf("%+v", got)
	}
}

// A fault of the hub outlives a restart: the hub cannot be silent until it is forgotten.
func TestFollowerRemembersTheFault(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 2)
	other := h.fork()
	h.add(s, 1)
	other.of.Advance(time.Second)
	other.add(s, 3)
	r := newFollower(t, h)
	f := newRounds(r)
	f.try(t)
	setHub(r, other)
	if got := f.try(t); got.State != follow.Fork {
		t.Fatalf("%+v", got)
	}
	silent := func(string) error { return errors.New("503") }
	h.set(func(h *fakeHub) { h.fail = silent })
	setHub(r, h)
	r.Stop()
	r.Open()
	f = newRounds(r)
	for range 2 {
		if got := f.try(t); got.State != follow.Fork || got.Detail == "" {
			t.Errorf("after a restart: %+v", got)
		}
		if _, err := headIn(r); err == nil {
			t.Error("after a restart HEAD decides")
		}
	}
	wantFollowed(r)
	quoted := &tables.FollowFault{State: follow.Unsound, Detail: strings.Repeat("\xff", 4<<10)}
	if _, err := store.Commit(r.Ctx(), r.Store, store.Work,
		tables.NoteFollow{
			Note:  store.Event{Event: "registry.follow", Decision: "deny", Reason: follow.Unsound},
			Fault: quoted,
		}); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	r.Open()
	if got := r.Engine.Follower().Status(); got.State != follow.Unsound || len(got.Detail) > 2*tables.MaxFault {
		t.Errorf("of bytes of the hub: %+v", got)
	}
	f = newRounds(r)
	h.set(func(h *fakeHub) { h.fail = nil })
	if got := f.try(t); got.State != follow.OK {
		t.Errorf("%+v", got)
	}
	r.Stop()
	r.Open()
	if err := r.Engine.Follower().OK(); err != nil {
		t.Errorf("after the fault is over: %v", err)
	}
	wantEqual(r, h)
	if got := fmt.Sprint(audited(r)); got != "[fork unsound ok]" {
		t.Errorf("audited %s", got)
	}
}

// A long log is read in the end from a hub that is often busy, and each version once.
func TestFollowerOfABusyHub(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 30)
	r := newFollower(t, h)
	f := newRounds(r)
	r.Engine.FollowRule().Slice = 2
	var asked, served int
	h.set(func(h *fakeHub) {
		h.fail = func(call string) error {
			if call != "entry" {
				return nil
			}
			if asked++; asked%12 == 0 {
				return errors.New("429")
			}
			served++
			return nil
		}
	})
	for n := 0; f.try(t).State != follow.OK; n++ {
		if n == 10 {
			t.Fatalf("not read after %d rounds: %+v", n, r.Engine.Follower().Status())
		}
	}
	if served > 40 {
		t.Errorf("%d entries were read of 31", served)
	}
	wantEqual(r, h)
}
