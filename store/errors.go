package store

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"ronbox/appliance/flow"
	"ronbox/store/lock"
	"ronbox/store/page"
)

// Errors that callers branch on. ErrBusy, ErrClosed and ErrUnknown are the values of package flow.
var (
	ErrBusy   = flow.ErrBusy   // TryCommit: the lane is full, nothing happened
	ErrClosed = flow.ErrClosed // the store is shutting down, nothing happened
	// the committer had taken the command when the caller stopped waiting: retry with the same key
	ErrUnknown  = flow.ErrUnknown
	ErrTimeout  = errors.New("store: deadline passed before the command was taken")
	ErrFull     = errors.New("store: no room on the disk or below max_bytes")
	ErrPoisoned = errors.New("store: failed, the process must end")
	ErrDied     = errors.New("store: the committer died of a bug")
	ErrLocked   = lock.ErrLocked
	ErrCorrupt  = page.ErrCorrupt
	ErrRestored = errors.New("store: restored, not yet accepted")
	ErrSchema   = errors.New("store: another release wrote it")
	ErrInternal = errors.New("store: command failed of a bug")
	ErrNetwork  = errors.New("store: file is on a network file system")
	ErrAmnesia  = errors.New("store: amnesia: nothing is written to a disk")

	ErrNoDatabase = page.ErrNoDatabase // not a damaged file, but another one; it is ErrCorrupt too
)

// PoisonError is returned by every call once the store is poisoned. It is ErrPoisoned. It is also
// ErrUnknown for a command that the committer had taken, whose writes may or may not be found after
// the restart, and ErrDied if the cause was a bug and not the disk.
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

// Is reports whether target is a sentinel that describes e.
func (e *PoisonError) Is(target error) bool {
	return target == ErrPoisoned || target == ErrUnknown && e.Unknown || target == ErrDied && e.Bug
}

// Unwrap returns the cause.
func (e *PoisonError) Unwrap() error { return e.Cause }

// LockedError names the process that holds the file. It is ErrLocked.
type LockedError = lock.HeldError

// RowError names a row that cannot be decoded. It is ErrCorrupt.
type RowError struct {
	Bucket string
	Key    []byte
	Cause  error
}

func (e *RowError) Error() string {
	return fmt.Sprintf("%v: bucket %s, key %x: %v", ErrCorrupt, e.Bucket, e.Key, e.Cause)
}

// Is reports whether target is ErrCorrupt.
func (e *RowError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the cause.
func (e *RowError) Unwrap() error { return e.Cause }

// CommandError describes a bug of a command: a panic, a bucket of another engine, or a key or value
// out of bounds. It is ErrInternal.
type CommandError struct {
	Kind  string
	Cause any    // the recovered value
	Stack []byte // of the panic
}

func (e *CommandError) Error() string { return fmt.Sprintf("%v: %s: %v", ErrInternal, e.Kind, e.Cause) }

// Is reports whether target is ErrInternal.
func (e *CommandError) Is(target error) bool { return target == ErrInternal }

// clean reports whether a commit error left the old state intact, in the file and in the process.
// It is an allow-list: the size limit of the file, a write refused for lack of space, and a failed
// truncate, which bbolt reports as text only. After any other error, above all a failed sync,
// nothing that the process reads can be trusted.
func clean(err error) bool {
	if errors.Is(err, berrors.ErrMaxSizeReached) {
		return true
	}
	var path *fs.PathError
	if errors.As(err, &path) && path.Op == "write" {
		return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
	}
	return strings.HasPrefix(err.Error(), "file resize error: ")
}

// update runs fn in one write transaction, outside of the committer. It returns a PoisonError if
// the commit fails with an error that is not clean: the process must end.
func update(db *bolt.DB, fn func(*bolt.Tx) error) error {
	tx, err := db.Begin(true)
	if err != nil {
		return err
	}
	defer func() {
		if tx.DB() != nil { // fn failed or panicked
			_ = tx.Rollback() // nothing was written
		}
	}()
	if err := fn(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil && !clean(err) {
		return &PoisonError{Cause: err}
	} else if err != nil {
		return err
	}
	return nil
}

// poison marks the store as failed, once. The process must end; the file is not closed.
func (s *Store) poison(cause error, bug bool) {
	p := &PoisonError{Cause: cause, Bug: bug}
	if !s.failure.CompareAndSwap(nil, p) {
		return
	}
	close(s.failed)
	s.metrics.poisoned(1)
	s.log.Error("store_poisoned", "reason", cause.Error(), "bug", bug)
}

// Failed is closed once the store is poisoned.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Err returns the PoisonError of a poisoned store, or nil.
func (s *Store) Err() error {
	if p := s.failure.Load(); p != nil {
		return p
	}
	return nil
}

// unknownOutcome returns the error for a command that the committer had taken when the store
// failed.
func (s *Store) unknownOutcome() error {
	p := *s.failure.Load()
	p.Unknown = true
	return &p
}

// fullError wraps err as ErrFull.
func fullError(err error) error { return fmt.Errorf("%w: %w", ErrFull, err) }

// roomError returns ErrFull if err is a clean commit error, else err.
func roomError(err error) error {
	if err != nil && clean(err) {
		return fullError(err)
	}
	return err
}
