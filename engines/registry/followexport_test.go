package registry_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/tables"
)

// exported writes an export of the log of the hub, which goes on after it.
func (h *fakeHub) exported() string {
	h.of.T.Helper()
	h.of.Stop()
	dir := exported(h.of)
	h.set(func(h *fakeHub) { h.of.Open() })
	h.of.Start()
	return dir
}

// A follower that begins from an export has all versions of it, also those that the hub prunes
// later, and goes on from the hub.
func TestFollowerBeginsFromAnExport(t *testing.T) {
	t.Parallel()
	whole, s := newHub(t)
	whole.add(s, 3)
	pruned, p := newPrunedHub(t)
	for name, tt := range map[string]struct {
		h *fakeHub
		s registrytest.Signers
	}{"a whole one": {whole, s}, "a pruned one": {pruned, p}} {
		dir := tt.h.exported()
		at := tt.h.of.Engine.Head()
		r := newFollower(t, tt.h)
		if err := r.Engine.BeginFrom(r.Ctx(), dir); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if head := r.Engine.Head(); head.Head != at.Head || head.MinVersion != at.MinVersion {
			t.Errorf("%s: HEAD is %+v", name, head.Doc())
		}
		wantFollowed(r)
		tt.h.add(tt.s, 2)
		if got := newRounds(r).try(t); got.State != follow.OK {
			t.Errorf("%s: %+v", name, got)
		}
		wantEqual(r, tt.h)
		if err := r.Engine.BeginFrom(r.Ctx(), dir); !errors.Is(err, document.ErrConflict) {
			t.Errorf("%s, again: %v", name, err)
		}
	}
}

// An export of another log, or one that was changed, is not taken.
func TestFollowerOfABadExport(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 3)
	dir := h.exported()
	other, _ := newHub(t)
	cover(other.of)
	fault := func(name string, r *registrytest.Rig) {
		t.Helper()
		var bad *tables.FollowFault
		if err := r.Engine.BeginFrom(r.Ctx(), dir); !errors.As(err, &bad) || r.Engine.Head().Head.Version != 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	fault("another genesis", newFollower(t, other))
	path := filepath.Join(dir, "payload", "000")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	fault("a flipped bit", newFollower(t, h))
	if err := newFollower(t, h).Engine.BeginFrom(t.Context(), t.TempDir()); err == nil {
		t.Error("an empty directory was taken")
	}
}
