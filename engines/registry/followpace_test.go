package registry

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
		h.of.cover()
		r := newFollower(t, h)
		chatty := &chattyHub{fakeHub: h}
		r.ask(chatty)
		r.start()
		r.waitFor("the genesis", func() bool { return r.e.Head().Head.Version == 1 })
		before := chatty.asked.Load()
		time.Sleep(time.Second)
		if n := chatty.asked.Load() - before; n > 10 {
			t.Errorf("the hub was asked %d times within a second", n)
		}
		r.stop()
		h.of.stop()
	})
}

// A follower that makes no rounds keeps what it knows of the hub: a fork is not over because the
// own log was found damaged.
func TestFollowerThatRestsKeepsTheFault(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 1)
	r := newFollower(t, h)
	f := r.rounds()
	f.try(t)
	r.e.follow.Restore(&tables.FollowFault{State: follow.Fork})
	why := "version 1: flipped"
	r.e.chainError.Store(&why)
	if got := f.try(t); got.State != follow.Fork {
		t.Errorf("%+v", got)
	}
	if got := r.audited(); len(got) > 0 {
		t.Errorf("audited %v", got)
	}
	r.e.follow.Restore(nil)
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
	mark := r.markFile()
	_ = os.Remove(mark)
	if err := os.MkdirAll(filepath.Join(mark, "in the way"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(r.ctx(), patience)
	defer stop()
	if err := r.e.follow.Task().Run(ctx); err == nil || ctx.Err() != nil {
		t.Fatalf("the task ended with %v", err)
	}
	if got := r.e.follow.Status(); got.State != follow.Waiting ||
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
	other.of.advance(time.Second)
	other.add(s, 3)
	r := newFollower(t, h)
	f := r.rounds()
	f.try(t)
	r.ask(other)
	if got := f.try(t); got.State != follow.Fork {
		t.Fatalf("%+v", got)
	}
	silent := func(string) error { return errors.New("503") }
	h.set(func(h *fakeHub) { h.fail = silent })
	r.ask(h)
	r.stop()
	r.open()
	f = r.rounds()
	for range 2 {
		if got := f.try(t); got.State != follow.Fork || got.Detail == "" {
			t.Errorf("after a restart: %+v", got)
		}
		if _, err := r.headIn(); err == nil {
			t.Error("after a restart HEAD decides")
		}
	}
	r.wantFollowed()
	quoted := &tables.FollowFault{State: follow.Unsound, Detail: strings.Repeat("\xff", 4<<10)}
	if _, err := store.Commit(r.ctx(), r.store, store.Work,
		tables.NoteFollow{
			Note:  store.Event{Event: "registry.follow", Decision: "deny", Reason: follow.Unsound},
			Fault: quoted,
		}); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.open()
	if got := r.e.follow.Status(); got.State != follow.Unsound || len(got.Detail) > 2*tables.MaxFault {
		t.Errorf("of bytes of the hub: %+v", got)
	}
	f = r.rounds()
	h.set(func(h *fakeHub) { h.fail = nil })
	if got := f.try(t); got.State != follow.OK {
		t.Errorf("%+v", got)
	}
	r.stop()
	r.open()
	if err := r.e.follow.OK(); err != nil {
		t.Errorf("after the fault is over: %v", err)
	}
	r.wantEqual(h)
	if got := fmt.Sprint(r.audited()); got != "[fork unsound ok]" {
		t.Errorf("audited %s", got)
	}
}

// A long log is read in the end from a hub that is often busy, and each version once.
func TestFollowerOfABusyHub(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 30)
	r := newFollower(t, h)
	f := r.rounds()
	r.e.followRule.Slice = 2
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
			t.Fatalf("not read after %d rounds: %+v", n, r.e.follow.Status())
		}
	}
	if served > 40 {
		t.Errorf("%d entries were read of 31", served)
	}
	r.wantEqual(h)
}
