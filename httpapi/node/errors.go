package node

import (
	"errors"
	"fmt"

	nodeapi "ronbox/httpapi/wire/node"
)

// Errors of the archive.
var (
	ErrArchiveOff    = errors.New("the node has no archive")
	ErrArchiveBusy   = errors.New("capture has stopped until everything was sent")
	ErrArchiveTarget = errors.New("the target of the archive does not take it")
	ErrArchiveLocal  = errors.New("the local files of the archive cannot be written")
)

// ConflictError is returned if an operation is not possible in the current state: status 409.
// Reason is for people and contains no part of the request.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }

// ReloadError is returned if a configuration was refused and the old one stays: status 422.
type ReloadError struct {
	Reason string   // parse, validate, restart, bind, tls …
	Keys   []string // keys that are invalid or need a restart
	Detail string   // for people
}

func (e *ReloadError) Error() string {
	if e.Detail == "" {
		return "the old configuration stays in force: " + e.Reason
	}
	return "the old configuration stays in force: " + e.Detail
}

// SnapshotDirError is returned if the node cannot write the folder of a snapshot: status 400.
type SnapshotDirError struct {
	nodeapi.SnapshotDir
	Cause error // errno
}

func (e *SnapshotDirError) Error() string {
	by := "user " + e.User
	if e.Unit != "" {
		by += ", unit " + e.Unit
	}
	return fmt.Sprintf("%s: %v (%s)", e.Path, e.Cause, by)
}

// Unwrap returns the cause.
func (e *SnapshotDirError) Unwrap() error { return e.Cause }
