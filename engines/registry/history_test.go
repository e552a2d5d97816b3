package registry

import (
	"path/filepath"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// history commits eight states of a real service registry on a genesis with five keys, of which
// three must approve. It rotates after the third, revokes after the fifth, rotates again after the
// sixth with one key lost, and supersedes at the end. It returns the roots of the items by version.
func history(t *testing.T, r *rig, s signers) (roots map[uint64]string) {
	t.Helper()
	files, err := filepath.Glob("../../testdata/registry/*.ndjson")
	if err != nil || len(files) != 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	spare := s.keys[5:]
	roots = map[uint64]string{1: r.e.Head().Items.Root()}
	pass := func(p document.Proposed, keys ...*record.Key) {
		r.approve(p, keys...)
		done := r.commit(p)
		roots[done.Version] = r.e.Head().Items.Root()
	}
	signers := func(edit func(n *record.SignerSet, version uint64), keys ...*record.Key) {
		head := r.e.Head()
		p, _ := r.change(head.Head.Version+1, head.Head.PayloadB3, head.Signers,
			func(n *record.SignerSet) { edit(n, head.Head.Version+1) })
		pass(p, keys...)
	}
	k := s.keys[:5]
	for i, file := range files {
		p, err := r.e.Propose(r.ctx(), alice, draftTo(r.e.Head(), readItems(t, file)), "", "")
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
	head := r.e.Head()
	put, remove := record.Diff(head.Items, readItems(t, files[6]))
	p, err := r.e.Propose(r.ctx(), alice, record.Draft{
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
	s.keys, s.threshold = newSigners(8, 3).keys, 3
	r.genesis(signers{keys: s.keys[:5], threshold: 3, logKeys: s.logKeys})
	old := r.snapshot()
	roots := history(t, r, s)
	genesis := r.e.Head().GenesisB3
	r.cover()
	for range 2 {
		head := r.e.Head()
		if head.Head.Version != 13 || head.Head.Epoch != 4 || head.Signers.Active() != 5 ||
			head.Items.Root() != roots[11] {
			t.Fatalf("%+v, %d active", head.Head, head.Signers.Active())
		}
		r.e.Purge()
		for v := uint64(1); v <= 13; v++ {
			if items, err := r.e.Materialise(r.ctx(), v); err != nil || items.Root() != roots[v] {
				t.Errorf("version %d: %v", v, err)
			}
		}
		r.stop()
		r.open()
		r.start()
	}
	if st, err := r.e.Status(r.ctx(), 12); err != nil || st.SupersededBy != 13 {
		t.Errorf("%+v, %v", st, err)
	}
	r.stop()
	if rep := verifiedFile(t, r.path, genesis); !rep.OK || rep.Versions != 13 {
		t.Errorf("file: %+v, %v", rep, rep.Problem)
	}
	dir := r.exported()
	if p := verifyExport(t, dir); p != nil {
		t.Errorf("export: %v", p)
	}
	copyFile(t, r.markFile(), old.markFile())
	c := old.restored(true)
	c.accept()
	if done, err := c.e.CatchUpFrom(c.ctx(), alice, dir, ""); err != nil || done.To != 13 {
		t.Fatalf("%+v, %v", done, err)
	}
	if head := c.e.Head(); head.Head != r.e.Head().Head || head.Signers.B3() != r.e.Head().Signers.B3() {
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
