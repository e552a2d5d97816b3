package registry

import (
	"errors"
	"fmt"

	"ronbox/engines/registry/record"
)

// What a caller can meet beside the record's own faults (*record.FieldError, record.ErrInvalidSig, …), flow.ErrBusy,
// flow.ErrClosed, flow.ErrCanceled, flow.ErrUnknown, the causes of a context and the store's errors.
var (
	ErrNotFound = errors.New("not found")
	// ErrExpired: the proposal's time is over; final.
	ErrExpired = errors.New("proposal has expired")
	// ErrPruned: the version was there and its bytes were removed by retention; final.
	ErrPruned = errors.New("version is pruned")
	// ErrConflict: the proposal is in a state that does not allow the call; final.
	ErrConflict = errors.New("conflict")
	// ErrForbidden: the caller is known and may not do this.
	ErrForbidden = errors.New("forbidden")
	// ErrRange: the asked range of versions is empty, reversed or too wide.
	ErrRange = errors.New("range of versions is not served")
)

// Causes of NotReadyError.
const (
	CauseNoGenesis    = "no_genesis"
	CauseChainError   = "chain_error"
	CauseClockBehind  = "clock_behind"
	CauseLoading      = "loading"
	CausePipelineDown = "pipeline_down"
	CauseRollback     = "rollback_detected"
)

// NotReadyError says that the registry takes no writes now, and why. The same call may succeed later.
type NotReadyError struct{ Cause, Detail string }

func (e *NotReadyError) Error() string {
	if e.Detail == "" {
		return "registry is not ready: " + e.Cause
	}
	return "registry is not ready: " + e.Cause + ": " + e.Detail
}

// DuplicateApprovalError says that the key has approved this proposal before. Identical tells a retry, whose signature
// is the recorded one, from a second signature.
type DuplicateApprovalError struct {
	SignerID  string
	Identical bool
}

func (e *DuplicateApprovalError) Error() string {
	return fmt.Sprintf("signer %s has approved this proposal before", e.SignerID)
}

// ForbiddenError says why a known caller may not do this. It is ErrForbidden.
type ForbiddenError struct{ Reason string }

func (e *ForbiddenError) Error() string { return e.Reason }

// Is makes it ErrForbidden.
func (e *ForbiddenError) Is(target error) bool { return target == ErrForbidden }

// ParentPendingError says that a proposal stands on another one that is not a version yet: Parent is committed first. It is
// record.ErrVersionSkew.
type ParentPendingError struct{ ID, Parent string }

func (e *ParentPendingError) Error() string {
	return fmt.Sprintf("proposal %s stands on %s, which is committed first", e.ID, e.Parent)
}

// Is makes it record.ErrVersionSkew.
func (e *ParentPendingError) Is(target error) bool { return target == record.ErrVersionSkew }

// GenesisApprovalError says which approval of a genesis is wrong, by its place in the list from 0, and why. Err is
// record.ErrInvalidSig, or a *DuplicateApprovalError.
type GenesisApprovalError struct {
	Index    int
	SignerID string
	Reason   string
	Err      error
}

func (e *GenesisApprovalError) Error() string {
	return fmt.Sprintf("approval %d, of %.128s: %s", e.Index+1, e.SignerID, e.Reason)
}

func (e *GenesisApprovalError) Unwrap() error { return e.Err }

// StateError says that the proposal has left pending for State. It is ErrConflict.
type StateError struct{ ID, State string }

func (e *StateError) Error() string { return fmt.Sprintf("proposal %s is %s", e.ID, e.State) }

// Is makes it ErrConflict.
func (e *StateError) Is(target error) bool { return target == ErrConflict }

// PendingLimitError says that too much waits for signatures already. Only a proposal that is committed, withdrawn or expired
// makes room: to send the same again changes nothing.
type PendingLimitError struct {
	Limit string // "proposals.max_pending", "proposals.max_per_cap" or "proposals.max_bytes"
	Max   int64
}

func (e *PendingLimitError) Error() string {
	return fmt.Sprintf("pending proposals are at the limit registry.%s = %d: commit or withdraw one, or wait until one expires", e.Limit, e.Max)
}

// TimeoutError says that the deadline passed before the pipeline began: nothing was written.
type TimeoutError struct{ Op string }

func (e *TimeoutError) Error() string {
	return e.Op + ": deadline passed while queued, nothing was written"
}

// GenesisMismatchError says that the configuration pins another log than the stored one: another payload_b3 of genesis or
// another origin. The node must not start on it.
type GenesisMismatchError struct{ Key, Want, Has string }

func (e *GenesisMismatchError) Error() string {
	return fmt.Sprintf("%s = %q, but the log in the file has %q", e.Key, e.Want, e.Has)
}

const reasonDuplicate = "duplicate_approval"

// reasonOf is the word under which a refusal is chained; "" for what is no refusal: the node's own state or the caller's deadline.
func reasonOf(err error) string {
	var duplicate *DuplicateApprovalError
	var pending *PendingLimitError
	switch {
	case errors.As(err, &duplicate):
		return reasonDuplicate
	case errors.As(err, &pending):
		return "pending_limit"
	}
	for _, row := range []struct {
		err    error
		reason string
	}{
		{record.ErrRevokedKey, "revoked_key"}, {record.ErrQuorum, "quorum"}, {record.ErrInvalidSig, "invalid_sig"}, {record.ErrClockSkew, "clock_skew"}, {record.ErrVersionSkew, "version_skew"},
		{record.ErrChainMismatch, "chain_mismatch"}, {record.ErrHardLimit, "hard_limit"}, {record.ErrMalformed, "malformed"},
		{ErrExpired, "expired"}, {ErrNotFound, "not_found"}, {ErrConflict, "conflict"}, {ErrForbidden, "forbidden"},
	} {
		if errors.Is(err, row.err) {
			return row.reason
		}
	}
	return ""
}
