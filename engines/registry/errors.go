package registry

import (
	"errors"
	"fmt"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
)

// Errors of the engine, beside those of package record, flow.ErrBusy, flow.ErrClosed,
// flow.ErrCanceled, flow.ErrUnknown, the causes of a context and the errors of the store.
var (
	ErrNotFound  = document.ErrNotFound
	ErrExpired   = document.ErrExpired
	ErrPruned    = document.ErrPruned
	ErrConflict  = document.ErrConflict
	ErrForbidden = document.ErrForbidden
	ErrRange     = document.ErrRange
)

// Causes of NotReadyError.
const (
	CauseNoGenesis    = document.CauseNoGenesis
	CauseChainError   = document.CauseChainError
	CauseLoading      = document.CauseLoading
	CausePipelineDown = document.CausePipelineDown
	CauseRollback     = document.CauseRollback
	CauseUpdatesOff   = document.CauseUpdatesOff
)

// Errors that carry details.
type (
	NotReadyError          = document.NotReadyError
	DuplicateApprovalError = document.DuplicateApprovalError
	ForbiddenError         = document.ForbiddenError
	ParentPendingError     = document.ParentPendingError
	GenesisApprovalError   = document.GenesisApprovalError
	StateError             = document.StateError
	PendingLimitError      = document.PendingLimitError
	TimeoutError           = document.TimeoutError
	FollowerError          = document.FollowerError
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
	{isA[*GenesisApprovalError], "bad_approval"},
	{is(record.ErrInvalidSig), "invalid_sig"},
	{is(record.ErrRevokedKey), "revoked_key"},
	{is(record.ErrQuorum), "quorum"},
	{is(record.ErrClockSkew), "clock_skew"},
	{is(ErrNotFound), "not_found"},
	{is(ErrExpired), "expired"},
	{is(ErrPruned), "pruned"},
	{isA[*DuplicateApprovalError], reasonDuplicate},
	{isA[*FollowerError], "follower"},
	{is(ErrConflict), "conflict"},
	{is(ErrForbidden), "forbidden"},
	{is(ErrSource), "bad_source"},
	{is(ErrRange), "malformed"},
	{isA[*PendingLimitError], "pending_limit"},
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
