package registry_test

import (
	"path/filepath"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// history commits eight states of a real service registry on a genesis with five keys, of which
// three must approve. It rotates after the third, revokes after the fifth, rotates again after the
// sixth with one key lost, and supersedes at the end. It returns the roots of the items by version.
func history(t *testing.T, r *registrytest.Rig, s registrytest.Signers) (roots map[uint64]string) {
	t.Helper()
	files, err := filepath.Glob("../../testdata/registry/*.ndjson")
	if err != nil || len(files) != 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	spare := s.Keys[5:]
	roots = map[uint64]string{1: r.Engine.Head().Items.Root()}
	pass := func(p document.Proposed, keys ...*record.Key) {
		r.Approve(p, keys...)
		done := r.Commit(p)
		roots[done.Version] = r.Engine.Head().Items.Root()
	}
	signers := func(edit func(n *record.SignerSet, version uint64), keys ...*record.Key) {
		head := r.Engine.Head()
		p, _ := change(r, head.Head.Version+1, head.Head.PayloadB3, head.Signers,
			func(n *record.SignerSet) { edit(n, head.Head.Version+1) })
		pass(p, keys...)
	}
	k := s.Keys[:5]
	for i, file := range files {
		p, err := r.Engine.Propose(r.Ctx(), alice, draftTo(r.Engine.Head(), readItems(t, file)), "", "")
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		pass(p, k[0], k[1], k[2])
		switch i {
		case 2: // the fifth signer goes, a sixth comes
			signers(func(n *record.SignerSet, v uint64) {
				retire(n, v, k[4].SignerID)
				n.Signers = append(n.Signers, spare[0].Signer(v))
			}, k[0], k[1], k[4], spare[0])
			k = append(k[:4:4], spare[0])
		case 4: // the first key was stolen
			signers(func(n *record.SignerSet, _ uint64) { revoke(n, k[0].SignerID) }, k[1], k[2], k[3])
			k = k[1:]
		case 5: // the last key is lost: those that are left put two others in its place
			signers(func(n *record.SignerSet, v uint64) {
				revoke(n, k[3].SignerID)
				n.Signers = append(n.Signers, spare[1].Signer(v), spare[2].Signer(v))
			}, k[0], k[1], k[2], spare[1], spare[2])
			k = append(k[:3:3], spare[1:]...)
		}
	}
	head := r.Engine.Head()
	put, remove := record.Diff(head.Items, readItems(t, files[6]))
	p, err := r.Engine.Propose(r.Ctx(), alice, record.Draft{
		Version: head.Head.Version + 1,
		Put:     put,
		Remove:  remove,
		Supersede: &record.Supersede{
			Of: head.Head.Hash, Reason: record.ReasonDataError, Note: "back to the seventh state",
		},
	}.Bytes(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	pass(p, k[2], k[3], k[4])
	return roots
}

// A log of real states, with its signers rotated, revoked and lost and a version superseded,
// verifies from genesis: live, after a restart, in the file and as an export. Every old version can
// be read. An early copy catches up with it.
func TestHistory(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	s.Keys, s.Threshold = newSigners(8, 3).Keys, 3
	r.Genesis(registrytest.Signers{Keys: s.Keys[:5], Threshold: 3, LogKeys: s.LogKeys})
	old := snapshot(r)
	roots := history(t, r, s)
	genesis := r.Engine.Head().GenesisB3
	cover(r)
	for range 2 {
		head := r.Engine.Head()
		if head.Head.Version != 13 || head.Head.Epoch != 4 || head.Signers.Active() != 5 ||
			head.Items.Root() != roots[11] {
			t.Fatalf("%+v, %d active", head.Head, head.Signers.Active())
		}
		r.Engine.Purge()
		for v := uint64(1); v <= 13; v++ {
			if items, err := r.Engine.Materialise(r.Ctx(), v); err != nil || items.Root() != roots[v] {
				t.Errorf("version %d: %v", v, err)
			}
		}
		r.Stop()
		r.Open()
		r.Start()
	}
	if st, err := r.Engine.Status(r.Ctx(), 12); err != nil || st.SupersededBy != 13 {
		t.Errorf("%+v, %v", st, err)
	}
	r.Stop()
	if rep := verifiedFile(t, r.Path, genesis); !rep.OK || rep.Versions != 13 {
		t.Errorf("file: %+v, %v", rep, rep.Problem)
	}
	dir := exported(r)
	if p := verifyExport(t, dir); p != nil {
		t.Errorf("export: %v", p)
	}
	copyFile(t, r.MarkFile(), old.MarkFile())
	c := restored(old, true)
	accept(c)
	if done, err := c.Engine.CatchUpFrom(c.Ctx(), alice, dir, ""); err != nil || done.To != 13 {
		t.Fatalf("%+v, %v", done, err)
	}
	if head := c.Engine.Head(); head.Head != r.Engine.Head().Head || head.Signers.B3() != r.Engine.Head().Signers.B3() {
		t.Errorf("caught up to %+v", head.Head)
	}
}

// verifiedFile verifies the log, the tree and the stored sets of a closed file.
func verifiedFile(t *testing.T, path string, genesis b3.Digest) (rep rverify.Report) {
	t.Helper()
	src, err := store.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = src.Close() }()
	err = src.View(t.Context(), func(rd store.Reader) (err error) {
		rep, err = tables.Verify(t.Context(), rd, rverify.Options{Genesis: genesis})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}
