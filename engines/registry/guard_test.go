package registry

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/highwater"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// restored returns a rig on a restored copy of the file of r, which must have stopped. It has the
// key of r, and its mark if withMark is true.
func (r *rig) restored(withMark bool) *rig {
	r.t.Helper()
	dir := r.t.TempDir()
	c := &rig{t: r.t, path: filepath.Join(dir, "ronbox.db"), cfg: r.cfg, keyFile: filepath.Join(dir, "log.key")}
	if _, err := store.Restore(r.ctx(), r.path, c.path,
		store.RestoreOptions{Now: time.Now(), By: store.Event{Event: "db.restore", Decision: "accept", Reason: "test"}},
		nil); err != nil {
		r.t.Fatal(err)
	}
	copyFile(r.t, r.keyFile, c.keyFile)
	if withMark {
		copyFile(r.t, r.markFile(), c.markFile())
	}
	c.open()
	r.t.Cleanup(c.stop)
	return c.start()
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// snapshot copies the file of r, which goes on.
func (r *rig) snapshot() *rig {
	r.t.Helper()
	r.stop()
	old := &rig{t: r.t, path: filepath.Join(r.t.TempDir(), "old.db"), cfg: r.cfg, keyFile: r.keyFile}
	copyFile(r.t, r.path, old.path)
	r.open()
	r.start()
	return old
}

func (r *rig) wantGuard(reason string) {
	r.t.Helper()
	why := r.e.seal.Tripped()
	if why == nil || why.Reason != reason {
		r.t.Fatalf("guard: %+v, want %s", why, reason)
	}
	var down *document.NotReadyError
	_, err := r.e.Propose(r.ctx(), alice, delta(r.e.Head().Head.Version+1, "on-top"), "", "")
	if !errors.As(err, &down) || down.Cause != document.CauseRollback {
		r.t.Errorf("propose: %v", err)
	}
	if n := r.metric("registry_fork_guard"); n != 1 {
		r.t.Errorf("registry_fork_guard = %v", n)
	}
}

func (r *rig) accept() {
	r.t.Helper()
	if err := r.store.AcceptRestore(r.ctx(),
		store.Event{Event: "db.accept_restore", Decision: "accept", Reason: "test"}); err != nil {
		r.t.Fatal(err)
	}
}

// A restored copy signs and commits nothing until it is adopted: accepted or not, with or without
// the mark, also over a restart.
func TestRestoredCopyDoesNotFork(t *testing.T) {
	t.Parallel()
	for _, withMark := range []bool{false, true} {
		r, s := newLogRig(t)
		r.genesis(s)
		r.commitDeltas(s, 4)
		r.cover()
		old := r.snapshot()
		r.commitNext(s, 6)
		newest := r.cover()
		copyFile(t, r.markFile(), old.markFile())
		c := old.restored(withMark)
		want := seal.RollbackRestored
		if withMark {
			want = seal.RollbackOlder
		}
		if _, err := c.e.Propose(c.ctx(), alice, delta(6, "early"), "", ""); !errors.Is(err, store.ErrRestored) {
			t.Errorf("before it is accepted: %v", err)
		}
		c.accept()
		c.wantGuard(want)
		c.stop()
		c.open()
		c.start()
		c.wantGuard(want)
		c.advance(time.Hour) // the checkpointor would sign again
		if got := c.e.pub.Latest.Load(); got != nil && got.Size > 5 {
			t.Errorf("a checkpoint of %d", got.Size)
		}
		if _, err := c.e.CheckpointNow(c.ctx()); err == nil {
			t.Error("a checkpoint on demand")
		}
		if _, err := c.e.Version(c.ctx(), 5, true); err != nil {
			t.Errorf("a read: %v", err)
		}
		if err := c.e.Adopt(c.ctx(), alice, "corr-adopt"); err != nil {
			t.Fatal(err)
		}
		if rec := c.lastAudit(); rec.Event != tables.EventAdopted || rec.CorrID != "corr-adopt" {
			t.Errorf("audited as %+v", rec)
		}
		c.commitNext(s, 6)
		c.cover()
		c.stop()
		c.open()
		if why := c.e.seal.Tripped(); why != nil {
			t.Errorf("after a start: %+v", why)
		}
		if err := c.e.Adopt(c.ctx(), alice, ""); !errors.Is(err, document.ErrConflict) {
			t.Errorf("nothing to adopt: %v", err)
		}
		if root, err := c.e.Root(c.ctx(), 6); err != nil || root == newest.Root {
			t.Errorf("the adopted log has the other one's root: %v", err)
		}
	}
}

// followedSource is a copy that says it is one of a follower, so that its audit records are not
// compared with the versions.
type followedSource struct{ rverify.LogReader }

func (followedSource) Followed() bool { return true }

// A restored copy that gets the missing versions is the log again: same entries, same audit chain,
// same root.
func TestCatchUp(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s, "a")
	r.commitDeltas(s, 3)
	open := r.propose(5, "pending") // at the time of the snapshot
	old := r.snapshot()
	r.approve(open, s.keys...)
	r.commit(open)
	if _, err := r.e.Commit(r.ctx(), alice, open.ID, ""); err != nil {
		t.Fatal(err)
	}
	r.commitNext(s, 6)
	if err := r.e.Withdraw(r.ctx(), alice, r.propose(7, "gone").ID, ""); err != nil {
		t.Fatal(err)
	}
	newest := r.cover()
	r.stop()
	copyFile(t, r.markFile(), old.markFile())
	c := old.restored(true)
	c.accept()
	c.wantGuard(seal.RollbackOlder)
	src, err := store.OpenReader(r.path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	err = src.View(c.ctx(), func(rd store.Reader) error {
		_, err := c.e.CatchUp(c.ctx(), alice, followedSource{tables.NewSource(rd)}, "")
		return err
	})
	if !errors.Is(err, document.ErrSource) || c.e.Head().Head.Version != 4 {
		t.Fatalf("from audit records that nothing vouches for: %v", err)
	}
	var done document.CaughtUp
	err = src.View(c.ctx(), func(rd store.Reader) error {
		done, err = c.e.CatchUp(c.ctx(), alice, tables.NewSource(rd), "corr-catchup")
		return err
	})
	if err != nil || done.From != 4 || done.To != 6 {
		t.Fatalf("%+v, %v", done, err)
	}
	if root, err := c.e.Root(c.ctx(), 6); err != nil || root != newest.Root {
		t.Errorf("root %s, %v, want %s", root, err, newest.Root)
	}
	if got, err := c.e.Proposal(c.ctx(), open.ID); err != nil || got.State != document.StateCommitted || got.Version != 5 {
		t.Errorf("the proposal that became a version: %+v, %v", got, err)
	}
	c.commitNext(s, 7)
	c.cover()
	if rep := c.verifyFile(); !rep.OK {
		t.Errorf("the log: %v", rep.Problem)
	}
	c.stop()
	c.open()
	if why := c.e.seal.Tripped(); why != nil || c.e.Head().Head.Version != 7 {
		t.Errorf("after a start: %+v, HEAD %d", why, c.e.Head().Head.Version)
	}
}

// A copy of another log, an older one or a damaged one is refused.
func TestCatchUpRefusals(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	r.commitDeltas(s, 3)
	short := r.snapshot()
	r.commitNext(s, 5)
	r.cover()
	other, os := newLogRig(t)
	other.genesis(os, "else")
	other.commitDeltas(os, 7)
	other.stop()
	use := func(path string, c *rig) error {
		t.Helper()
		src, err := store.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = src.Close() }()
		return src.View(c.ctx(), func(rd store.Reader) error {
			_, err := c.e.CatchUp(c.ctx(), alice, tables.NewSource(rd), "")
			return err
		})
	}
	if err := r.e.Adopt(r.ctx(), alice, ""); !errors.Is(err, document.ErrConflict) {
		t.Errorf("nothing is missing: %v", err)
	}
	r.stop()
	c := r.restored(true)
	c.accept()
	head := c.e.Head().Head
	for _, path := range []string{short.path, other.path} {
		if err := use(path, c); !errors.Is(err, document.ErrSource) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if c.e.Head().Head != head || c.e.seal.Tripped() == nil {
		t.Error("a refused source has changed the log")
	}
}

// A mark with another root for a size that was reached means that there are two logs.
func TestForkedMark(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	r.commitDeltas(s, 2)
	r.cover()
	r.stop()
	key, err := checkpoint.ReadKey(r.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	mark := highwater.Mark{Path: r.markFile()}
	for _, tt := range []struct {
		tree   checkpoint.Tree
		reason string
	}{
		{checkpoint.Tree{Origin: testOrigin, Size: 2, Root: logtree.Leaf([]byte("x"))}, seal.RollbackFork},
		{checkpoint.Tree{Origin: testOrigin, Size: 9, Root: logtree.Leaf([]byte("x"))}, seal.RollbackOlder},
	} {
		signed, err := key.Sign(tt.tree, r.now())
		if err != nil {
			t.Fatal(err)
		}
		if err := mark.Write(signed); err != nil {
			t.Fatal(err)
		}
		r.open()
		r.start()
		r.wantGuard(tt.reason)
		r.stop()
	}
	for text, reason := range map[string]string{"junk": seal.RollbackBadMark, "": seal.RollbackNoMark} {
		if err := mark.Remove(); err != nil {
			t.Fatal(err)
		}
		if text != "" {
			if err := os.WriteFile(mark.Path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.open()
		r.start()
		r.wantGuard(reason)
		r.stop()
	}
}

// In a replicated file the latest checkpoint becomes the mark, if it extends it: another node has
// signed it. A mark that it does not extend stays and trips the guard.
func TestReplicatedMark(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.replicated = true
	r.genesis(s)
	r.cover()
	mark := highwater.Mark{Path: r.markFile()}
	old, err := mark.Read()
	if err != nil {
		t.Fatal(err)
	}
	r.commitDeltas(s, 2)
	r.cover()
	latest, err := mark.Read()
	if err != nil {
		t.Fatal(err)
	}
	r.stop()
	for name, has := range map[string][]byte{"none": nil, "an older one": old, "the latest": latest} {
		if err := mark.Remove(); err != nil {
			t.Fatal(err)
		}
		if has != nil {
			if err := mark.Write(checkpoint.Signed{Note: has}); err != nil {
				t.Fatal(err)
			}
		}
		r.open()
		if why := r.e.seal.Tripped(); why != nil {
			t.Errorf("%s: %+v", name, why)
		}
		if raw, err := mark.Read(); err != nil || string(raw) != string(latest) {
			t.Errorf("%s: the mark is %q %v", name, raw, err)
		}
		r.start()
		r.stop()
	}
	key, err := checkpoint.ReadKey(r.keyFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, tree := range []checkpoint.Tree{
		{Origin: testOrigin, Size: 2, Root: logtree.Leaf([]byte("x"))},
		{Origin: testOrigin, Size: 9, Root: logtree.Leaf([]byte("x"))},
	} {
		signed, err := key.Sign(tree, r.now())
		if err != nil {
			t.Fatal(err)
		}
		if err := mark.Write(signed); err != nil {
			t.Fatal(err)
		}
		r.open()
		if r.e.seal.Tripped() == nil {
			t.Errorf("a mark of %d versions that is not of this log", tree.Size)
		}
		r.start()
		r.stop()
	}
}
