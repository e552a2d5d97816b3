package registry

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
)

// change proposes a change of the signers on the payload prev.
func (r *rig) change(version uint64, prev b3.Digest, old *record.SignerSet,
	edit func(s *record.SignerSet)) (document.Proposed, *record.SignerSet) {
	r.t.Helper()
	next := *old
	next.Epoch, next.Signers = old.Epoch+1, slices.Clone(old.Signers)
	edit(&next)
	draft := fmt.Appendf(nil, `{"prev_hash":%q,%s`, prev, record.Draft{Version: version, SignerSet: &next}.Bytes()[1:])
	p, err := r.e.Propose(r.ctx(), alice, draft, "", "corr-signers")
	if err != nil {
		r.t.Fatalf("propose signers: %v", err)
	}
	return p, &next
}

// retire retires a signer with the longest grace.
func retire(s *record.SignerSet, version uint64, id string) {
	i := slices.IndexFunc(s.Signers, func(e record.Signer) bool { return e.ID == id })
	s.Signers[i].Status, s.Signers[i].GraceUntilVersion = record.StatusRetired, version+record.MaxGrace
}

func revoke(s *record.SignerSet, id string) {
	i := slices.IndexFunc(s.Signers, func(e record.Signer) bool { return e.ID == id })
	s.Signers[i].Status, s.Signers[i].GraceUntilVersion, s.Signers[i].Reason = record.StatusRevoked, 0, "stolen"
}

// supersede is a draft that replaces an entry.
func supersede(version uint64, of b3.Digest, put string) []byte {
	it, err := record.ParseItem([]byte(testItem(put)))
	if err != nil {
		panic(err)
	}
	return record.Draft{
		Version: version, Put: []record.Item{it},
		Supersede: &record.Supersede{Of: of, Reason: record.ReasonDataError, Note: "wrong region"},
	}.Bytes()
}

// A proposal stacked on a change of signers outlives it, also over a restart: signatures of retired
// signers count while their grace lasts, those of revoked ones never, and a former signer cannot
// sign again.
func TestStackSurvivesARotation(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(5, 2)
	late := s.keys[4]
	s.keys = s.keys[:4]
	r.genesis(s)
	first, set := r.change(2, r.e.Head().Head.PayloadB3, r.e.Head().Signers, func(n *record.SignerSet) {
		retire(n, 2, s.keys[0].SignerID)
		revoke(n, s.keys[1].SignerID)
		n.Signers = append(n.Signers, late.Signer(2))
	})
	prev := first.PayloadB3
	var above []document.Proposed
	for v := uint64(3); v < 5; v++ {
		p, err := r.e.Propose(r.ctx(), alice, deltaOn(v, fmt.Sprint("s", v), prev), "", "")
		if err != nil {
			t.Fatal(err)
		}
		above, prev = append(above, p), p.PayloadB3
	}
	r.approve(above[0], s.keys[0], s.keys[2]) // retired, active
	r.approve(above[1], s.keys[1], s.keys[2]) // revoked, active
	r.approve(first, late, s.keys[0], s.keys[2])
	if _, err := r.e.Approve(r.ctx(), alice, first.ID, s.keys[1].Sign(first.PayloadB3, r.now()), ""); !errors.Is(
		err,
		record.ErrRevokedKey,
	) {
		t.Errorf("the key that it revokes: %v", err)
	}
	r.stop()
	r.open()
	r.start()
	r.commit(first)
	if head := r.e.Head(); head.Head.Epoch != 2 || head.Signers.B3() != set.B3() {
		t.Fatalf("%+v", head.Head)
	}
	r.commit(above[0])
	if _, err := r.e.Commit(r.ctx(), alice, above[1].ID, ""); !errors.Is(err, record.ErrRevokedKey) {
		t.Errorf("with one who is revoked: %v", err)
	}
	if _, err := r.e.Approve(r.ctx(), alice, above[1].ID, s.keys[0].Sign(above[1].PayloadB3, r.now()), ""); !errors.Is(
		err,
		record.ErrRevokedKey,
	) {
		t.Errorf("a new signature of who is retired: %v", err)
	}
	r.approve(above[1], late)
	r.commit(above[1])
	for epoch := uint64(1); epoch <= 2; epoch++ {
		if doc, err := r.e.Signers(r.ctx(), epoch); err != nil || doc.Version != epoch {
			t.Errorf("epoch %d: %+v, %v", epoch, doc.Version, err)
		}
	}
	if rep := r.verifyFile(); !rep.OK || rep.Versions != 4 {
		t.Error(rep.Problem)
	}
}

// The node signs while the signers in force admit its key. Its earlier signatures stay valid.
func TestLogKeyGoesWithItsSigners(t *testing.T) {
	t.Parallel()
	r, s := newLogRig(t)
	r.genesis(s)
	r.cover()
	p, _ := r.change(2, r.e.Head().Head.PayloadB3, r.e.Head().Signers, func(n *record.SignerSet) { n.LogKeys = nil })
	r.approve(p, s.keys...)
	r.commit(p)
	if _, err := r.e.CheckpointNow(r.ctx()); !errors.Is(err, document.ErrConflict) {
		t.Errorf("a checkpoint by a key that was put out: %v", err)
	}
	r.stop()
	r.open()
	r.start()
	if at := r.e.pub.Latest.Load(); at == nil || at.Size > 2 {
		t.Errorf("the checkpoint from before: %+v", at)
	}
	p, _ = r.change(3, r.e.Head().Head.PayloadB3, r.e.Head().Signers,
		func(n *record.SignerSet) { n.LogKeys = s.logKeys })
	r.approve(p, s.keys...)
	r.commit(p)
	if at := r.cover(); at.Size != 3 {
		t.Errorf("%+v", at)
	}
}

// Only HEAD can be superseded, once, by a quorum of governance. The version before it does not
// change, and its status names its successor.
func TestSupersedeOnlyHEAD(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(3, 1)
	set := s.set()
	set.ThresholdGov = 2
	p, _, err := record.Complete(record.Draft{Version: 1, Full: true, SignerSet: set}.Bytes(),
		record.Base{Origin: testOrigin}, r.now())
	if err != nil {
		t.Fatal(err)
	}
	genesis, err := r.e.Genesis(r.ctx(), alice, p.Bytes(), s.sign(p.B3(), r.now()), "")
	if err != nil {
		t.Fatal(err)
	}
	bad := r.propose(2, "bad")
	if _, err := r.e.Propose(r.ctx(), alice, supersede(2, digest("x"), "good"), "", ""); !errors.Is(err,
		record.ErrChainMismatch) {
		t.Errorf("of no entry: %v", err)
	}
	draft := fmt.Appendf(nil, `{"prev_hash":%q,%s`, bad.PayloadB3, supersede(3, genesis.Hash, "good")[1:])
	if _, err := r.e.Propose(r.ctx(), alice, draft, "", ""); !errors.Is(err, record.ErrChainMismatch) {
		t.Errorf("on a proposal: %v", err)
	}
	r.approve(bad, s.keys[0])
	r.commit(bad)
	if _, err := r.e.Propose(r.ctx(), alice, supersede(3, genesis.Hash, "good"), "", ""); !errors.Is(err,
		record.ErrChainMismatch) {
		t.Errorf("of the version before HEAD: %v", err)
	}
	before, err := r.e.Version(r.ctx(), 2, true)
	if err != nil {
		t.Fatal(err)
	}
	fix, err := r.e.Propose(r.ctx(), alice, supersede(3, r.e.Head().Head.Hash, "good"), "", "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.e.Approve(r.ctx(), alice, fix.ID, s.keys[0].Sign(fix.PayloadB3, r.now()), "")
	if err != nil || got.Quorum != (document.Quorum{M: 2, N: 3}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := r.e.Commit(r.ctx(), alice, fix.ID, ""); !errors.Is(err, record.ErrQuorum) {
		t.Errorf("by one: %v", err)
	}
	signed := r.e.pub.State.Load().Live[mustID(fix.ID)].Payload.Bytes()
	r.approve(fix, s.keys[1])
	done := r.commit(fix)
	if rec := r.lastAudit(); rec.Event != record.EventSupersede || rec.Version != 3 {
		t.Errorf("%+v", rec)
	}
	if again := r.commit(fix); !again.Replayed || again.Hash != done.Hash {
		t.Errorf("a repeat: %+v", again)
	}
	if _, err := r.e.Propose(r.ctx(), alice, signed, "", ""); !errors.Is(err, record.ErrVersionSkew) {
		t.Errorf("the signed payload once more: %v", err)
	}
	r.e.Purge()
	after, err := r.e.Version(r.ctx(), 2, true)
	if err != nil || string(after.JSON) != string(before.JSON) {
		t.Errorf("version 2 changed: %s, %v", after.JSON, err)
	}
	for v, want := range []uint64{0, 0, 3, 0} {
		if v == 0 {
			continue
		}
		if st, err := r.e.Status(r.ctx(), uint64(v)); err != nil || st.SupersededBy != want {
			t.Errorf("status of %d: %+v, %v", v, st, err)
		}
	}
	if n := r.metric("registry_updates_total", "result", "superseded"); n != 1 {
		t.Errorf("%v superseded", n)
	}
	if rep := r.verifyFile(); !rep.OK || rep.Versions != 3 {
		t.Error(rep.Problem)
	}
}
