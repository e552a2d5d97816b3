package registry

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
)

func TestProposeApproveCommit(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(3, 2)
	r.genesis(s, "a")
	sub := r.e.Subscribe("test")
	defer sub.Close()

	p := r.propose(2, "b")
	r.approve(p, s.keys[0])
	if _, err := r.e.Commit(r.ctx(), alice, p.ID, ""); !errors.Is(err, record.ErrQuorum) {
		t.Fatalf("commit with one of two: %v", err)
	}
	r.approve(p, s.keys[2])
	c := r.commit(p)

	head := r.e.Head()
	if c.Version != 2 || c.Replayed || head.Head.Version != 2 || head.Head.Hash != c.Hash || head.Items.Len() != 2 {
		t.Errorf("committed %+v, head %+v with %d items", c, head.Head, head.Items.Len())
	}
	if again := r.commit(p); !again.Replayed || again.Hash != c.Hash || again.CommittedAt != c.CommittedAt {
		t.Errorf("again = %+v, want a replay of %+v", again, c)
	}
	ev, _, err := sub.Recv(r.ctx())
	if err == nil && ev.Version == 1 { // the publisher may send genesis after its answer
		ev, _, err = sub.Recv(r.ctx())
	}
	if err != nil || ev.Version != 2 || ev.CorrID != "corr-commit" || ev.Hash != c.Hash ||
		ev.Kind != record.KindUpdate {
		t.Errorf("event = %+v, %v", ev, err)
	}
	replayed, err := r.e.Since(r.ctx(), 1, 10)
	if err != nil || len(replayed) != 1 || replayed[0] != ev {
		t.Errorf("Since(1) = %+v, %v, want %+v", replayed, err, ev)
	}
	if !strings.Contains(string(head.JSON), `"version":2,"payload_b3":"`+p.PayloadB3.String()+`"`) {
		t.Errorf("head JSON = %s", head.JSON)
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	g := r.genesis(s, "a")
	p := r.propose(2, "b")
	live, err := r.e.Proposal(r.ctx(), p.ID)
	if err != nil || live.State != document.StatePending || *live.ItemsCount != 2 ||
		*live.Quorum != (document.Quorum{M: 1, N: 1}) {
		t.Errorf("proposal = %+v, %v", live, err)
	}
	toSign, err := r.e.ProposalPayload(r.ctx(), p.ID)
	if err != nil || b3.Sum(toSign) != p.PayloadB3 {
		t.Errorf("payload to sign: %v", err)
	}
	r.approve(p, s.keys[0])
	c := r.commit(p)

	entry, err := r.e.EntryBytes(r.ctx(), 2)
	if err != nil || b3.Sum(entry) != c.Hash {
		t.Errorf("entry: %v", err)
	}
	payload, err := r.e.PayloadBytes(r.ctx(), 2)
	if err != nil || !bytes.Equal(payload, toSign) {
		t.Errorf("payload: %v", err)
	}
	doc, err := r.e.Version(r.ctx(), 2, true)
	if err != nil || !bytes.Contains(doc.JSON, []byte(`"items":[`+testItem("a")+`,`+testItem("b")+`]`)) {
		t.Errorf("version = %s, %v", doc.JSON, err)
	}
	if _, err := record.Canonical(doc.JSON); err != nil {
		t.Errorf("version is no JSON: %v", err)
	}
	old, err := r.e.Version(r.ctx(), 1, true)
	if err != nil || !bytes.Contains(old.JSON, []byte(`"items":[`+testItem("a")+`]`)) ||
		!bytes.Contains(old.JSON, []byte(g.Hash.String())) {
		t.Errorf("version 1 = %s, %v", old.JSON, err)
	}
	bare, err := r.e.Version(r.ctx(), 2, false)
	if err != nil || bytes.Contains(bare.JSON, []byte("items\":")) || bare.ETag == doc.ETag {
		t.Errorf("version without items = %s, %v", bare.JSON, err)
	}
	diff, err := r.e.Diff(r.ctx(), 1, 2)
	if err != nil || len(diff.Put) != 1 || string(diff.Put[0]) != testItem("b") || len(diff.Remove) != 0 {
		t.Errorf("diff = %+v, %v", diff, err)
	}
	if whole, err := r.e.Diff(r.ctx(), 0, 2); err != nil || len(whole.Put) != 2 {
		t.Errorf("diff from nothing = %+v, %v", whole, err)
	}
	set, err := r.e.Signers(r.ctx(), 0)
	if err != nil || set.Epoch != 1 || set.Version != 1 || set.SignerSetB3 != s.set().B3() ||
		b3.Sum(set.Artifact) != g.Hash {
		t.Errorf("signers = %+v, %v", set, err)
	}
	done, err := r.e.Proposal(r.ctx(), p.ID)
	if err != nil || done.State != document.StateCommitted || done.Version != 2 {
		t.Errorf("committed proposal = %+v, %v", done, err)
	}
}

func TestReadsOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	_, errVersion := r.e.Version(r.ctx(), 2, true)
	_, errZero := r.e.EntryBytes(r.ctx(), 0)
	_, errProposal := r.e.Proposal(r.ctx(), "p_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	_, errGarbage := r.e.ProposalPayload(r.ctx(), "../etc/passwd")
	_, errEpoch := r.e.Signers(r.ctx(), 2)
	_, errDiff := r.e.Diff(r.ctx(), 1, 5)
	for i, err := range []error{errVersion, errZero, errProposal, errGarbage, errEpoch, errDiff} {
		if !errors.Is(err, document.ErrNotFound) {
			t.Errorf("%d: %v, want ErrNotFound", i, err)
		}
	}
	if _, err := r.e.Diff(r.ctx(), 1, 2000); !errors.Is(err, document.ErrRange) {
		t.Errorf("diff too wide: %v", err)
	}
	if events, err := r.e.Since(r.ctx(), 7, 10); err != nil || len(events) != 0 {
		t.Errorf("Since above HEAD = %v, %v", events, err)
	}
}

func TestProposeRefusals(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	if _, err := r.e.Propose(r.ctx(), alice, delta(2, "b"), "", ""); !isCause(err, document.CauseNoGenesis) {
		t.Errorf("before genesis: %v", err)
	}
	r.genesis(s, "a")
	var field *record.FieldError
	for _, tt := range []struct {
		doc   string
		draft string
		want  error
		field string
	}{
		{"no JSON", `{`, record.ErrMalformed, ""},
		{"unknown member", `{"schema_version":"1.0.0","version":2,"mode":"delta","put":[],"extra":1}`,
			record.ErrMalformed, "extra"},
		{"old version", string(delta(1, "b")), record.ErrVersionSkew, ""},
		{"version above the stack", string(delta(10, "b")), record.ErrVersionSkew, ""},
		{"no proposal below", string(deltaOn(3, "b", b3.Digest{1})), record.ErrChainMismatch, ""},
		{"no word of a proposal below", string(delta(3, "b")), record.ErrChainMismatch, ""},
		{"another base", string(deltaOn(2, "b", b3.Digest{1})), record.ErrChainMismatch, ""},
		{"genesis again", `{"schema_version":"1.0.0","version":2,"kind":"genesis","mode":"full","items":[]}`,
			record.ErrMalformed, "kind"},
		{"a rotation without signers", `{"schema_version":"1.0.0","version":2,"kind":"signers"}`, record.ErrMalformed,
			"signer_set"},
		{"removing what is not there",
			`{"schema_version":"1.0.0","version":2,"mode":"delta","put":[],"remove":["zz"]}`, record.ErrMalformed,
			"remove"},
	} {
		_, err := r.e.Propose(r.ctx(), alice, []byte(tt.draft), "", "")
		if !errors.Is(err, tt.want) ||
			tt.field != "" && (!errors.As(err, &field) || !strings.HasPrefix(field.Field, tt.field)) {
			t.Errorf("%s: %v, want %v at %q", tt.doc, err, tt.want, tt.field)
		}
	}
	if _, err := r.e.Propose(r.ctx(), alice, delta(2, "b"), b3.Digest{7}.String(), ""); !errors.As(err, &field) ||
		field.Field != "payload_b3" {
		t.Errorf("wrong payload_b3: %v", err)
	}
	if n := len(r.e.pub.State.Load().Live); n != 0 {
		t.Errorf("%d proposals after refusals", n)
	}
}

func isCause(err error, cause string) bool {
	var e *document.NotReadyError
	return errors.As(err, &e) && e.Cause == cause
}

func TestProposeTwiceIsOneProposal(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	p := r.propose(2, "b")
	exact, err := r.e.ProposalPayload(r.ctx(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.e.Propose(r.ctx(), engines.Actor{CapID: "bob"}, exact, p.PayloadB3.String(), "")
	if err != nil || again.ID != p.ID || !again.Replayed || again.ExpiresAt != p.ExpiresAt {
		t.Errorf("again = %+v, %v, want %+v", again, err, p)
	}
}

func TestApproveRefusals(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(2, 1)
	r.genesis(s)
	p := r.propose(2, "b")
	other := newSigners(3, 1).keys[2]
	stolen := s.keys[1].Sign(p.PayloadB3, r.now())
	stolen.SignerID = s.keys[0].SignerID
	early, late := s.keys[0].Sign(p.PayloadB3, r.now().Add(-time.Hour)), s.keys[0].Sign(p.PayloadB3,
		r.now().Add(time.Hour))
	for _, tt := range []struct {
		doc  string
		id   string
		a    record.Approval
		by   engines.Actor
		want error
	}{
		{
			"unknown proposal", "p_01ARZ3NDEKTSV4RRFFQ69G5FAV", s.keys[0].Sign(p.PayloadB3, r.now()), alice,
			document.ErrNotFound,
		},
		{"unknown signer", p.ID, other.Sign(p.PayloadB3, r.now()), alice, record.ErrInvalidSig},
		{"another's name", p.ID, stolen, alice, record.ErrInvalidSig},
		{"another payload", p.ID, s.keys[0].Sign(b3.Digest{1}, r.now()), alice, record.ErrInvalidSig},
		{"signed too early", p.ID, early, alice, record.ErrClockSkew},
		{"signed too late", p.ID, late, alice, record.ErrClockSkew},
		{"token for another signer", p.ID, s.keys[0].Sign(p.PayloadB3, r.now()),
			engines.Actor{CapID: "x", Signer: s.keys[1].SignerID}, document.ErrForbidden},
	} {
		if _, err := r.e.Approve(r.ctx(), tt.by, tt.id, tt.a, ""); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.doc, err, tt.want)
		}
	}
	a := s.keys[0].Sign(p.PayloadB3, r.now())
	if got, err := r.e.Approve(r.ctx(), alice, p.ID, a, ""); err != nil || got.Approvals != 1 ||
		got.Quorum != (document.Quorum{M: 1, N: 2}) {
		t.Errorf("approved = %+v, %v", got, err)
	}
	var dup *document.DuplicateApprovalError
	if _, err := r.e.Approve(r.ctx(), alice, p.ID, a, ""); !errors.As(err, &dup) || !dup.Identical {
		t.Errorf("the same again: %v", err)
	}
	r.commit(p)
	var state *document.StateError
	if _, err := r.e.Approve(r.ctx(), alice, p.ID, s.keys[1].Sign(p.PayloadB3, r.now()), ""); !errors.As(err, &state) ||
		state.State != document.StateCommitted {
		t.Errorf("approve after commit: %v", err)
	}
}

func TestGenesisRefusals(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(2, 1)
	raw, approvals := r.genesisPayload(s, "a")
	if _, err := r.e.Genesis(r.ctx(), alice, raw, approvals[:1], ""); !errors.Is(err, record.ErrQuorum) {
		t.Errorf("one of two keys: %v", err)
	}
	if _, err := r.e.Genesis(r.ctx(), alice, delta(1, "a"), approvals, ""); !errors.Is(err, record.ErrMalformed) {
		t.Errorf("a delta: %v", err)
	}
	if r.e.Head().Head.Version != 0 {
		t.Fatal("HEAD moved")
	}
	bad := approvals[1]
	bad.Sig = approvals[0].Sig
	stranger := newSigners(3, 1).keys[2].Sign(b3.Sum(raw), r.now())
	for _, tt := range []struct {
		doc   string
		given []record.Approval
		index int
		want  error
	}{
		{"a bad signature", []record.Approval{approvals[0], bad}, 1, record.ErrInvalidSig},
		{"a stranger", []record.Approval{stranger, approvals[0], approvals[1]}, 0, record.ErrInvalidSig},
		{"a repeat", []record.Approval{approvals[0], approvals[0], approvals[1]}, 1, &document.DuplicateApprovalError{}},
	} {
		_, err := r.e.Genesis(r.ctx(), alice, raw, tt.given, "")
		var wrong *document.GenesisApprovalError
		if !errors.As(err, &wrong) || wrong.Index != tt.index || wrong.SignerID != tt.given[tt.index].SignerID {
			t.Errorf("%s: %v", tt.doc, err)
		}
		var twice *document.DuplicateApprovalError
		if errors.As(tt.want, &twice) != errors.As(err, &twice) ||
			!errors.As(tt.want, &twice) && !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.doc, err, tt.want)
		}
	}
	if r.e.Head().Head.Version != 0 {
		t.Fatal("HEAD moved")
	}
	first, err := r.e.Genesis(r.ctx(), alice, raw, approvals, "")
	if err != nil || first.Replayed {
		t.Fatalf("genesis: %+v, %v", first, err)
	}
	again, err := r.e.Genesis(r.ctx(), alice, raw, nil, "")
	first.Replayed = true
	if err != nil || again != first {
		t.Errorf("the genesis in force, again: %+v, %v, want %+v", again, err, first)
	}
	other, signed := r.genesisPayload(s, "b")
	if _, err := r.e.Genesis(r.ctx(), alice, other, signed, ""); !errors.Is(err, document.ErrConflict) {
		t.Errorf("a second genesis: %v", err)
	}
}

func TestPinnedGenesis(t *testing.T) {
	t.Parallel()
	s := newSigners(1, 1)
	r := newRig(t, func(c *Config) { c.Bootstrap.TrustRootsHash = b3.Digest{1}.String() }).start()
	raw, approvals := r.genesisPayload(s, "a")
	if _, err := r.e.Genesis(r.ctx(), alice, raw, approvals, ""); !errors.Is(err, record.ErrMalformed) {
		t.Errorf("a genesis that is not pinned: %v", err)
	}
}

// A configuration that names another log keeps the node from starting on this one.
func TestRecoverRefusesAnotherLog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key    string
		change func(*Config)
	}{
		{"registry.origin", func(c *Config) { c.Origin = "ronbox.local/other" }},
		{"registry.bootstrap.trust_roots_hash", func(c *Config) { c.Bootstrap.TrustRootsHash = b3.Digest{1}.String() }},
	} {
		r := newRig(t).start()
		r.genesis(newSigners(1, 1))
		r.stop()
		tt.change(&r.cfg)
		r.wire()
		if err := errors.Join(r.store.Open(r.ctx()), r.store.Prepare(r.ctx())); err != nil {
			t.Fatal(err)
		}
		r.stopped = false
		r.sup.Start(r.store.Tasks()...)
		var mismatch *GenesisMismatchError
		if err := r.e.Recover(r.ctx()); !errors.As(err, &mismatch) || mismatch.Key != tt.key {
			t.Errorf("%s: recover = %v", tt.key, err)
		}
	}
}
