package record

import (
	"errors"
	"slices"
	"testing"

	"ronbox/appliance/b3"
)

// rotation is a change of five signers, of which three must approve: 0 is revoked, 1 retired, 5
// added.
func rotation(t testing.TB, edit func(s *SignerSet)) (*Payload, Base, error) {
	t.Helper()
	set := testSet(t, 2, 5)
	set.ThresholdGov = 3
	_, base := began(t, set, testItem(t, "a", 1))
	next := *base.Signers
	next.Epoch, next.Signers = 2, append(slices.Clone(base.Signers.Signers), testKey(t, 5).Signer(2))
	next.Signers[0].Status = StatusRevoked
	next.Signers[1].Status, next.Signers[1].GraceUntilVersion = StatusRetired, 2+MaxGrace
	edit(&next)
	p, items, err := Complete(Draft{Version: 2, SignerSet: &next}.Bytes(), base, noon)
	if err == nil && (p.Kind != KindSigners || items.Root() != base.Items.Root()) {
		t.Errorf("%s", p.Bytes())
	}
	return p, base, err
}

// Every rule of a change of signers has one set of signatures that breaks it alone.
func TestAuthorizeRotation(t *testing.T) {
	p, base, err := rotation(t, func(*SignerSet) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		doc     string
		by      []byte
		counted int
		want    error
	}{
		{"all that may", []byte{1, 2, 3, 4, 5}, 5, nil},
		{"who is retired still counts among the old", []byte{1, 2, 3, 5}, 4, nil},
		{"who is revoked changes nothing", []byte{0, 2, 3, 4, 5}, 4, nil},
		{"a stranger changes nothing", []byte{2, 3, 4, 5, 6}, 4, nil},
		{"too few of the old", []byte{2, 3, 5}, 0, ErrQuorum},
		{"too few of the old without the revoked", []byte{0, 2, 3, 5}, 0, ErrRevokedKey},
		{"too few of the new without the retired", []byte{1, 2, 3}, 0, ErrRevokedKey},
		{"not the one who comes in", []byte{1, 2, 3, 4}, 0, ErrQuorum},
		{"nobody", nil, 0, ErrQuorum},
	} {
		var sent []Approval
		for _, i := range tt.by {
			sent = append(sent, testKey(t, i).Sign(p.B3(), noon))
		}
		got, err := Authorize(p, base.Signers, sent)
		if !errors.Is(err, tt.want) || len(got) != tt.counted || !slices.IsSortedFunc(got, bySigner) {
			t.Errorf("%s: %d count, %v; want %d, %v", tt.doc, len(got), err, tt.counted, tt.want)
		}
	}
}

// The changes of signers that a version may make.
func TestRotationRules(t *testing.T) {
	for _, tt := range []struct {
		doc, field string
		edit       func(s *SignerSet)
	}{
		{"one comes in retired", "signer_set.signers.5.status", func(s *SignerSet) { s.Signers[5].Status = StatusRetired }},
		{"one comes in revoked", "signer_set.signers.5.status", func(s *SignerSet) { s.Signers[5].Status = StatusRevoked }},
		{"one has been there before it came in", "signer_set.signers.5.since_version", func(s *SignerSet) { s.Signers[5].SinceVersion = 1 }},
		{"nine versions of grace", "signer_set.signers.1.grace_until_version", func(s *SignerSet) { s.Signers[1].GraceUntilVersion++ }},
		{"the same epoch", "signer_set.epoch", func(s *SignerSet) { s.Epoch = 1 }},
		{"more thresholds than keys", "signer_set.threshold_gov", func(s *SignerSet) { s.ThresholdGov = 5 }},
		{"another key", "signer_set.signers", func(s *SignerSet) { s.Signers[2].PublicKey = testKey(t, 9).Public() }},
	} {
		_, _, err := rotation(t, tt.edit)
		wantField(t, tt.doc, err, tt.field)
	}
}

// A supersede names the entry of HEAD and needs the quorum of governance; it survives being read
// again.
func TestSupersede(t *testing.T) {
	set := testSet(t, 1, 3)
	set.ThresholdGov = 2
	_, base := began(t, set, testItem(t, "a", 1))
	base.Hash = b3.Sum([]byte("entry"))
	d := Draft{
		Version: 2, Remove: []string{"a"},
		Supersede: &Supersede{Of: base.Hash, Reason: ReasonOther, Other: "a whim", Note: "of the region"},
	}
	p, _, err := Complete(d.Bytes(), base, noon)
	if err != nil || p.Kind != KindSupersede {
		t.Fatal(p, err)
	}
	again, err := ParsePayload(p.Bytes())
	if err != nil || *again.Supersede != *d.Supersede || again.ContentB3() != p.ContentB3() {
		t.Errorf("%s: %v", p.Bytes(), err)
	}
	one, two := testKey(t, 0).Sign(p.B3(), noon), testKey(t, 1).Sign(p.B3(), noon)
	if _, err := Authorize(p, base.Signers, []Approval{one, one}); !errors.Is(err, ErrQuorum) {
		t.Errorf("by one: %v", err)
	}
	if got, err := Authorize(p, base.Signers, []Approval{two, one}); err != nil || len(got) != 2 {
		t.Errorf("by two: %v", err)
	}
	base.Hash = b3.Sum([]byte("another"))
	if _, err := p.Check(base); !errors.Is(err, ErrChainMismatch) {
		t.Errorf("on another HEAD: %v", err)
	}
}
