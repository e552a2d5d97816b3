package registry_test

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// exported exports the log of a stopped rig and returns the directory.
func exported(r *registrytest.Rig) string {
	r.T.Helper()
	dir := filepath.Join(r.T.TempDir(), "log")
	src, err := store.OpenReader(r.Path)
	if err != nil {
		r.T.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	err = src.View(r.Ctx(), func(rd store.Reader) error {
		_, err := export.Write(r.Ctx(), dir, tables.NewSource(rd), func(uint64, uint64) {})
		return err
	})
	if err != nil {
		r.T.Fatal(err)
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
	r.Genesis(s, "a", "b")
	n := 270 // a full tile and a part of one
	if testing.Short() {
		n = 20
	}
	commitDeltas(r, s, n)
	cover(r)
	r.Stop()
	dir := exported(r)
	if p := verifyExport(t, dir); p != nil {
		t.Fatal(p)
	}
	l, err := export.Open(dir)
	if err != nil || l.Size != uint64(n+1) || l.Index.Head != r.Engine.Head().Head {
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
	r.Genesis(s)
	commitDeltas(r, s, 3)
	old := snapshot(r)
	commitNext(r, s, 5)
	cover(r)
	r.Stop()
	dir := exported(r)
	copyFile(t, r.MarkFile(), old.MarkFile())
	c := restored(old, true)
	accept(c)
	wantGuard(c, seal.RollbackOlder)
	if done, err := c.Engine.CatchUpFrom(c.Ctx(), alice, dir, ""); err != nil || done.To != 5 {
		t.Fatalf("%+v, %v", done, err)
	}
	commitNext(c, s, 6)
	other := registrytest.New(t).Start()
	other.Genesis(newSigners(1, 1))
	err := other.Store.View(other.Ctx(), func(rd store.Reader) error {
		_, err := export.Write(other.Ctx(), filepath.Join(t.TempDir(), "x"), tables.NewSource(rd), func(uint64, uint64) {})
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
	r.Genesis(s)
	commitDeltas(r, s, 2)
	early := cover(r)
	old := snapshot(r)
	commitNext(r, s, 4)
	late := cover(r)
	seen := func(path string, note []byte) *rverify.Problem {
		src, err := store.OpenReader(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = src.Close() }()
		var rep rverify.Report
		err = src.View(r.Ctx(), func(rd store.Reader) (err error) {
			rep, err = tables.Verify(r.Ctx(), rd, rverify.Options{Seen: note})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return rep.Problem
	}
	r.Stop()
	if p := seen(r.Path, early.Note); p != nil {
		t.Errorf("the log has grown: %v", p)
	}
	if p := seen(old.Path, late.Note); p == nil {
		t.Error("an older log passes")
	}
	if p := seen(r.Path, []byte("junk")); p == nil {
		t.Error("junk passes")
	}
}
