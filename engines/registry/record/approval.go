package record

import (
	"crypto/ed25519"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/sig"
)

// signingContext is the prefix of the signed message, so that the signature fits no other protocol.
const signingContext = "ron:svc-registry:v1\n"

// maxApproval is the most bytes of an approval as sent.
const maxApproval = 4 << 10

// Approval is the signature of a signer over a payload.
type Approval struct {
	SignerID   string `json:"signer_id"`
	Algo       string `json:"algo"`
	Sig        string `json:"sig" format:"sig" doc:"strict standard base64, 64 bytes"`
	SignedAt   string `json:"signed_at" format:"time"`            // advisory: not signed
	ReceivedAt string `json:"received_at,omitzero" format:"time"` // filled in by the node, "" before
}

// SigningBytes returns the message that an approval signs: 87 bytes, the context and the text of
// the hash of the payload.
func SigningBytes(payloadB3 b3.Digest) []byte {
	return append([]byte(signingContext), payloadB3.String()...)
}

// ParseApproval parses an approval in any spelling. It returns a *FieldError if the form is wrong.
// It does not verify the signature.
func ParseApproval(raw []byte) (Approval, error) {
	canon, err := bounded(raw, "approval", maxApproval)
	if err != nil {
		return Approval{}, err
	}
	var a Approval
	f := approvalForm.read("", canon, &a)
	f.complete()
	a.checkForm(f, "")
	return a, f.done()
}

var approvalForm = formOf[Approval]()

// checkForm checks the form of the approval at a path, which ends in a dot or is "".
func (a Approval) checkForm(f *fields, at string) {
	if !validSignerID(a.SignerID) {
		f.fail(at+"signer_id", "must be org:<realm>#<key>")
	}
	if a.Algo != AlgoEd25519 {
		f.fail(at+"algo", "must be %s", AlgoEd25519)
	}
	if _, ok := decode64(a.Sig, ed25519.SignatureSize); !ok {
		f.fail(at+"sig", "must be standard base64 of 64 bytes")
	}
}

// Bytes returns the canonical approval.
func (a Approval) Bytes() []byte { return encode(a) }

// VerifyApproval verifies the signature with the key of signer, whatever its status. It returns
// ErrInvalidSig if it does not verify.
func VerifyApproval(a Approval, signer Signer, payloadB3 b3.Digest) error {
	if a.SignerID != signer.ID || a.Algo != AlgoEd25519 || signer.Algo != AlgoEd25519 {
		return fmt.Errorf("%w: it is by %s with %s", ErrInvalidSig, a.SignerID, a.Algo)
	}
	key := signer.Key()
	if key == nil {
		return fmt.Errorf("%w: the key of %s is not readable", ErrInvalidSig, signer.ID)
	}
	if signer.sound != signer.PublicKey {
		if err := sig.CheckKey(key); err != nil {
			return fmt.Errorf("%w: the key of %s %w", ErrInvalidSig, signer.ID, err)
		}
	}
	signature, ok := decode64(a.Sig, ed25519.SignatureSize)
	if !ok || !ed25519.Verify(key, SigningBytes(payloadB3), signature) {
		return fmt.Errorf("%w: it is not %s's over %s", ErrInvalidSig, signer.ID, payloadB3)
	}
	return nil
}

// CheckClock returns ErrClockSkew if signed_at is more than skew after now or before the created_at
// of the payload, and a *FieldError if a time cannot be parsed.
func (a Approval) CheckClock(createdAt string, now time.Time, skew time.Duration) error {
	signed, err := ParseTime(a.SignedAt)
	if err != nil {
		return fieldf("signed_at", "%v", err)
	}
	created, err := ParseTime(createdAt)
	if err != nil {
		return fieldf("created_at", "%v", err)
	}
	switch {
	case signed.After(now.Add(skew)):
		return fmt.Errorf("%w: %s ahead of the node's clock", ErrClockSkew, signed.Sub(now))
	case signed.Before(created.Add(-skew)):
		return fmt.Errorf("%w: %s before the payload was created", ErrClockSkew, created.Sub(signed))
	}
	return nil
}

// Authorize returns the approvals by which p may follow the set in force, sorted by signer. An
// update needs the threshold, a supersede the threshold_gov, and a genesis every key of its set. A
// change of signers needs threshold_gov of the set in force, the new threshold_gov of the active
// keys of the new set, and each added key. One approval may count for all three; that of a key that
// p revokes counts for none. Errors are those of Quorum.
func Authorize(p *Payload, inForce *SignerSet, approvals []Approval) ([]Approval, error) {
	switch p.Kind {
	case KindGenesis:
		return Quorum(p.SignerSet, p.Version, approvals, p.B3(), p.SignerSet.Active())
	case KindSigners:
		return authorizeSigners(p, inForce, approvals)
	case KindSupersede:
		return Quorum(inForce, p.Version, approvals, p.B3(), inForce.ThresholdGov)
	}
	return Quorum(inForce, p.Version, approvals, p.B3(), inForce.Threshold)
}

func authorizeSigners(p *Payload, inForce *SignerSet, approvals []Approval) ([]Approval, error) {
	standing := *inForce // less what p revokes
	standing.Signers = slices.Clone(inForce.Signers)
	for i, s := range standing.Signers {
		standing.Signers[i], _ = p.Approver(inForce, s.ID)
	}
	counted, err := Quorum(&standing, p.Version, approvals, p.B3(), inForce.ThresholdGov)
	if err != nil {
		return nil, err
	}
	const noGrace = math.MaxUint64 // a version at which no retired key counts
	next, err := Quorum(p.SignerSet, noGrace, approvals, p.B3(), p.SignerSet.ThresholdGov)
	if err != nil {
		return nil, fmt.Errorf("of the new signers: %w", err)
	}
	admitted, proven := 0, 0
	for _, s := range p.SignerSet.Signers {
		if _, known := inForce.Find(s.ID); known {
			continue
		}
		admitted++
		if i := slices.IndexFunc(next, func(a Approval) bool { return a.SignerID == s.ID }); i >= 0 {
			proven, counted = proven+1, append(counted, next[i])
		}
	}
	if proven < admitted {
		return nil, fmt.Errorf("of the keys that come in: %w", &QuorumError{Have: proven, Need: admitted})
	}
	slices.SortFunc(counted, bySigner)
	return counted, nil
}

func bySigner(a, b Approval) int { return strings.Compare(a.SignerID, b.SignerID) }

// Approver returns the entry of a signer that may approve p under the set in force: an entry of
// that set, marked revoked if p revokes it, or an entry that p adds.
func (p *Payload) Approver(inForce *SignerSet, id string) (Signer, bool) {
	signer, known := inForce.Find(id)
	if next, named := p.SignerSet.Find(id); named && (!known || next.Status == StatusRevoked) {
		return next, true
	}
	return signer, known
}

// Quorum returns the approvals that count for a payload under the set in force, sorted by signer:
// valid signatures by distinct public keys that are active, or retired with grace up to version.
// Other approvals are ignored. Fewer than need is a *QuorumError, or a *RevokedKeyError if keys
// that are no longer active would have been enough. A need below 1 counts as 1, because no approval
// is no quorum.
func Quorum(set *SignerSet, version uint64, approvals []Approval, payloadB3 b3.Digest, need int) ([]Approval, error) {
	need = max(need, 1)
	var counted []Approval
	var lost []Signer
	seen := map[string]bool{}
	for _, a := range approvals {
		signer, known := set.Find(a.SignerID)
		if !known || seen[signer.PublicKey] || VerifyApproval(a, signer, payloadB3) != nil {
			continue
		}
		seen[signer.PublicKey] = true
		if signer.Counts(version) {
			counted = append(counted, a)
		} else {
			lost = append(lost, signer)
		}
	}
	switch {
	case len(counted) >= need:
		slices.SortFunc(counted, bySigner)
		return counted, nil
	case len(counted)+len(lost) >= need:
		return nil, &RevokedKeyError{SignerID: lost[0].ID, Status: lost[0].Status}
	}
	return nil, &QuorumError{Have: len(counted), Need: need}
}

// Counts reports whether approvals of the signer count for a version committed under its set.
func (s Signer) Counts(version uint64) bool {
	return s.Status == StatusActive || s.Status == StatusRetired && version <= s.GraceUntilVersion
}
