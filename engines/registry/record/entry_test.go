package record

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ronbox/appliance/b3"
)

func testEntry(t testing.TB) *Artifact {
	t.Helper()
	sum := b3.Sum([]byte("payload"))
	a := testKey(t, 1).Sign(sum, noon)
	a.ReceivedAt = FormatTime(noon)
	b := testKey(t, 2).Sign(sum, noon)
	b.ReceivedAt = FormatTime(noon)
	e, err := NewArtifact(Artifact{
		Origin:       testOrigin,
		Version:      2,
		Kind:         KindUpdate,
		PayloadB3:    sum,
		PayloadBytes: 7,
		PrevHash:     b3.Sum([]byte("entry")),
		Approvals:    []Approval{a, b},
		AuthorizedBy: b3.Sum([]byte("set")),
		AuditSeq:     9,
		AuditHead:    b3.Sum([]byte("audit")),
		ProposalID:   "p_1",
		CommittedAt:  FormatTime(noon),
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestEntry(t *testing.T) {
	e := testEntry(t)
	if canon, err := Canonical(e.Bytes()); err != nil || !bytes.Equal(canon, e.Bytes()) ||
		!bytes.Equal(e.encode(), e.Bytes()) {
		t.Fatalf("%s is not canonical: %v", e.Bytes(), err)
	}
	back, err := ParseEntry(append(bytes.Clone(e.Bytes()), '\n'))
	if err != nil || back.Hash() != e.Hash() || back.Hash() != b3.Sum(e.Bytes()) || len(back.Approvals) != 2 ||
		back.Approvals[1] != e.Approvals[1] {
		t.Fatalf("%+v, %v", back, err)
	}
	for _, tt := range []struct{ old, to, field string }{
		{`"type":"ron.registry/artifact/v1"`, `"type":"x"`, "type"},
		{`"version":2`, `"version":0`, "version"},
		{`"kind":"update"`, `"kind":"Update"`, "kind"},
		{`"origin":"`, `"origin":" `, "origin"},
		{`"1.0.0"`, `"1.0.1"`, "schema_version"},
		{`"payload_bytes":7`, `"payload_bytes":1048577`, "payload_bytes"},
		{`"payload_bytes":7`, `"payload_bytes":0`, "payload_bytes"},
		{`"audit_seq":9`, `"audit_seq":0`, "audit_head"},
		{`"p_1"`, `""`, "proposal_id"},
		{`"approvals":[{`, `"approvals":[{"x":1,`, "approvals.0.x"},
		{`"approvals":[{`, `"approvals":[{},{`, "approvals.0.signer_id"},
		{e.Approvals[0].SignerID, e.Approvals[1].SignerID, "approvals.1.signer_id"},
		{`"received_at":"2026-03-01T12:00:00.000Z",`, ``, "approvals.0.received_at"},
		{`"prev_hash":"b3:`, `"prev_hash":"B3:`, "prev_hash"},
		{`"committed_at":"2026-03-01T12`, `"committed_at":"2026-03-01 12`, "committed_at"},
	} {
		_, err := ParseEntry([]byte(strings.Replace(string(e.Bytes()), tt.old, tt.to, 1)))
		wantField(t, tt.old+" -> "+tt.to, err, tt.field)
	}
	none := *e
	none.Approvals = nil
	_, err = NewArtifact(none)
	wantField(t, "no approvals", err, "approvals")
}

// Sixty-four signers with the longest ids fit an entry, and their commit fits an audit record.
func TestLargestQuorumFits(t *testing.T) {
	e := *testEntry(t)
	one := e.Approvals[0]
	e.Approvals = nil
	var ids []string
	for i := range MaxActive {
		one.SignerID = fmt.Sprintf("org:%s#k%02d", strings.Repeat("r", maxSignerID-8), i)
		e.Approvals, ids = append(e.Approvals, one), append(ids, one.SignerID)
	}
	if !validSignerID(one.SignerID) || len(one.SignerID) != maxSignerID {
		t.Fatalf("%s is not the longest", one.SignerID)
	}
	if _, err := NewArtifact(e); err != nil {
		t.Error(err)
	}
	a, err := newAudit(
		Audit{Seq: 1, At: FormatTime(noon), Event: EventCommit, Decision: DecisionAccept, Signers: ids, Version: 2},
	)
	if err != nil || a.Signers != nil {
		t.Errorf("%v, %v", a, err)
	}
	for range 5 {
		e.Approvals = append(e.Approvals, e.Approvals...)
	}
	if _, err := NewArtifact(e); !errors.Is(err, ErrHardLimit) {
		t.Errorf("too large an entry: %v", err)
	}
}

func newAudit(a Audit) (*Audit, error) { return ParseAudit(a.encode()) }

func TestAudit(t *testing.T) {
	uid := uint32(0)
	a, err := newAudit(Audit{
		Seq:        2,
		Prev:       b3.Sum([]byte("1")),
		At:         FormatTime(noon),
		Event:      EventCommit,
		Decision:   DecisionAccept,
		CorrID:     "c\"1\"",
		Actor:      AuditActor{CapID: "01J", KeyFpr: "f", UID: &uid},
		ProposalID: "p_1",
		PayloadB3:  b3.Sum(nil),
		Version:    3,
		Signers:    []string{"org:a#b"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if canon, err := Canonical(
		a.Bytes(),
	); err != nil || !bytes.Equal(canon, a.Bytes()) || !bytes.Equal(a.encode(), a.Bytes()) ||
		!a.Commits() {
		t.Fatalf("%s is not canonical: %v", a.Bytes(), err)
	}
	small, err := newAudit(
		Audit{Seq: 1, At: FormatTime(noon), Event: "propose.rejected", Decision: DecisionReject, Reason: "x"},
	)
	want := `{"actor":{},"at":"2026-03-01T12:00:00.000Z","corr_id":"","decision":"reject","event":"propose.rejected","prev":"` + b3.Digest{}.String() +
		`","reason":"x","seq":1,"type":"ron.registry/audit/v1"}`
	if err != nil || string(small.Bytes()) != want || small.Commits() {
		t.Errorf("%s, %v", small.Bytes(), err)
	}
	for _, tt := range []struct{ old, to, field string }{
		{`"seq":2`, `"seq":0`, "seq"},
		{`"seq":2`, `"seq":1`, "prev"},
		{`"decision":"accept"`, `"decision":"yes"`, "decision"},
		{`"event":"commit.done"`, `"event":""`, "event"},
		{`"uid":0`, `"uid":4294967296`, "actor.uid"},
		{`"actor":{`, `"actor":{"x":1,`, "actor.x"},
		{`"actor":{`, `"actor":[],"y":{`, "actor"},
		{`["org:a#b"]`, `[]`, "signers"},
		{`"version":3`, `"version":0`, "version"},
		{`"type":"ron.registry/audit/v1"`, `"type":"x"`, "type"},
	} {
		_, err := ParseAudit([]byte(strings.Replace(string(a.Bytes()), tt.old, tt.to, 1)))
		wantField(t, tt.old+" -> "+tt.to, err, tt.field)
	}
	_, err = newAudit(Audit{Seq: 1, At: FormatTime(noon), Event: "x", Decision: DecisionReject, CorrID: "\xff"})
	if !errors.Is(err, ErrMalformed) {
		t.Errorf("invalid text: %v", err)
	}
	for _, n := range []int{MaxAudit, 5 * MaxAudit} {
		_, err = newAudit(
			Audit{Seq: 1, At: FormatTime(noon), Event: "x", Decision: DecisionReject, CorrID: strings.Repeat("c", n)},
		)
		if !errors.Is(err, ErrHardLimit) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestTimes(t *testing.T) {
	for _, tt := range []struct {
		s  string
		ok bool
	}{
		{"2026-03-01T12:00:00Z", true},
		{"2026-03-01T12:00:00.1Z", true},
		{"2026-03-01T12:00:00.123456789Z", true},
		{"2028-02-29T23:59:59Z", true},
		{"2026-03-01T12:00:00.1234567890Z", false},
		{"2026-03-01T12:00:00.Z", false},
		{"2026-03-01T12:00:00,1Z", false},
		{"2026-03-01T12:00:00z", false},
		{"2026-03-01t12:00:00Z", false},
		{"2026-03-01T12:00:60Z", false},
		{"2026-03-01T24:00:00Z", false},
		{"2026-02-29T12:00:00Z", false},
		{"2026-13-01T12:00:00Z", false},
		{"2026-03-01T1:00:00Z", false},
		{"2026-03-01T12:00:00+00:00", false},
		{"2026-03-01T12:00:00", false},
		{"", false},
	} {
		if _, err := ParseTime(tt.s); (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.s, err)
		}
	}
	if got, err := ParseTime(FormatTime(noon)); err != nil || !got.Equal(noon) {
		t.Errorf("%v, %v", got, err)
	}
}
