package registry

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
		rest(ctx, 100*time.Microsecond, nil)
	}
	return context.Cause(ctx)
}

// A hub that tells of versions without end causes few rounds, and so few writes of what it has
// signed anew.
func TestFollowerOfAChattyHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newHub(t)
		h.of.cover()
		r := newFollower(t, h)
		chatty := &chattyHub{fakeHub: h}
		r.e.follow.hub = chatty
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
	h, s := newHub(t)
	h.add(s, 1)
	r := newFollower(t, h)
	f := r.rounds()
	f.try(t)
	r.e.follow.fault.Store(&FollowFault{State: FollowFork})
	why := "version 1: flipped"
	r.e.chainError.Store(&why)
	if got := f.try(t); got.State != FollowFork {
		t.Errorf("%+v", got)
	}
	if got := r.audited(); len(got) > 0 {
		t.Errorf("audited %v", got)
	}
	r.e.follow.fault.Store(nil)
	if got := f.try(t); got.State != FollowWaiting || !strings.Contains(got.Detail, "chain") {
		t.Errorf("without a fault: %+v", got)
	}
}

// A follower whose own mark cannot be written says so.
func TestFollowerWithoutAMark(t *testing.T) {
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
	if err := r.e.runFollower(ctx); err == nil || ctx.Err() != nil {
		t.Fatalf("the task ended with %v", err)
	}
	if got := r.e.followStatus(); got.State != FollowWaiting || !strings.Contains(got.Detail, "this node cannot go on") {
		t.Errorf("%+v", got)
	}
}
