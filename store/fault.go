package store

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// clean tells whether a commit error left the old state intact, in the file and in the process. It is an allow-list: the limit of the
// file, a write refused for want of room, and a failed truncate, which bbolt reports as text alone. After any other one, and above all
// after a failed sync, nothing the process reads can be trusted.
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

// update is one transaction of a boot. An error of its commit that is not clean is a PoisonError: the process has to end.
func update(db *bolt.DB, fn func(*bolt.Tx) error) error {
	tx, err := db.Begin(true)
	if err != nil {
		return err
	}
	defer func() {
		if tx.DB() != nil { // fn has failed or panicked
			_ = tx.Rollback() // of what was never written
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

// poison ends the life of the store, once. The process has to end; the file is not closed.
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

// Err is nil, or the PoisonError.
func (s *Store) Err() error {
	if p := s.failure.Load(); p != nil {
		return p
	}
	return nil
}

// unknownOutcome is the answer to a command that the committer had in hand when the store failed.
func (s *Store) unknownOutcome() error {
	p := *s.failure.Load()
	p.Unknown = true
	return &p
}

// fullError is ErrFull with bbolt's reason.
func fullError(err error) error { return fmt.Errorf("%w: %w", ErrFull, err) }

// roomError is ErrFull if a file could not be written for want of room, else err.
func roomError(err error) error {
	if err != nil && clean(err) {
		return fullError(err)
	}
	return err
}
