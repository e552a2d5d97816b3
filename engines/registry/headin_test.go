package registry_test

import (
	"errors"
	"testing"
	"time"

	"ronbox/engines/registry"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// ask is a command of another service.
type ask struct{ do func(store.Reader) error }

func (ask) Kind() string { return "rewarder.ask/1" }

func (c ask) Apply(r store.Reader, _ store.Stamp, _ *store.Writes) (struct{}, error) {
	return struct{}{}, c.do(r)
}

// headIn reads HEAD in a command of another service.
func headIn(r *registrytest.Rig) (v *tables.HeadView, err error) {
	_, err = store.Commit(r.Ctx(), r.Store, store.Work, ask{func(tx store.Reader) (err error) {
		v, err = r.Engine.HeadIn(tx)
		return err
	}})
	return v, err
}

// Another service reads HEAD in its own transaction. It gets none if there is none, and none of a
// hub that is silent for too long or not to be believed.
func TestHeadIn(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 2)
	if v, err := headIn(h.of); err != nil || v != h.of.Engine.Head() {
		t.Fatalf("%v, %v", v, err)
	}
	r := newFollower(t, h)
	if _, err := headIn(r); !errors.Is(err, registry.ErrNoHead) {
		t.Errorf("without HEAD: %v", err)
	}
	f := newRounds(r)
	if got := f.try(t); got.State != follow.OK {
		t.Fatalf("%+v", got)
	}
	if v, err := headIn(r); err != nil || v.Head.Version != 3 {
		t.Errorf("%v, %v", v, err)
	}
	state := func() string {
		_, err := headIn(r)
		fault, _ := errors.AsType[*tables.FollowFault](err)
		if fault == nil {
			t.Fatalf("no fault: %v", err)
		}
		return fault.State
	}
	r.Advance(25 * time.Hour)
	if got := state(); got != follow.Stale {
		t.Errorf("after a day without the hub: %s", got)
	}
	r.Engine.Follower().Restore(&tables.FollowFault{State: follow.Fork})
	if got := state(); got != follow.Fork {
		t.Errorf("of a forked hub: %s", got)
	}
}

// HEAD of a file that is not the newest copy of its log, or that does not verify, decides nothing.
func TestHeadInOfABadFile(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s, "a")
	r.Engine.Seal().Trip(&seal.Rollback{Reason: seal.RollbackOlder})
	if v, err := headIn(r); err == nil || v != nil {
		t.Errorf("of an old copy: %v, %v", v, err)
	}
	if err := r.Engine.Adopt(r.Ctx(), alice, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := headIn(r); err != nil {
		t.Error(err)
	}
	why := "version 1: flipped"
	r.Engine.ChainError().Store(&why)
	if v, err := headIn(r); err == nil || v != nil {
		t.Errorf("of a damaged log: %v, %v", v, err)
	}
}

// next makes the row of HEAD one that is not published yet.
type next struct{}

func (next) Kind() string { return "registry.next/1" }

func (next) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	head, _ := tables.MetaHead.Get(r, tables.KeyHead)
	head.Version++
	tables.MetaHead.Put(w, tables.KeyHead, head)
	return struct{}{}, nil
}

// Items that are older than HEAD of the transaction are not returned.
func TestHeadInOfAVersionInCommit(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s, "a")
	if _, err := store.Commit(r.Ctx(), r.Store, store.Work, next{}); err != nil {
		t.Fatal(err)
	}
	if _, err := headIn(r); !errors.Is(err, registry.ErrMoving) {
		t.Errorf("%v", err)
	}
}
