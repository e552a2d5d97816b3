package record

import (
	"slices"
	"strings"

	"ronbox/appliance/b3"
)

// Quorum gives the approvals that count for a payload under the set in force, sorted by signer: valid signatures by distinct public keys
// that are active, or retired with grace up to version. Fewer than need is a *QuorumError, or a *RevokedKeyError when the keys that have
// lost their status would have made it up. Approvals that do not count change nothing. A need below 1 is 1: nobody is no quorum.
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
		slices.SortFunc(counted, func(a, b Approval) int { return strings.Compare(a.SignerID, b.SignerID) })
		return counted, nil
	case len(counted)+len(lost) >= need:
		return nil, &RevokedKeyError{SignerID: lost[0].ID, Status: lost[0].Status}
	}
	return nil, &QuorumError{Have: len(counted), Need: need}
}

// Counts says whether the signer's approvals count for a version committed under its set.
func (s Signer) Counts(version uint64) bool {
	return s.Status == StatusActive || s.Status == StatusRetired && version <= s.GraceUntilVersion
}
