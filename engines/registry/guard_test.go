package registry_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/highwater"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// restored returns a rig on a restored copy of the file of r, which must have stopped. It has the
// key of r, and its mark if withMark is true.
func restored(r *registrytest.Rig, withMark bool) *registrytest.Rig {
	r.T.Helper()
	dir := r.T.TempDir()
	c := &registrytest.Rig{
		T: r.T, Path: filepath.Join(dir, "ronbox.db"), Config: r.Config, KeyFile: filepath.Join(dir, "log.key"),
	}
	if _, err := store.Restore(r.Ctx(), r.Path, c.Path,
		store.RestoreOptions{Now: time.Now(), By: store.Event{Event: "db.restore", Decision: "accept", Reason: "test"}},
		nil); err != nil {
		r.T.Fatal(err)
	}
	copyFile(r.T, r.KeyFile, c.KeyFile)
	if withMark {
		copyFile(r.T, r.MarkFile(), c.MarkFile())
	}
	c.Open()
	r.T.Cleanup(c.Stop)
	return c.Start()
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
func snapshot(r *registrytest.Rig) *registrytest.Rig {
	r.T.Helper()
	r.Stop()
	old := &registrytest.Rig{T: r.T, Path: filepath.Join(r.T.TempDir(), "old.db"), Config: r.Config, KeyFile: r.KeyFile}
	copyFile(r.T, r.Path, old.Path)
	r.Open()
	r.Start()
	return old
}

func wantGuard(r *registrytest.Rig, reason string) {
	r.T.Helper()
	why := r.Engine.Seal().Tripped()
	if why == nil || why.Reason != reason {
		r.T.Fatalf("guard: %+v, want %s", why, reason)
	}
	var down *document.NotReadyError
	_, err := r.Engine.Propose(r.Ctx(), alice, delta(r.Engine.Head().Head.Version+1, "on-top"), "", "")
	if !errors.As(err, &down) || down.Cause != document.CauseRollback {
		r.T.Errorf("propose: %v", err)
	}
	if n := r.Metric("registry_fork_guard"); n != 1 {
		r.T.Errorf("registry_fork_guard = %v", n)
	}
}

// A log that is adopted while it is signed is not taken for one whose mark is gone.
func TestAdoptWhileItIsSigned(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	for range 50 {
		signed := make(chan struct{})
		go func() {
			defer close(signed)
			_, _ = r.Engine.CheckpointNow(r.Ctx()) // refused if the guard is first
		}()
		runtime.Gosched()
		r.Engine.Seal().Trip(&seal.Rollback{Reason: seal.RollbackOlder})
		if err := r.Engine.Adopt(r.Ctx(), alice, ""); err != nil {
			t.Fatal(err)
		}
		<-signed
		if why := r.Engine.Seal().Tripped(); why != nil {
			t.Fatalf("after the adoption: %+v", why)
		}
	}
}

func accept(r *registrytest.Rig) {
	r.T.Helper()
	if err := r.Store.AcceptRestore(r.Ctx(),
		store.Event{Event: "db.accept_restore", Decision: "accept", Reason: "test"}); err != nil {
		r.T.Fatal(err)
	}
}

// A restored copy signs and commits nothing until it is adopted: accepted or not, with or without
// the mark, also over a restart.
func TestRestoredCopyDoesNotFork(t *testing.T) {
	t.Parallel()
	for _, withMark := range []bool{false, true} {
		r, s := newLogRig(t)
		r.Genesis(s)
		commitDeltas(r, s, 4)
		cover(r)
		old := snapshot(r)
		commitNext(r, s, 6)
		newest := cover(r)
		copyFile(t, r.MarkFile(), old.MarkFile())
		c := restored(old, withMark)
		want := seal.RollbackRestored
		if withMark {
			want = seal.RollbackOlder
		}
		if _, err := c.Engine.Propose(c.Ctx(), alice, delta(6, "early"), "", ""); !errors.Is(err, store.ErrRestored) {
			t.Errorf("before it is accepted: %v", err)
		}
		accept(c)
		wantGuard(c, want)
		c.Stop()
		c.Open()
		c.Start()
		wantGuard(c, want)
		c.Advance(time.Hour) // the checkpointor would sign again
		if got := c.Engine.Pub().Latest.Load(); got != nil && got.Size > 5 {
			t.Errorf("a checkpoint of %d", got.Size)
		}
		if _, err := c.Engine.CheckpointNow(c.Ctx()); err == nil {
			t.Error("a checkpoint on demand")
		}
		if _, err := c.Engine.Version(c.Ctx(), 5, true); err != nil {
			t.Errorf("a read: %v", err)
		}
		if err := c.Engine.Adopt(c.Ctx(), alice, "corr-adopt"); err != nil {
			t.Fatal(err)
		}
		if rec := c.LastAudit(); rec.Event != tables.EventAdopted || rec.CorrID != "corr-adopt" {
			t.Errorf("audited as %+v", rec)
		}
		commitNext(c, s, 6)
		cover(c)
		c.Stop()
		c.Open()
		if why := c.Engine.Seal().Tripped(); why != nil {
			t.Errorf("after a start: %+v", why)
		}
		if err := c.Engine.Adopt(c.Ctx(), alice, ""); !errors.Is(err, document.ErrConflict) {
			t.Errorf("nothing to adopt: %v", err)
		}
		if root, err := c.Engine.Root(c.Ctx(), 6); err != nil || root == newest.Root {
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
	r.Genesis(s, "a")
	commitDeltas(r, s, 3)
	open := r.Propose(5, "pending") // at the time of the snapshot
	old := snapshot(r)
	r.Approve(open, s.Keys...)
	r.Commit(open)
	if _, err := r.Engine.Commit(r.Ctx(), alice, open.ID, ""); err != nil {
		t.Fatal(err)
	}
	commitNext(r, s, 6)
	if err := r.Engine.Withdraw(r.Ctx(), alice, r.Propose(7, "gone").ID, ""); err != nil {
		t.Fatal(err)
	}
	newest := cover(r)
	r.Stop()
	copyFile(t, r.MarkFile(), old.MarkFile())
	c := restored(old, true)
	accept(c)
	wantGuard(c, seal.RollbackOlder)
	src, err := store.OpenReader(r.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	err = src.View(c.Ctx(), func(rd store.Reader) error {
		_, err := c.Engine.CatchUp(c.Ctx(), alice, followedSource{tables.NewSource(rd)}, "")
		return err
	})
	if !errors.Is(err, document.ErrSource) || c.Engine.Head().Head.Version != 4 {
		t.Fatalf("from audit records that nothing vouches for: %v", err)
	}
	var done document.CaughtUp
	err = src.View(c.Ctx(), func(rd store.Reader) error {
		done, err = c.Engine.CatchUp(c.Ctx(), alice, tables.NewSource(rd), "corr-catchup")
		return err
	})
	if err != nil || done.From != 4 || done.To != 6 {
		t.Fatalf("%+v, %v", done, err)
	}
	if root, err := c.Engine.Root(c.Ctx(), 6); err != nil || root != newest.Root {
		t.Errorf("root %s, %v, want %s", root, err, newest.Root)
	}
	if got, err := c.Engine.Proposal(c.Ctx(), open.ID); err != nil || got.State != document.StateCommitted ||
		got.Version != 5 {
		t.Errorf("the proposal that became a version: %+v, %v", got, err)
	}
	commitNext(c, s, 7)
	cover(c)
	if rep := c.VerifyFile(); !rep.OK {
		t.Errorf("the log: %v", rep.Problem)
	}
	c.Stop()
	c.Open()
	if why := c.Engine.Seal().Tripped(); why != nil || c.Engine.Head().Head.Version != 7 {
		t.Errorf("after a start: %+v, HEAD %d", why, c.Engine.Head().Head.Version)
	}
}

// A copy of another log, an older one or a damaged one is refused.
func TestCatchUpRefusals(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 3)
	short := snapshot(r)
	commitNext(r, s, 5)
	cover(r)
	other, os := newLogRig(t)
	other.Genesis(os, "else")
	commitDeltas(other, os, 7)
	other.Stop()
	use := func(path string, c *registrytest.Rig) error {
		t.Helper()
		src, err := store.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = src.Close() }()
		return src.View(c.Ctx(), func(rd store.Reader) error {
			_, err := c.Engine.CatchUp(c.Ctx(), alice, tables.NewSource(rd), "")
			return err
		})
	}
	if err := r.Engine.Adopt(r.Ctx(), alice, ""); !errors.Is(err, document.ErrConflict) {
		t.Errorf("nothing is missing: %v", err)
	}
	r.Stop()
	c := restored(r, true)
	accept(c)
	head := c.Engine.Head().Head
	for _, path := range []string{short.Path, other.Path} {
		if err := use(path, c); !errors.Is(err, document.ErrSource) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if c.Engine.Head().Head != head || c.Engine.Seal().Tripped() == nil {
		t.Error("a refused source has changed the log")
	}
}

// A mark with another root for a size that was reached means that there are two logs.
func TestForkedMark(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 2)
	cover(r)
	r.Stop()
	key, err := checkpoint.ReadKey(r.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	mark := highwater.Mark{Path: r.MarkFile()}
	for _, tt := range []struct {
		tree   checkpoint.Tree
		reason string
	}{
		{checkpoint.Tree{Origin: registrytest.Origin, Size: 2, Root: logtree.Leaf([]byte("x"))}, seal.RollbackFork},
		{checkpoint.Tree{Origin: registrytest.Origin, Size: 9, Root: logtree.Leaf([]byte("x"))}, seal.RollbackOlder},
	} {
		signed, err := key.Sign(tt.tree, r.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := mark.Write(signed); err != nil {
			t.Fatal(err)
		}
		r.Open()
		r.Start()
		wantGuard(r, tt.reason)
		r.Stop()
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
		r.Open()
		r.Start()
		wantGuard(r, reason)
		r.Stop()
	}
}

// In a replicated file the latest checkpoint becomes the mark, if it extends it: another node has
// signed it. A mark that it does not extend stays and trips the guard.
func TestReplicatedMark(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.Replicated = true
	r.Genesis(s)
	cover(r)
	mark := highwater.Mark{Path: r.MarkFile()}
	old, err := mark.Read()
	if err != nil {
		t.Fatal(err)
	}
	commitDeltas(r, s, 2)
	cover(r)
	latest, err := mark.Read()
	if err != nil {
		t.Fatal(err)
	}
	r.Stop()
	for name, has := range map[string][]byte{"none": nil, "an older one": old, "the latest": latest} {
		if err := mark.Remove(); err != nil {
			t.Fatal(err)
		}
		if has != nil {
			if err := mark.Write(checkpoint.Signed{Note: has}); err != nil {
				t.Fatal(err)
			}
		}
		r.Open()
		if why := r.Engine.Seal().Tripped(); why != nil {
			t.Errorf("%s: %+v", name, why)
		}
		if raw, err := mark.Read(); err != nil || string(raw) != string(latest) {
			t.Errorf("%s: the mark is %q %v", name, raw, err)
		}
		r.Start()
		r.Stop()
	}
	key, err := checkpoint.ReadKey(r.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, tree := range []checkpoint.Tree{
		{Origin: registrytest.Origin, Size: 2, Root: logtree.Leaf([]byte("x"))},
		{Origin: registrytest.Origin, Size: 9, Root: logtree.Leaf([]byte("x"))},
	} {
		signed, err := key.Sign(tree, r.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := mark.Write(signed); err != nil {
			t.Fatal(err)
		}
		r.Open()
		if r.Engine.Seal().Tripped() == nil {
			t.Errorf("a mark of %d versions that is not of this log", tree.Size)
		}
		r.Start()
		r.Stop()
	}
}
