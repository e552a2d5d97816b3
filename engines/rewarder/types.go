package rewarder

import (
	"errors"
	"fmt"

	"ronbox/engines"
	"ronbox/engines/rewarder/document"
	"ronbox/engines/rewarder/record"
)

// DefaultTenant is the tenant of socket peers and of tokens without a tenant.
const DefaultTenant = "default"

// Call identifies the caller, its tenant and the correlation id of a call.
type Call struct {
	By     engines.Actor
	Tenant string
	CorrID string
}

// Documents, which a client reads too.
type (
	State          = document.State
	Quarantine     = document.Quarantine
	Policy         = document.Policy
	OpenInput      = document.OpenInput
	Upload         = document.Upload
	UploadInfo     = document.UploadInfo
	UploadPage     = document.UploadPage
	Input          = document.Input
	ComputeRequest = document.ComputeRequest
	Run            = document.Run
	EpochPage      = document.EpochPage
	AllocationPage = document.AllocationPage
	RewardProof    = document.RewardProof
	ProofLeaf      = document.ProofLeaf
	Intent         = document.Intent
	Parked         = document.Parked
	ParkedPage     = document.ParkedPage
	Settlement     = document.Settlement
	RunFile        = document.RunFile
	RunFiles       = document.RunFiles
	PolicyInfo     = document.PolicyInfo
	PolicyPage     = document.PolicyPage
)

// Words of documents.
const (
	Accepted        = document.Accepted
	Sealed          = document.Sealed
	Settling        = document.Settling
	Settled         = document.Settled
	Quarantined     = document.Quarantined
	Failed          = document.Failed
	KindInvariant   = document.KindInvariant
	KindEgress      = document.KindEgress
	UploadOpen      = document.UploadOpen
	UploadSealed    = document.UploadSealed
	UploadUsed      = document.UploadUsed
	UploadDropping  = document.UploadDropping
	UploadCorrupt   = document.UploadCorrupt
	IntentPending   = document.IntentPending
	IntentAccepted  = document.IntentAccepted
	IntentDup       = document.IntentDup
	IntentParked    = document.IntentParked
	ArtifactPending = document.ArtifactPending
	ArtifactDone    = document.ArtifactDone
	ArtifactFailed  = document.ArtifactFailed
	ArtifactOff     = document.ArtifactOff
	MaxPage         = document.MaxPage
)

// markOf identifies the state of a run that followers can see.
func markOf(run *Run) string {
	return fmt.Sprint(run.Attempt, "-", run.State, "-", run.Acked, "-", run.Parked, "-", run.Artifact)
}

// Errors of calls. Calls also return flow.ErrBusy (a queue is full, nothing happened),
// flow.ErrUnknown, errors of the store, and the cause of the context.
var (
	// ErrNotFound is returned when a policy, upload, input or epoch does not exist.
	ErrNotFound = errors.New("rewarder: not found")
	// ErrDraining is returned when the node is shutting down. Nothing was begun.
	ErrDraining = errors.New("rewarder: draining")
	// ErrLate is returned when the deadline of the caller has passed. Nothing was begun.
	ErrLate = errors.New("rewarder: the deadline has passed")
	// ErrNoLedger is returned when the ledger does not answer. Nothing was begun; a retry may
	// succeed.
	ErrNoLedger = errors.New("rewarder: ledger")

	// errGone is returned when a run has changed in the meantime. Nothing is left to do for it.
	errGone = errors.New("rewarder: the run has changed")
)

// FieldError names an invalid member of a request and the reason. The caller is at fault.
type FieldError = record.FieldError

// ConflictError is returned when existing data differs from the request: the run of an epoch, the
// bytes of an id, the next part of an upload, or the state of a run.
type ConflictError struct{ What, Has, Given string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("rewarder: %s is %s, not %s", e.What, e.Has, e.Given)
}

// QuotaError is returned when an upload would exceed a quota of rewarder.inputs. Nothing was
// written.
type QuotaError struct {
	Key         string // configuration key of the quota
	Used, Limit uint64 // bytes
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("rewarder: uploads that no run uses take %d bytes, and %s allows %d", e.Used, e.Key, e.Limit)
}

// QuarantineError is returned when the run of the epoch is quarantined.
type QuarantineError struct{ Run Run }

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("rewarder: the run is quarantined (%s): %s", e.Run.Quarantine.Kind, e.Run.Quarantine.Reason)
}
