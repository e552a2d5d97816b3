package document

import (
	"errors"
	"fmt"

	"ronbox/engines/registry/record"
)

// Errors of the engine, beside those of package record, flow.ErrBusy, flow.ErrClosed,
// flow.ErrCanceled, flow.ErrUnknown, the causes of a context and the errors of the store.
var (
	ErrNotFound = errors.New("not found")
	// ErrExpired is returned when the time of a proposal is over. It is final.
	ErrExpired = errors.New("proposal has expired")
	// ErrPruned is returned when retention has removed the version. It is final.
	ErrPruned = errors.New("version is pruned")
	// ErrConflict is returned when the state of a proposal or of the log does not allow the call.
	// It is final.
	ErrConflict = errors.New("conflict")
	// ErrForbidden is returned when the caller is known and may not make the call.
	ErrForbidden = errors.New("forbidden")
	// ErrRange is returned when the range of versions is empty, reversed or too wide.
	ErrRange = errors.New("range of versions is not served")
	// ErrSource is returned when the source of a catch-up is not a sound copy of this log.
	ErrSource = errors.New("not a sound copy of this log")
)

// Causes of NotReadyError.
const (
	CauseNoGenesis    = "no_genesis"
	CauseChainError   = "chain_error"
	CauseLoading      = "loading"
	CausePipelineDown = "pipeline_down"
	CauseRollback     = "rollback_detected"
	CauseUpdatesOff   = "updates_off"
)

// NotReadyError is returned when the registry does not accept writes now. The same call may
// succeed later.
type NotReadyError struct{ Cause, Detail string }

func (e *NotReadyError) Error() string {
	if e.Detail == "" {
		return "registry is not ready: " + e.Cause
	}
	return "registry is not ready: " + e.Cause + ": " + e.Detail
}

// DuplicateApprovalError is returned when the key has approved the proposal before. Identical
// reports whether the signature is the recorded one, as it is in a retry.
type DuplicateApprovalError struct {
	SignerID  string
	Identical bool
}

func (e *DuplicateApprovalError) Error() string {
	return fmt.Sprintf("signer %s has approved this proposal before", e.SignerID)
}

// ForbiddenError is an ErrForbidden with its reason.
type ForbiddenError struct{ Reason string }

func (e *ForbiddenError) Error() string { return e.Reason }

// Is reports whether target is ErrForbidden.
func (e *ForbiddenError) Is(target error) bool { return target == ErrForbidden }

// ParentPendingError is returned when a proposal builds on a proposal that is not committed yet.
// The caller must commit Parent first. It is record.ErrVersionSkew.
type ParentPendingError struct{ ID, Parent string }

func (e *ParentPendingError) Error() string {
	return fmt.Sprintf("proposal %s is based on %s, which must be committed first", e.ID, e.Parent)
}

// Is reports whether target is record.ErrVersionSkew.
func (e *ParentPendingError) Is(target error) bool { return target == record.ErrVersionSkew }

// GenesisApprovalError is returned when an approval of a genesis is invalid. Index is its place in
// the list, from 0. Err is record.ErrInvalidSig or a *DuplicateApprovalError.
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

// StateError is returned when a proposal has already ended in State. It is ErrConflict.
type StateError struct{ ID, State string }

func (e *StateError) Error() string { return fmt.Sprintf("proposal %s is %s", e.ID, e.State) }

// Is reports whether target is ErrConflict.
func (e *StateError) Is(target error) bool { return target == ErrConflict }

// PendingLimitError is returned when a limit of pending proposals is reached. A retry fails until
// a proposal is committed, withdrawn or expires.
type PendingLimitError struct {
	Limit string // "proposals.max_pending", "proposals.max_per_cap" or "proposals.max_bytes"
	Max   int64
}

func (e *PendingLimitError) Error() string {
	return fmt.Sprintf(
		"pending proposals are at the limit registry.%s = %d: commit or withdraw one, or wait until one expires",
		e.Limit,
		e.Max,
	)
}

// TimeoutError is returned when the deadline passed before the pipeline began. No row was written.
type TimeoutError struct{ Op string }

func (e *TimeoutError) Error() string {
	return e.Op + ": deadline passed while queued, nothing was written"
}

// FollowerError is returned for a write to a node that follows another. Hub is the URL of that
// node.
type FollowerError struct{ Hub string }

func (e *FollowerError) Error() string {
	return "this node follows the registry of " + e.Hub + " and takes no versions: send the request there"
}
