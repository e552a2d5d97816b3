package registry

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// exported exports the log of a stopped rig and returns the directory.
func (r *rig) exported() string {
	r.t.Helper()
	dir := filepath.Join(r.t.TempDir(), "log")
	src, err := store.OpenReader(r.path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	err = src.View(r.ctx(), func(rd store.Reader) error {
		_, err := export.Write(r.ctx(), dir, tables.NewSource(rd), func(uint64, uint64) {})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return dir
}

func verifyExport(t testing.TB, dir string) *rverify.Problem {
	t.Helper()
	l, err := export.Open(dir)
	if err != nil {
		return &rverify.Problem{Detail: err.Error()}
	}
	rep, err := rverify.VerifyWhole(t.Context(), l, l, rverify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return rep.Problem
}

// An export holds the log up to its checkpoint, verifies, and any flipped bit of any of its files
// is found.
func TestExport(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s, "a", "b")
	n := 270 // a full tile and a part of one
	if testing.Short() {
		n = 20
	}
	r.commitDeltas(s, n)
	r.cover()
	r.stop()
	dir := r.exported()
	if p := verifyExport(t, dir); p != nil {
		t.Fatal(p)
	}
	l, err := export.Open(dir)
	if err != nil || l.Size != uint64(n+1) || l.Index.Head != r.e.Head().Head {
		t.Errorf("%+v, %v", l.Index, err)
	}
	var files []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) < 5 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	rng, rounds := rand.New(rand.NewPCG(hosttest.Seed(t, "RONBOX_REGISTRY_FLIPS"), 1)), 20
	if testing.Short() {
		rounds = 6
	}
	for range rounds {
		path := files[rng.IntN(len(files))]
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bit := rng.IntN(8 * len(raw))
		flipped := append([]byte(nil), raw...)
		flipped[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, flipped, 0o600); err != nil {
			t.Fatal(err)
		}
		// its white space is no part of the log
		if p := verifyExport(t, dir); p == nil && filepath.Base(path) != "log.json" {
			t.Errorf("%s, bit %d: not noticed", path, bit)
		}
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := export.Write(t.Context(), dir, l, func(uint64, uint64) {}); err == nil {
		t.Error("an export over another one")
	}
}

// A log without a checkpoint is not exported, and a restored copy heals from an export as it does
// from a file.
func TestExportHeals(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	r.commitDeltas(s, 3)
	old := r.snapshot()
	r.commitNext(s, 5)
	r.cover()
	r.stop()
	dir := r.exported()
	copyFile(t, r.markFile(), old.markFile())
	c := old.restored(true)
	c.accept()
	c.wantGuard(seal.RollbackOlder)
	if done, err := c.e.CatchUpFrom(c.ctx(), alice, dir, ""); err != nil || done.To != 5 {
		t.Fatalf("%+v, %v", done, err)
	}
	c.commitNext(s, 6)
	other := newRig(t).start()
	other.genesis(newSigners(1, 1))
	err := other.store.View(other.ctx(), func(rd store.Reader) error {
		_, err := export.Write(other.ctx(), filepath.Join(t.TempDir(), "x"), tables.NewSource(rd), func(uint64, uint64) {})
		return err
	})
	if !errors.Is(err, export.ErrNoCheckpoint) {
		t.Errorf("without a checkpoint: %v", err)
	}
}

// The log must begin with a checkpoint that was seen; an older or another log fails.
func TestCheckSeen(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	r.commitDeltas(s, 2)
	early := r.cover()
	old := r.snapshot()
	r.commitNext(s, 4)
	late := r.cover()
	seen := func(path string, note []byte) *rverify.Problem {
		src, err := store.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = src.Close() }()
		var rep rverify.Report
		err = src.View(r.ctx(), func(rd store.Reader) (err error) {
			rep, err = tables.Verify(r.ctx(), rd, rverify.Options{Seen: note})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return rep.Problem
	}
	r.stop()
	if p := seen(r.path, early.Note); p != nil {
		t.Errorf("the log has grown: %v", p)
	}
	if p := seen(old.path, late.Note); p == nil {
		t.Error("an older log passes")
	}
	if p := seen(r.path, []byte("junk")); p == nil {
		t.Error("junk passes")
	}
}
