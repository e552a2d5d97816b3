package store

import (
	"errors"
	"fmt"

	"ronbox/appliance/flow"
)

// What callers branch on. ErrBusy, ErrClosed and ErrUnknown are flow's own values.
var (
	ErrBusy     = flow.ErrBusy    // TryCommit: the lane is full, nothing happened
	ErrClosed   = flow.ErrClosed  // the store is shutting down, nothing happened
	ErrUnknown  = flow.ErrUnknown // the committer had the command when the caller stopped waiting: ask again with the same key
	ErrTimeout  = errors.New("store: deadline passed before the command was taken")
	ErrFull     = errors.New("store: no room on the disk or below max_bytes")
	ErrPoisoned = errors.New("store: failed, the process must end")
	ErrDied     = errors.New("store: the committer died of a bug")
	ErrLocked   = errors.New("store: file is in use")
	ErrCorrupt  = errors.New("store: file is damaged")
	ErrRestored = errors.New("store: restored, not yet accepted")
	ErrSchema   = errors.New("store: another release wrote it")
	ErrInternal = errors.New("store: command failed of a bug")
	ErrNetwork  = errors.New("store: file is on a network file system")
	ErrAmnesia  = errors.New("store: amnesia: nothing is written to a disk")
)

// PoisonError is what every call gets once the store is poisoned. It is ErrPoisoned; it is ErrUnknown too for a command the committer
// had in hand, whose effect may or may not be found after the restart, and ErrDied where a bug and not the disk was the cause.
type PoisonError struct {
	Cause   error
	Unknown bool // false: this call has written nothing
	Bug     bool
}

func (e *PoisonError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("%v (outcome unknown): %v", ErrPoisoned, e.Cause)
	}
	return fmt.Sprintf("%v: %v", ErrPoisoned, e.Cause)
}

// Is places the error among the sentinels.
func (e *PoisonError) Is(target error) bool {
	return target == ErrPoisoned || target == ErrUnknown && e.Unknown || target == ErrDied && e.Bug
}

// Unwrap gives the cause.
func (e *PoisonError) Unwrap() error { return e.Cause }

// LockedError says who has the file. It is ErrLocked.
type LockedError struct {
	Path    string
	PID     int    // 0: not known
	Command string // of that process
}

func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%v: %s is held by another process; stop it, or reach a running node over its socket", ErrLocked, e.Path)
	}
	return fmt.Sprintf("%v: %s is held by process %d (%s); a running node is reached over its socket", ErrLocked, e.Path, e.PID, e.Command)
}

// Is says ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// RowError says which row of a table does not decode. It is ErrCorrupt.
type RowError struct {
	Bucket string
	Key    []byte
	Cause  error
}

func (e *RowError) Error() string {
	return fmt.Sprintf("%v: bucket %s, key %x: %v", ErrCorrupt, e.Bucket, e.Key, e.Cause)
}

// Is says ErrCorrupt.
func (e *RowError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap gives the cause.
func (e *RowError) Unwrap() error { return e.Cause }

// CommandError is a command's own bug: a panic, a bucket of another engine, a key or value out of bounds. It is ErrInternal.
type CommandError struct {
	Kind  string
	Cause any    // what was recovered
	Stack []byte // of the panic
}

func (e *CommandError) Error() string { return fmt.Sprintf("%v: %s: %v", ErrInternal, e.Kind, e.Cause) }

// Is says ErrInternal.
func (e *CommandError) Is(target error) bool { return target == ErrInternal }
