package document

import (
	"errors"

	"ronbox/engines/registry/record"
)

// ReasonDuplicate is the reason of a DuplicateApprovalError.
const ReasonDuplicate = "duplicate_approval"

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
	{isA[*GenesisApprovalError], "bad_approval"},
	{is(record.ErrInvalidSig), "invalid_sig"},
	{is(record.ErrRevokedKey), "revoked_key"},
	{is(record.ErrQuorum), "quorum"},
	{is(record.ErrClockSkew), "clock_skew"},
	{is(ErrNotFound), "not_found"},
	{is(ErrExpired), "expired"},
	{is(ErrPruned), "pruned"},
	{isA[*DuplicateApprovalError], ReasonDuplicate},
	{isA[*FollowerError], "follower"},
	{is(ErrConflict), "conflict"},
	{is(ErrForbidden), "forbidden"},
	{is(ErrSource), "bad_source"},
	{is(ErrRange), "malformed"},
	{isA[*PendingLimitError], "pending_limit"},
}

// Reason returns the reason of a refusal, as the audit chain keeps it, or "".
func Reason(err error) string {
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
