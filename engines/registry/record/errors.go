package record

import (
	"errors"
	"fmt"

	"ronbox/appliance/unit"
)

var (
	// ErrMalformed is the class of every *FieldError: the input can never be accepted as it is.
	ErrMalformed = errors.New("malformed")
	// ErrHardLimit means a descriptor, set, payload, entry or audit record is larger than the
	// format allows.
	ErrHardLimit = errors.New("hard limit exceeded")
	// ErrVersionSkew means the payload's version does not follow its base.
	ErrVersionSkew = errors.New("version does not follow the base")
	// ErrChainMismatch means the payload's prev_hash does not name its base.
	ErrChainMismatch = errors.New("prev_hash does not match the base")
	// ErrInvalidSig means the signature does not verify, or its signer is unknown.
	ErrInvalidSig = errors.New("invalid signature")
	// ErrRevokedKey is the class of every *RevokedKeyError.
	ErrRevokedKey = errors.New("key is not active")
	// ErrQuorum is the class of every *QuorumError.
	ErrQuorum = errors.New("quorum not reached")
	// ErrClockSkew means signed_at lies too far from the node's clock or before the payload's
	// created_at.
	ErrClockSkew = errors.New("signed_at is out of range")
)

// FieldError is returned for an invalid member of the input. Field is its dotted path
// ("items.3.endpoint"), empty for the whole input.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string {
	if e.Field == "" {
		return "malformed: " + e.Reason
	}
	return "malformed: " + e.Field + ": " + e.Reason
}

// Is reports that every FieldError is ErrMalformed.
func (e *FieldError) Is(target error) bool { return target == ErrMalformed }

// RevokedKeyError is returned when a key that no longer counts was used, or when its loss cost the
// quorum.
type RevokedKeyError struct{ SignerID, Status string }

func (e *RevokedKeyError) Error() string {
	return fmt.Sprintf("key of %s is %s", e.SignerID, e.Status)
}

// Is reports that every RevokedKeyError is ErrRevokedKey.
func (e *RevokedKeyError) Is(target error) bool { return target == ErrRevokedKey }

// QuorumError is returned when fewer distinct keys approved than are needed.
type QuorumError struct{ Have, Need int }

func (e *QuorumError) Error() string {
	return fmt.Sprintf("quorum not reached: %d of %d approvals", e.Have, e.Need)
}

// Is reports that every QuorumError is ErrQuorum.
func (e *QuorumError) Is(target error) bool { return target == ErrQuorum }

func fieldf(field, format string, args ...any) *FieldError {
	return &FieldError{Field: clip(field), Reason: clip(fmt.Sprintf(format, args...))}
}

// clip shortens a text of an error: a name in the input may be as long as the input, and errors go
// into answers and logs.
func clip(s string) string { return unit.Clip(s, 200) }
