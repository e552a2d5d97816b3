package registry_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// audited returns the reasons of the follower's rows in the audit chain of the store.
func audited(r *registrytest.Rig) (reasons []string) {
	r.T.Helper()
	var rows []store.AuditRow
	err := r.Store.View(r.Ctx(), func(rd store.Reader) (err error) {
		rows, err = store.Audit(rd, 0, 100)
		return err
	})
	if err != nil {
		r.T.Fatal(err)
	}
	for _, row := range rows {
		if row.Event.Event == "registry.follow" {
			reasons = append(reasons, row.Reason)
			if row.Reason == follow.Fork && !strings.HasPrefix(row.Detail["checkpoint"], registrytest.Origin) {
				r.T.Errorf("the row of a fork has no evidence: %v", row.Detail)
			}
		}
	}
	return reasons
}

// A hub whose log is another one from some version on is not believed, however long it is, and the
// follower serves what it had. It goes on when the log that it knows comes back.
func TestFollowerOfAForkedHub(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]int{"shorter": 1, "as long": 2, "longer": 4} {
		t.Run(name, func(t *testing.T) {
			h, s := newHub(t)
			h.add(s, 2)
			other := h.fork()
			h.add(s, 2)
			r := newFollower(t, h)
			f := newRounds(r)
			if got := f.try(t); got.State != follow.OK {
				t.Fatalf("%+v", got)
			}
			other.of.Advance(time.Second) // so that its versions differ
			other.add(s, more)
			setHub(r, other)
			for range 2 {
				if got := f.try(t); got.State != follow.Fork || got.Version != 5 {
					t.Fatalf("%+v", got)
				}
			}
			wantEqual(r, h)
			setHub(r, h)
			h.add(s, 1)
			if got := f.try(t); got.State != follow.OK {
				t.Errorf("%+v", got)
			}
			wantEqual(r, h)
			if got := fmt.Sprint(audited(r)); got != "[fork ok]" {
				t.Errorf("audited %s", got)
			}
		})
	}
}

// A hub that serves less than was seen is not believed. A follower that was itself restored knows
// by its mark what it has seen.
func TestFollowerOfARolledBackHub(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 2)
	old := h.fork()
	r := newFollower(t, h)
	f := newRounds(r)
	f.try(t)
	early := r.Path + ".early"
	copyFile(t, r.Path, early)
	h.add(s, 3)
	if got := f.try(t); got.State != follow.OK || got.Version != 6 {
		t.Fatalf("%+v", got)
	}
	setHub(r, old)
	if got := f.try(t); got.State != follow.Rollback || got.Version != 6 {
		t.Fatalf("%+v", got)
	}
	wantEqual(r, h)
	r.Stop()
	copyFile(t, early, r.Path)
	setHub(r, old)
	r.Open()
	f = newRounds(r)
	if got := f.try(t); got.State != follow.Rollback || got.Version != 3 {
		t.Fatalf("restored, at the same version: %+v", got)
	}
	old.of.Advance(time.Second)
	old.add(s, 1)
	if got := f.try(t); got.State != follow.Rollback || got.Version != 3 {
		t.Fatalf("restored, at a version that was not seen: %+v", got)
	}
	old.add(s, 4)
	if got := f.try(t); got.State != follow.Fork || got.Version != 3 {
		t.Fatalf("restored, and the hub is another log: %+v", got)
	}
	setHub(r, h)
	if got := f.try(t); got.State != follow.OK {
		t.Fatalf("%+v", got)
	}
	wantEqual(r, h)
}

// Bytes that are not those of the log are not written, whatever is wrong with them.
func TestFollowerOfALyingHub(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 3)
	cut := func(raw []byte) []byte { return raw[:len(raw)/2] }
	flip := func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw }
	empty := func([]byte) []byte { return nil }
	for _, call := range []string{"checkpoint", "entry", "payload"} {
		for name, wrong := range map[string]func([]byte) []byte{"cut": cut, "flipped": flip, "empty": empty} {
			r := newFollower(t, h)
			f := newRounds(r)
			h.set(func(h *fakeHub) {
				h.lie = func(what string, v uint64, raw []byte) []byte {
					if what == call && (v == 0 || v == 3) {
						return wrong(raw)
					}
					return raw
				}
			})
			if got := f.try(t); got.State != follow.Unsound || got.Version != 0 {
				t.Errorf("%s %s: %+v", call, name, got)
			}
			wantFollowed(r)
			h.set(func(h *fakeHub) { h.lie = nil })
			if got := f.try(t); got.State != follow.OK {
				t.Errorf("%s %s, then sound: %+v", call, name, got)
			}
			wantEqual(r, h)
			r.Stop()
		}
	}
}

// After a rotation the old log key vouches only for sizes before it.
func TestFollowerKnowsTheKeyInForce(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 2)
	r := newFollower(t, h)
	f := newRounds(r)
	f.try(t)
	old, err := h.of.Engine.Seal().Key(h.of.Engine.Head())
	if err != nil {
		t.Fatal(err)
	}
	h.rotateLogKey(s)
	h.add(s, 1)
	tree := h.of.Engine.Pub().Latest.Load().Tree
	forged, err := old.Sign(tree, h.of.Now())
	if err != nil {
		t.Fatal(err)
	}
	h.set(func(h *fakeHub) {
		h.lie = func(what string, _ uint64, raw []byte) []byte {
			if what == "checkpoint" {
				return forged.Note
			}
			return raw
		}
	})
	if got := f.try(t); got.State != follow.Unsound || got.Version != 3 || !strings.Contains(got.Detail, "epoch 2") {
		t.Errorf("%+v", got)
	}
	h.set(func(h *fakeHub) { h.lie = nil })
	if got := f.try(t); got.State != follow.OK {
		t.Errorf("%+v", got)
	}
	wantEqual(r, h)
}

// A follower that is killed at any moment goes on from its file and its mark. Versions that were not
// kept in memory are read twice.
func TestKilledFollowerGoesOn(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 3)
	h.rotateLogKey(s)
	h.add(s, 8)
	if heads := h.killed(); len(heads) < 3 {
		t.Errorf("killed at versions %v only", heads)
	}
}

// killed makes a copy of the file and the mark of a follower after each request to the hub, and so
// also after each step. It demands that each copy becomes equal to the hub, and returns the versions
// of the copies.
func (h *fakeHub) killed() map[uint64]bool {
	t := h.of.T
	t.Helper()
	r := newFollower(t, h)
	f := newRounds(r)
	*r.Engine.FollowRule() = follow.Rule{Slice: 4, Keep: 1 << 10}
	type copied struct {
		file, mark []byte
		head       uint64
	}
	var copies []copied
	h.set(func(h *fakeHub) {
		h.fail = func(string) error {
			c := copied{head: r.Engine.Head().Head.Version}
			var err error
			if c.file, err = os.ReadFile(r.Path); err != nil {
				t.Fatal(err)
			}
			if c.mark, err = os.ReadFile(r.MarkFile()); err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			if n := len(copies); n == 0 || !bytes.Equal(copies[n-1].file, c.file) ||
				!bytes.Equal(copies[n-1].mark, c.mark) {
				copies = append(copies, c)
			}
			return nil
		}
	})
	if got := f.try(t); got.State != follow.OK {
		t.Fatalf("%+v", got)
	}
	h.set(func(h *fakeHub) { h.fail = nil })
	wantEqual(r, h)
	r.Stop()
	heads := map[uint64]bool{}
	for _, c := range copies {
		heads[c.head] = true
		killed := &registrytest.Rig{T: t, Path: r.Path, Config: r.Config, KeyFile: r.KeyFile, Hub: h}
		if err := os.WriteFile(r.Path, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		_ = os.Remove(r.MarkFile())
		if c.mark != nil {
			if err := os.WriteFile(r.MarkFile(), c.mark, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		killed.Open()
		if v := killed.Engine.Head().Head.Version; v < c.head {
			t.Errorf("HEAD was %d, and is %d after the kill", c.head, v)
		}
		wantFollowed(killed)
		if got := newRounds(killed).try(t); got.State != follow.OK {
			t.Errorf("killed at version %d: %+v", c.head, got)
		}
		wantEqual(killed, h)
		killed.Stop()
	}
	return heads
}

// A step is refused if HEAD is not the one that it was made for.
func TestFollowStepIsGuarded(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 1)
	r := newFollower(t, h)
	f := newRounds(r)
	f.try(t)
	last := r.Engine.Pub().Latest.Load()
	for name, step := range map[string]tables.FollowStep{
		"head": {Note: last.Note, Covers: 2},
		"size": {Head: r.Engine.Head().Ref(), Note: last.Note, Covers: 3},
	} {
		if _, err := store.Commit(r.Ctx(), r.Store, store.Work, step); !guarded(err) ||
			!strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantEqual(r, h)
}

// The log of another node is verified without a file: a sound one whole, a bad one with its fault.
func TestVerifyPublic(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 2)
	early := h.of.Engine.Pub().Latest.Load().Note
	h.rotateLogKey(s)
	h.add(s, 40)
	genesis := h.of.Engine.Head().GenesisB3
	verify := func(o rverify.Options) follow.PublicReport {
		t.Helper()
		rep, err := follow.VerifyPublic(t.Context(), h, o, h.of.Now())
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	rep := verify(rverify.Options{Genesis: genesis, Seen: early})
	if !rep.OK || rep.Versions != 44 || rep.Approvals != 44 || rep.Head != h.of.Engine.Head().Head ||
		rep.Profile != rverify.ProfileFollowed || rep.Checkpoint.Size != 44 || rep.Signers.Epoch != 2 {
		t.Errorf("%+v", rep)
	}
	if rep := verify(rverify.Options{Genesis: b3.Sum(nil)}); rep.OK || rep.Problem.Kind != rverify.KindChain {
		t.Errorf("another genesis: %+v", rep)
	}
	other := h.fork()
	other.of.Advance(time.Second)
	other.add(s, 1)
	seen := other.of.Engine.Pub().Latest.Load().Note
	h.add(s, 1)
	if rep := verify(rverify.Options{Genesis: genesis, Seen: seen}); rep.OK ||
		rep.Problem.Kind != rverify.KindCheckpoint {
		t.Errorf("another log was seen: %+v", rep)
	}
	for call, kind := range map[string]rverify.Kind{
		"checkpoint": rverify.KindCheckpoint, "entry": rverify.KindChain, "payload": rverify.KindChain,
	} {
		h.set(func(h *fakeHub) {
			h.lie = func(what string, v uint64, raw []byte) []byte {
				if what == call && (v == 0 || v == 40) {
					return raw[:len(raw)-2]
				}
				return raw
			}
		})
		if rep := verify(rverify.Options{Genesis: genesis}); rep.OK || rep.Problem == nil || rep.Problem.Kind != kind {
			t.Errorf("%s cut: %+v", call, rep)
		}
	}
}

// guarded reports whether err is a *tables.GuardError.
func guarded(err error) bool {
	_, is := errors.AsType[*tables.GuardError](err)
	return is
}
