package record

import (
	"crypto/ed25519"
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/sig"
)

// signingContext opens what an approval signs, so that its signature fits no other protocol.
const signingContext = "ron:svc-registry:v1\n"

// maxApproval is the most bytes of an approval as sent.
const maxApproval = 4 << 10

// Approval is one signer's signature over a payload.
type Approval struct {
	SignerID   string `json:"signer_id"`
	Algo       string `json:"algo"`
	Sig        string `json:"sig" format:"sig" doc:"strict standard base64, 64 bytes"`
	SignedAt   string `json:"signed_at" format:"time"`            // advisory: not signed
	ReceivedAt string `json:"received_at,omitzero" format:"time"` // filled in by the node, "" before
}

// SigningBytes is the message an approval signs: 87 bytes, the context and the text of the payload's hash.
func SigningBytes(payloadB3 b3.Digest) []byte {
	return append([]byte(signingContext), payloadB3.String()...)
}

// ParseApproval reads an approval in any spelling. A wrong one is a *FieldError; whether the signature holds is not checked here.
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

// checkForm checks the approval at a path that ends in a dot, or is "".
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

// Bytes is the canonical approval.
func (a Approval) Bytes() []byte { return encode(a) }

// VerifyApproval checks the signature with the key of signer, whatever its status. A wrong one is ErrInvalidSig.
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

// CheckClock holds signed_at against the node's clock and the payload's created_at: more than skew ahead of the one or before the other is
// ErrClockSkew. An unreadable time is a *FieldError.
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
