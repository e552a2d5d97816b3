package rewarder

import (
	"errors"
	"fmt"

	"ronbox/engines/rewarder/record"
)

// What a caller can meet, beside flow.ErrBusy (a queue is full, nothing happened), flow.ErrUnknown, the store's errors and the cause of its
// context.
var (
	ErrNotFound = errors.New("rewarder: not found")                  // no such policy, upload, input or epoch
	ErrDraining = errors.New("rewarder: draining")                   // the node is on its way down; nothing was begun
	ErrLate     = errors.New("rewarder: the deadline has passed")    // that the caller gave; nothing was begun
	ErrNoLedger = errors.New("rewarder: ledger")                     // it did not answer; nothing was begun, and the same call may succeed later
	errGone     = errors.New("rewarder: the run is not what it was") // nothing is left to do for it
)

// FieldError names the member of a request that cannot be taken, and why. It is a fault of the caller.
type FieldError = record.FieldError

// ConflictError says that something is not what was given or wanted: the run of an epoch, the bytes of an id, the next part of an upload, the
// state of a run.
type ConflictError struct{ What, Has, Given string }

func (e *ConflictError) Error() string {
	return fmt.Sprintf("rewarder: %s is %s, not %s", e.What, e.Has, e.Given)
}

// QuotaError is returned when an upload would exceed a quota of rewarder.inputs. Nothing was written.
type QuotaError struct {
	Key         string // of the configuration
	Used, Limit uint64 // bytes
}

func (e *QuotaError) Error() string {
	return fmt.Sprintf("rewarder: uploads that no run uses take %d bytes, and %s allows %d", e.Used, e.Key, e.Limit)
}

// QuarantineError says that the run of the epoch is quarantined.
type QuarantineError struct{ Run Run }

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("rewarder: the run is quarantined (%s): %s", e.Run.Quarantine.Kind, e.Run.Quarantine.Reason)
}
