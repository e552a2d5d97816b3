package registry

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

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

// Exit codes of the CLI for refusals of the registry, beside those of every verb.
const (
	ExitQuorum    = 20 // too few approvals or cosignatures, or one that does not count
	ExitStale     = 21 // the proposal has ended, or HEAD has moved
	ExitDuplicate = 22 // the key has signed it before
	ExitNotFound  = 23 // no such version, proposal or item
)

// Fault describes an error to every surface: the audit chain and spans write Reason, HTTP answers
// with Status, Reason, Code and Title, and the CLI exits with Exit.
type Fault struct {
	Is     func(error) bool
	Reason string
	Code   string // the reason as HTTP clients of the registry spell it
	Title  string
	Status int  // of HTTP
	Retry  bool // the state of the node or a deadline, not a refusal: the same call may succeed later
	Exit   int  // 0: that of any refusal

	Details func(error) map[string]any // nil: none
	Text    func(error) string         // nil: that of the error
}

// Faults returns the faults of the registry. The first row that matches an error counts.
func Faults() []Fault { return slices.Clone(faults) }

var faults = []Fault{
	{Is: is(record.ErrMalformed), Reason: "malformed", Code: "Malformed", Title: "Malformed request",
		Status: http.StatusBadRequest,
		Details: members(func(e *record.FieldError) map[string]any {
			if e.Field == "" {
				return nil
			}
			return map[string]any{"field": e.Field}
		}),
		Text: text(func(e *record.FieldError) string { return strings.TrimPrefix(e.Field+": "+e.Reason, ": ") })},
	{Is: is(record.ErrHardLimit), Reason: "hard_limit", Code: "HardLimitExceeded", Title: "Beyond a fixed limit",
		Status: http.StatusRequestEntityTooLarge},
	{Is: is(record.ErrChainMismatch), Reason: "chain_mismatch", Code: "ChainMismatch",
		Title: "Does not build on HEAD", Status: http.StatusConflict, Exit: ExitStale},
	{Is: is(record.ErrVersionSkew), Reason: "version_skew", Code: "VersionSkew", Title: "Version out of turn",
		Status: http.StatusConflict, Exit: ExitStale,
		Details: members(func(e *ParentPendingError) map[string]any { return map[string]any{"parent": e.Parent} })},
	{Is: isA[*GenesisApprovalError], Reason: "bad_approval", Code: "BadApproval",
		Title: "Approval of the genesis does not count", Status: http.StatusUnprocessableEntity, Exit: ExitQuorum,
		Details: members(func(e *GenesisApprovalError) map[string]any {
			return map[string]any{"approval": e.Index, "signer_id": e.SignerID}
		})},
	{Is: is(record.ErrInvalidSig), Reason: "invalid_sig", Code: "InvalidSig", Title: "Invalid signature",
		Status: http.StatusUnprocessableEntity, Exit: ExitQuorum},
	{Is: is(record.ErrRevokedKey), Reason: "revoked_key", Code: "RevokedKey", Title: "Key is not active",
		Status: http.StatusUnprocessableEntity, Exit: ExitQuorum,
		Details: members(func(e *record.RevokedKeyError) map[string]any {
			return map[string]any{"signer_id": e.SignerID, "status": e.Status}
		})},
	{Is: is(record.ErrQuorum), Reason: "quorum", Code: "QuorumFailed", Title: "Quorum not reached",
		Status: http.StatusUnprocessableEntity, Exit: ExitQuorum,
		Details: members(func(e *record.QuorumError) map[string]any {
			return map[string]any{"have": e.Have, "need": e.Need}
		})},
	{Is: is(record.ErrClockSkew), Reason: "clock_skew", Code: "ClockSkew", Title: "Clock skew",
		Status: http.StatusUnprocessableEntity},
	{Is: is(ErrNotFound), Reason: "not_found", Code: "NotFound", Title: "Not found",
		Status: http.StatusNotFound, Exit: ExitNotFound},
	{Is: is(ErrExpired), Reason: "expired", Code: "Expired", Title: "Proposal has expired",
		Status: http.StatusGone, Exit: ExitStale},
	{Is: is(ErrPruned), Reason: "pruned", Code: "Pruned", Title: "Version was pruned",
		Status: http.StatusGone, Exit: ExitNotFound},
	{Is: isA[*DuplicateApprovalError], Reason: reasonDuplicate, Code: "DuplicateApproval",
		Title: "Approved before", Status: http.StatusConflict, Exit: ExitDuplicate,
		Details: members(func(e *DuplicateApprovalError) map[string]any {
			return map[string]any{"identical": e.Identical}
		})},
	{Is: isA[*FollowerError], Reason: "follower", Code: "Follower", Title: "This node follows another",
		Status:  http.StatusConflict,
		Details: members(func(e *FollowerError) map[string]any { return map[string]any{"hub": e.Hub} })},
	{Is: is(ErrConflict), Reason: "conflict", Code: "Conflict", Title: "Not in this state",
		Status: http.StatusConflict, Exit: ExitStale,
		Details: members(func(e *StateError) map[string]any { return map[string]any{"state": e.State} })},
	{Is: is(ErrForbidden), Reason: "forbidden", Code: "Forbidden", Title: "Not allowed",
		Status: http.StatusForbidden, Text: text(func(e *ForbiddenError) string { return e.Reason })},
	{Is: is(ErrSource), Reason: "bad_source", Code: "BadSource", Title: "Nothing to catch up from",
		Status: http.StatusUnprocessableEntity},
	{Is: is(ErrRange), Reason: "malformed", Code: "Malformed", Title: "Range not served",
		Status: http.StatusBadRequest},
	{Is: isA[*PendingLimitError], Reason: "pending_limit", Code: "PendingLimit", Title: "Too many proposals",
		Status: http.StatusConflict,
		Details: members(func(e *PendingLimitError) map[string]any {
			return map[string]any{"limit": e.Limit, "max": e.Max}
		})},
	{Is: isA[*NotReadyError], Reason: "degraded", Code: "NotReady", Title: "Not ready",
		Status: http.StatusServiceUnavailable, Retry: true,
		Details: members(func(e *NotReadyError) map[string]any { return map[string]any{"cause": e.Cause} })},
	{Is: isA[*TimeoutError], Reason: "timeout", Code: "Timeout", Title: "Deadline passed",
		Status: http.StatusGatewayTimeout, Retry: true,
		Details: func(error) map[string]any { return map[string]any{"outcome": "none"} }},
}

func is(target error) func(error) bool { return func(err error) bool { return errors.Is(err, target) } }

func isA[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// members reads the details of an error of type T.
func members[T error](read func(T) map[string]any) func(error) map[string]any {
	return func(err error) map[string]any {
		if e, ok := errors.AsType[T](err); ok {
			return read(e)
		}
		return nil
	}
}

// text reads the text of an error of type T without the words that are in its title and reason.
func text[T error](read func(T) string) func(error) string {
	return func(err error) string {
		if e, ok := errors.AsType[T](err); ok {
			return read(e)
		}
		return err.Error()
	}
}

const reasonDuplicate = "duplicate_approval"

// reasonOf returns the reason of a refusal, as the audit chain keeps it. It returns "" if err is
// not a refusal but the state of the node or the deadline of the caller.
func reasonOf(err error) string {
	i := slices.IndexFunc(faults, func(f Fault) bool { return f.Is(err) })
	if i < 0 || faults[i].Retry {
		return ""
	}
	return faults[i].Reason
}
