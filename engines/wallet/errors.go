package wallet

import (
	"errors"
	"fmt"
)

// What a caller can meet beside *ledger.Reject (the rules refuse), *engines.GrantError (the token does not reach), flow.ErrBusy (no room; nothing
// happened), ledger.ErrFull, ledger.ErrRestored, ledger.ErrSafeMode, ledger.ErrCursor and ledger.ErrRange. CodeOf has the code of each.
var (
	// ErrNotFound: there is no such record, or the caller may not see it; nobody is told which.
	ErrNotFound = errors.New("wallet: not found")
	// ErrUnknownAccount: nobody has paid the account, and flags are for one that is known unless the request says otherwise.
	ErrUnknownAccount = errors.New("wallet: the account is not known")
	// ErrInFlight: the same key is still being worked on, or too many wait for it. Ask again.
	ErrInFlight = errors.New("wallet: a request with this key is in flight: ask again")
	// ErrForbidden: the caller is known and may not do this.
	ErrForbidden = errors.New("wallet: forbidden")
	// ErrSystemAccount is an ErrForbidden that no other token would change.
	ErrSystemAccount = fmt.Errorf("%w: accounts that begin with sys: are the ledger's own", ErrForbidden)
)

// ScopeError is an ErrForbidden for want of a scope.
type ScopeError struct{ Scope string }

func (e *ScopeError) Error() string { return ErrForbidden.Error() + ": the token lacks " + e.Scope }

// Is says ErrForbidden.
func (e *ScopeError) Is(target error) bool { return target == ErrForbidden }

// FieldError says which member of a request is wrong, and why: nothing happened.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return "wallet: " + e.Field + ": " + e.Reason }

// LimitError says which bound of the wallet, or of the token, a request is beyond: nothing happened.
type LimitError struct{ Limit string }

func (e *LimitError) Error() string { return "wallet: beyond the limit " + e.Limit }

// Causes of a NotReadyError.
const (
	CauseStarting = "starting"
	CauseDraining = "draining"
	CauseLedger   = "ledger_ready"
	CauseClock    = "clock_ok"
	CauseAuth     = "auth_ready"
	CausePolicy   = "policy_ready"
	CauseDeadline = "deadline" // passed while the request was queued
	CauseCanceled = "canceled" // the caller went while the request was queued
	CauseMinSeq   = "min_seq"  // of a BehindError
)

// NotReadyError says that the request was not begun, and why: nothing happened, and the same request may succeed later.
type NotReadyError struct{ Cause string }

func (e *NotReadyError) Error() string { return "wallet: not ready: " + e.Cause }

// BehindError says that a reader waited for a record that the ledger does not have yet. It is a *NotReadyError.
type BehindError struct{ Want, Have uint64 } // what min_seq was; the newest record when the wait began

func (e *BehindError) Error() string {
	return fmt.Sprintf("wallet: min_seq = %d: the ledger had reached record %d only: send the ledger.seq of a receipt of this ledger, or ask again", e.Want, e.Have)
}

// Unwrap gives the *NotReadyError.
func (e *BehindError) Unwrap() error { return &NotReadyError{CauseMinSeq} }

// OutcomeError says that the ledger gave no answer. With Unknown the request may have been carried out: the same request with the same key
// finds out, and does it at most once.
type OutcomeError struct {
	Unknown bool
	Cause   error
}

func (e *OutcomeError) Error() string {
	next := "nothing was done"
	if e.Unknown {
		next = "outcome unknown: the same request with the same key finds out"
	}
	return fmt.Sprintf("wallet: no answer from the ledger, %s: %v", next, e.Cause)
}

// Unwrap gives the cause.
func (e *OutcomeError) Unwrap() error { return e.Cause }

// IndexError says which op of a batch is at fault, counted from 0.
type IndexError struct {
	Index int
	Err   error
}

func (e *IndexError) Error() string { return fmt.Sprintf("op %d: %v", e.Index, e.Err) }

// Unwrap gives what is wrong with the op.
func (e *IndexError) Unwrap() error { return e.Err }
