package registry_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
)

func TestProposeApproveCommit(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(3, 2)
	r.Genesis(s, "a")
	sub := r.Engine.Subscribe("test")
	defer sub.Close()

	p := r.Propose(2, "b")
	r.Approve(p, s.Keys[0])
	if _, err := r.Engine.Commit(r.Ctx(), alice, p.ID, ""); !errors.Is(err, record.ErrQuorum) {
		t.Fatalf("commit with one of two: %v", err)
	}
	r.Approve(p, s.Keys[2])
	c := r.Commit(p)

	head := r.Engine.Head()
	if c.Version != 2 || c.Replayed || head.Head.Version != 2 || head.Head.Hash != c.Hash || head.Items.Len() != 2 {
		t.Errorf("committed %+v, head %+v with %d items", c, head.Head, head.Items.Len())
	}
	if again := r.Commit(p); !again.Replayed || again.Hash != c.Hash || again.CommittedAt != c.CommittedAt {
		t.Errorf("again = %+v, want a replay of %+v", again, c)
	}
	ev, _, err := sub.Recv(r.Ctx())
	if err == nil && ev.Version == 1 { // the publisher may send genesis after its answer
		ev, _, err = sub.Recv(r.Ctx())
	}
	if err != nil || ev.Version != 2 || ev.CorrID != "corr-commit" || ev.Hash != c.Hash ||
		ev.Kind != record.KindUpdate {
		t.Errorf("event = %+v, %v", ev, err)
	}
	replayed, err := r.Engine.Since(r.Ctx(), 1, 10)
	if err != nil || len(replayed) != 1 || replayed[0] != ev {
		t.Errorf("Since(1) = %+v, %v, want %+v", replayed, err, ev)
	}
	if !strings.Contains(string(head.JSON), `"version":2,"payload_b3":"`+p.PayloadB3.String()+`"`) {
		t.Errorf("head JSON = %s", head.JSON)
	}
}

func TestReads(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	g := r.Genesis(s, "a")
	p := r.Propose(2, "b")
	live, err := r.Engine.Proposal(r.Ctx(), p.ID)
	if err != nil || live.State != document.StatePending || *live.ItemsCount != 2 ||
		*live.Quorum != (document.Quorum{M: 1, N: 1}) {
		t.Errorf("proposal = %+v, %v", live, err)
	}
	toSign, err := r.Engine.ProposalPayload(r.Ctx(), p.ID)
	if err != nil || b3.Sum(toSign) != p.PayloadB3 {
		t.Errorf("payload to sign: %v", err)
	}
	r.Approve(p, s.Keys[0])
	c := r.Commit(p)

	entry, err := r.Engine.EntryBytes(r.Ctx(), 2)
	if err != nil || b3.Sum(entry) != c.Hash {
		t.Errorf("entry: %v", err)
	}
	payload, err := r.Engine.PayloadBytes(r.Ctx(), 2)
	if err != nil || !bytes.Equal(payload, toSign) {
		t.Errorf("payload: %v", err)
	}
	doc, err := r.Engine.Version(r.Ctx(), 2, true)
	if err != nil || !bytes.Contains(doc.JSON, []byte(`"items":[`+registrytest.Item("a")+`,`+registrytest.Item("b")+`]`)) {
		t.Errorf("version = %s, %v", doc.JSON, err)
	}
	if _, err := record.Canonical(doc.JSON); err != nil {
		t.Errorf("version is no JSON: %v", err)
	}
	old, err := r.Engine.Version(r.Ctx(), 1, true)
	if err != nil || !bytes.Contains(old.JSON, []byte(`"items":[`+registrytest.Item("a")+`]`)) ||
		!bytes.Contains(old.JSON, []byte(g.Hash.String())) {
		t.Errorf("version 1 = %s, %v", old.JSON, err)
	}
	bare, err := r.Engine.Version(r.Ctx(), 2, false)
	if err != nil || bytes.Contains(bare.JSON, []byte("items\":")) || bare.ETag == doc.ETag {
		t.Errorf("version without items = %s, %v", bare.JSON, err)
	}
	diff, err := r.Engine.Diff(r.Ctx(), 1, 2)
	if err != nil || len(diff.Put) != 1 || string(diff.Put[0]) != registrytest.Item("b") || len(diff.Remove) != 0 {
		t.Errorf("diff = %+v, %v", diff, err)
	}
	if whole, err := r.Engine.Diff(r.Ctx(), 0, 2); err != nil || len(whole.Put) != 2 {
		t.Errorf("diff from nothing = %+v, %v", whole, err)
	}
	set, err := r.Engine.Signers(r.Ctx(), 0)
	if err != nil || set.Epoch != 1 || set.Version != 1 || set.SignerSetB3 != s.Set().B3() ||
		b3.Sum(set.Artifact) != g.Hash {
		t.Errorf("signers = %+v, %v", set, err)
	}
	done, err := r.Engine.Proposal(r.Ctx(), p.ID)
	if err != nil || done.State != document.StateCommitted || done.Version != 2 {
		t.Errorf("committed proposal = %+v, %v", done, err)
	}
}

func TestReadsOfWhatIsNotThere(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	_, errVersion := r.Engine.Version(r.Ctx(), 2, true)
	_, errZero := r.Engine.EntryBytes(r.Ctx(), 0)
	_, errProposal := r.Engine.Proposal(r.Ctx(), "p_01ARZ3NDEKTSV4RRFFQ69G5FAV")
	_, errGarbage := r.Engine.ProposalPayload(r.Ctx(), "../etc/passwd")
	_, errEpoch := r.Engine.Signers(r.Ctx(), 2)
	_, errDiff := r.Engine.Diff(r.Ctx(), 1, 5)
	for i, err := range []error{errVersion, errZero, errProposal, errGarbage, errEpoch, errDiff} {
		if !errors.Is(err, document.ErrNotFound) {
			t.Errorf("%d: %v, want ErrNotFound", i, err)
		}
	}
	if _, err := r.Engine.Diff(r.Ctx(), 1, 2000); !errors.Is(err, document.ErrRange) {
		t.Errorf("diff too wide: %v", err)
	}
	if events, err := r.Engine.Since(r.Ctx(), 7, 10); err != nil || len(events) != 0 {
		t.Errorf("Since above HEAD = %v, %v", events, err)
	}
}

func TestProposeRefusals(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	if _, err := r.Engine.Propose(r.Ctx(), alice, delta(2, "b"), "", ""); !isCause(err, document.CauseNoGenesis) {
		t.Errorf("before genesis: %v", err)
	}
	r.Genesis(s, "a")
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
		_, err := r.Engine.Propose(r.Ctx(), alice, []byte(tt.draft), "", "")
		if !errors.Is(err, tt.want) ||
			tt.field != "" && (!errors.As(err, &field) || !strings.HasPrefix(field.Field, tt.field)) {
			t.Errorf("%s: %v, want %v at %q", tt.doc, err, tt.want, tt.field)
		}
	}
	if _, err := r.Engine.Propose(r.Ctx(), alice, delta(2, "b"), b3.Digest{7}.String(), ""); !errors.As(err, &field) ||
		field.Field != "payload_b3" {
		t.Errorf("wrong payload_b3: %v", err)
	}
	if n := len(r.Engine.Pub().State.Load().Live); n != 0 {
		t.Errorf("%d proposals after refusals", n)
	}
}

func TestProposeTwiceIsOneProposal(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	p := r.Propose(2, "b")
	exact, err := r.Engine.ProposalPayload(r.Ctx(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Engine.Propose(r.Ctx(), engines.Actor{CapID: "bob"}, exact, p.PayloadB3.String(), "")
	if err != nil || again.ID != p.ID || !again.Replayed || again.ExpiresAt != p.ExpiresAt {
		t.Errorf("again = %+v, %v, want %+v", again, err, p)
	}
}

func TestApproveRefusals(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(2, 1)
	r.Genesis(s)
	p := r.Propose(2, "b")
	other := newSigners(3, 1).Keys[2]
	stolen := s.Keys[1].Sign(p.PayloadB3, r.Now())
	stolen.SignerID = s.Keys[0].SignerID
	early, late := s.Keys[0].Sign(p.PayloadB3, r.Now().Add(-time.Hour)), s.Keys[0].Sign(p.PayloadB3,
		r.Now().Add(time.Hour))
	for _, tt := range []struct {
		doc  string
		id   string
		a    record.Approval
		by   engines.Actor
		want error
	}{
		{
			"unknown proposal", "p_01ARZ3NDEKTSV4RRFFQ69G5FAV", s.Keys[0].Sign(p.PayloadB3, r.Now()), alice,
			document.ErrNotFound,
		},
		{"unknown signer", p.ID, other.Sign(p.PayloadB3, r.Now()), alice, record.ErrInvalidSig},
		{"another's name", p.ID, stolen, alice, record.ErrInvalidSig},
		{"another payload", p.ID, s.Keys[0].Sign(b3.Digest{1}, r.Now()), alice, record.ErrInvalidSig},
		{"signed too early", p.ID, early, alice, record.ErrClockSkew},
		{"signed too late", p.ID, late, alice, record.ErrClockSkew},
		{"token for another signer", p.ID, s.Keys[0].Sign(p.PayloadB3, r.Now()),
			engines.Actor{CapID: "x", Signer: s.Keys[1].SignerID}, document.ErrForbidden},
	} {
		if _, err := r.Engine.Approve(r.Ctx(), tt.by, tt.id, tt.a, ""); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.doc, err, tt.want)
		}
	}
	a := s.Keys[0].Sign(p.PayloadB3, r.Now())
	if got, err := r.Engine.Approve(r.Ctx(), alice, p.ID, a, ""); err != nil || got.Approvals != 1 ||
		got.Quorum != (document.Quorum{M: 1, N: 2}) {
		t.Errorf("approved = %+v, %v", got, err)
	}
	var dup *document.DuplicateApprovalError
	if _, err := r.Engine.Approve(r.Ctx(), alice, p.ID, a, ""); !errors.As(err, &dup) || !dup.Identical {
		t.Errorf("the same again: %v", err)
	}
	r.Commit(p)
	var state *document.StateError
	late = s.Keys[1].Sign(p.PayloadB3, r.Now())
	if _, err := r.Engine.Approve(r.Ctx(), alice, p.ID, late, ""); !errors.As(err, &state) ||
		state.State != document.StateCommitted {
		t.Errorf("approve after commit: %v", err)
	}
}

func TestGenesisRefusals(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(2, 1)
	raw, approvals := r.GenesisPayload(s, "a")
	if _, err := r.Engine.Genesis(r.Ctx(), alice, raw, approvals[:1], ""); !errors.Is(err, record.ErrQuorum) {
		t.Errorf("one of two keys: %v", err)
	}
	if _, err := r.Engine.Genesis(r.Ctx(), alice, delta(1, "a"), approvals, ""); !errors.Is(err, record.ErrMalformed) {
		t.Errorf("a delta: %v", err)
	}
	if r.Engine.Head().Head.Version != 0 {
		t.Fatal("HEAD moved")
	}
	bad := approvals[1]
	bad.Sig = approvals[0].Sig
	stranger := newSigners(3, 1).Keys[2].Sign(b3.Sum(raw), r.Now())
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
		_, err := r.Engine.Genesis(r.Ctx(), alice, raw, tt.given, "")
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
	if r.Engine.Head().Head.Version != 0 {
		t.Fatal("HEAD moved")
	}
	first, err := r.Engine.Genesis(r.Ctx(), alice, raw, approvals, "")
	if err != nil || first.Replayed {
		t.Fatalf("genesis: %+v, %v", first, err)
	}
	again, err := r.Engine.Genesis(r.Ctx(), alice, raw, nil, "")
	first.Replayed = true
	if err != nil || again != first {
		t.Errorf("the genesis in force, again: %+v, %v, want %+v", again, err, first)
	}
	other, signed := r.GenesisPayload(s, "b")
	if _, err := r.Engine.Genesis(r.Ctx(), alice, other, signed, ""); !errors.Is(err, document.ErrConflict) {
		t.Errorf("a second genesis: %v", err)
	}
}

func TestPinnedGenesis(t *testing.T) {
	t.Parallel()
	s := newSigners(1, 1)
	r := registrytest.New(t, func(c *registry.Config) { c.Bootstrap.TrustRootsHash = b3.Digest{1}.String() }).Start()
	raw, approvals := r.GenesisPayload(s, "a")
	if _, err := r.Engine.Genesis(r.Ctx(), alice, raw, approvals, ""); !errors.Is(err, record.ErrMalformed) {
		t.Errorf("a genesis that is not pinned: %v", err)
	}
}

// A configuration that names another log keeps the node from starting on this one.
func TestRecoverRefusesAnotherLog(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		key    string
		change func(*registry.Config)
	}{
		{"registry.origin", func(c *registry.Config) { c.Origin = "ronbox.local/other" }},
		{"registry.bootstrap.trust_roots_hash", func(c *registry.Config) { c.Bootstrap.TrustRootsHash = b3.Digest{1}.String() }},
	} {
		r := registrytest.New(t).Start()
		r.Genesis(newSigners(1, 1))
		r.Stop()
		tt.change(&r.Config)
		r.Wire()
		if err := errors.Join(r.Store.Open(r.Ctx()), r.Store.Prepare(r.Ctx())); err != nil {
			t.Fatal(err)
		}
		r.Stopped = false
		r.Sup.Start(r.Store.Tasks()...)
		var mismatch *registry.GenesisMismatchError
		if err := r.Engine.Recover(r.Ctx()); !errors.As(err, &mismatch) || mismatch.Key != tt.key {
			t.Errorf("%s: recover = %v", tt.key, err)
		}
	}
}
