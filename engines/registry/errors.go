package registry

import (
	"errors"
	"fmt"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
)

// GenesisMismatchError is returned when the configuration names another genesis or another origin
// than the stored log has. The node must not start on it.
type GenesisMismatchError struct{ Key, Want, Has string }

func (e *GenesisMismatchError) Error() string {
	return fmt.Sprintf("%s = %q, but the log in the file has %q", e.Key, e.Want, e.Has)
}

// FollowMismatchError is returned when the configuration and the file disagree about the node that
// is followed. The node must not start on the file.
type FollowMismatchError struct{ Reason string }

func (e *FollowMismatchError) Error() string { return "registry.follow: " + e.Reason }

// reasonDuplicate is the reason of a DuplicateApprovalError.
const reasonDuplicate = "duplicate_approval"

// reasons has the reasons of refusals, for the audit chain, metrics and spans. The first row that
// matches an error counts. An error without a row is no refusal but the state of the node or the
// deadline of the caller.
var reasons = []struct {
	is     func(error) bool
	reason string
}{
	{is(record.ErrMalformed), "malformed"},
	{is(record.ErrHardLimit), "hard_limit"},
	{is(record.ErrChainMismatch), "chain_mismatch"},
	{is(record.ErrVersionSkew), "version_skew"},
	{isA[*document.GenesisApprovalError], "bad_approval"},
	{is(record.ErrInvalidSig), "invalid_sig"},
	{is(record.ErrRevokedKey), "revoked_key"},
	{is(record.ErrQuorum), "quorum"},
	{is(record.ErrClockSkew), "clock_skew"},
	{is(document.ErrNotFound), "not_found"},
	{is(document.ErrExpired), "expired"},
	{is(document.ErrPruned), "pruned"},
	{isA[*document.DuplicateApprovalError], reasonDuplicate},
	{isA[*document.FollowerError], "follower"},
	{is(document.ErrConflict), "conflict"},
	{is(document.ErrForbidden), "forbidden"},
	{is(document.ErrSource), "bad_source"},
	{is(document.ErrRange), "malformed"},
	{isA[*document.PendingLimitError], "pending_limit"},
}

// reasonOf returns the reason of a refusal, as the audit chain keeps it, or "".
func reasonOf(err error) string {
	for _, row := range reasons {
		if row.is(err) {
			return row.reason
		}
	}
	return ""
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func isA[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}
