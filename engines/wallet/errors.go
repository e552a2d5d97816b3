package wallet

import (
	"context"
	"errors"
	"fmt"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Errors of the engine, beside *ledger.Reject (the rules refuse), *engines.GrantError (the token
// does not reach), flow.ErrBusy (no room, nothing happened), ledger.ErrFull, ledger.ErrRestored,
// ledger.ErrSafeMode, ledger.ErrCursor, ledger.ErrRange and *ledger.ClosedError. ReasonOf returns
// the reason of each.
var (
	// ErrNotFound is returned for a record that does not exist or that the caller may not see. The
	// caller does not learn which.
	ErrNotFound = errors.New("wallet: not found")
	// ErrUnknownAccount is returned for a change of flags of an account that was never paid, unless
	// the request may open it.
	ErrUnknownAccount = errors.New("wallet: the account is not known")
	// ErrUnknownPayee is returned for a payment to an account that was never paid, if the request
	// must not open it.
	ErrUnknownPayee = errors.New("wallet: the payee is not known")
	// ErrInFlight is returned while the same key is worked on, or too many callers wait for it.
	ErrInFlight = errors.New("wallet: a request with this key is in flight: ask again")
	// ErrForbidden is returned to a caller that is known and lacks the right.
	ErrForbidden = errors.New("wallet: forbidden")
	// ErrSystemAccount is an ErrForbidden that no other token would change.
	ErrSystemAccount = fmt.Errorf("%w: accounts that begin with sys: are the ledger's own", ErrForbidden)
)

// ScopeError is an ErrForbidden for lack of a scope.
type ScopeError struct{ Scope string }

func (e *ScopeError) Error() string { return ErrForbidden.Error() + ": the token lacks " + e.Scope }

// Is reports whether target is ErrForbidden.
func (e *ScopeError) Is(target error) bool { return target == ErrForbidden }

// FieldError describes a malformed member of a request: nothing happened.
type FieldError struct{ Field, Reason string }

func (e *FieldError) Error() string { return "wallet: " + e.Field + ": " + e.Reason }

// LimitError names the limit of the wallet that a request exceeds: nothing happened.
type LimitError struct{ Limit string }

func (e *LimitError) Error() string { return "wallet: beyond the limit " + e.Limit }

// Causes of a NotReadyError.
const (
	CauseStarting = "starting"
	CauseDraining = "draining"
	CauseLedger   = "ledger_ready"
	CauseAuth     = "auth_ready"
	CauseDeadline = "deadline" // passed while the request was queued
	CauseCanceled = "canceled" // the caller left while the request was queued
	CauseMinSeq   = "min_seq"  // of a BehindError
)

// NotReadyError says that the request was not begun, and why: nothing happened, and the same
// request may succeed later.
type NotReadyError struct {
	Cause  string
	Detail string // why a readiness key fails; "": nothing more to say
}

func (e *NotReadyError) Error() string {
	if e.Detail != "" {
		return "wallet: not ready: " + e.Cause + ": " + e.Detail
	}
	return "wallet: not ready: " + e.Cause
}

// BehindError is returned to a reader that waited for a record that the ledger does not have yet.
// It is a *NotReadyError.
type BehindError struct{ Want, Have uint64 } // min_seq; the newest record when the wait began

func (e *BehindError) Error() string {
	return fmt.Sprintf("wallet: min_seq = %d: the ledger had reached record %d only: "+
		"send the ledger.seq of a receipt of this ledger, or ask again", e.Want, e.Have)
}

// Unwrap returns the *NotReadyError.
func (e *BehindError) Unwrap() error { return &NotReadyError{Cause: CauseMinSeq} }

// OutcomeError says that the ledger gave no answer. If Unknown, the request may have been carried
// out: the same request with the same key finds out, and carries it out at most once.
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

// Unwrap returns the cause.
func (e *OutcomeError) Unwrap() error { return e.Cause }

// IndexError holds the index of the op at fault in a batch, counted from 0.
type IndexError struct {
	Index int
	Err   error
}

func (e *IndexError) Error() string { return fmt.Sprintf("op %d: %v", e.Index, e.Err) }

// Unwrap returns the error of the op.
func (e *IndexError) Unwrap() error { return e.Err }

// Reasons of the wallet's own refusals, for metrics, the audit, logs and answers. A refusal by the
// ledger's rules has the name of its result.
const (
	reasonMalformed = "malformed"
	reasonForbidden = "forbidden"
	reasonLimits    = "limits_exceeded"
	reasonNotFound  = "not_found"
	reasonNoAccount = "account_unknown"
	reasonNoPayee   = "payee_unknown"
	reasonInFlight  = "idem_in_flight"
	reasonBusy      = "busy"
	reasonInternal  = "internal"
	reasonDegraded  = "degraded"
	reasonLate      = "timeout"
	reasonUpstream  = "upstream"
	reasonFull      = "store_full"
	reasonRestored  = "restored"
	reasonClosed    = "period_closed"
)

// reasons are asked in order: the more specific error comes first, and an unknown outcome before
// the error of a later try.
var reasons = [...]struct {
	is     func(error) bool
	reason string
}{
	{isA[*OutcomeError], reasonUpstream},
	{isLimit, reasonLimits},
	{isA[*engines.GrantError], reasonForbidden},
	{is(ErrForbidden), reasonForbidden},
	{isA[*FieldError], reasonMalformed},
	{is(ledger.ErrCursor), reasonMalformed},
	{is(ledger.ErrRange), reasonMalformed},
	{isA[*ledger.ClosedError], reasonClosed},
	{is(ErrNotFound), reasonNotFound},
	{is(ErrUnknownAccount), reasonNoAccount},
	{is(ErrUnknownPayee), reasonNoPayee},
	{is(ErrInFlight), reasonInFlight},
	{is(flow.ErrBusy), reasonBusy},
	{is(ledger.ErrFull), reasonFull},
	{is(ledger.ErrRestored), reasonRestored},
	{is(ledger.ErrUnavailable), reasonUpstream},
	{is(ledger.ErrSafeMode), reasonUpstream},
	{isLate, reasonLate},
	{isA[*NotReadyError], reasonDegraded},
	{is(ledger.ErrLoading), reasonDegraded},
	{is(flow.ErrClosed), reasonDegraded},
	{is(flow.ErrCanceled), reasonDegraded},
	{is(context.Canceled), reasonDegraded},
}

// ReasonOf returns the reason of an error that a method of Engine returned.
func ReasonOf(err error) string {
	if reject, ok := errors.AsType[*ledger.Reject](err); ok {
		if !reject.Code.Known() || !reject.Code.Refused() {
			return reasonInternal
		}
		return reject.Code.String()
	}
	for _, row := range reasons {
		if row.is(err) {
			return row.reason
		}
	}
	return reasonInternal
}

// allReasons returns all reasons that ReasonOf may return, some more than once.
func allReasons() []string {
	out := []string{reasonInternal}
	for _, row := range reasons {
		out = append(out, row.reason)
	}
	for r := record.Result(0); r.Known(); r++ {
		if r.Refused() {
			out = append(out, r.String())
		}
	}
	return out
}

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isLimit reports whether an amount is too large for the wallet or for the token. Any other refusal
// of a token is a lack of rights.
func isLimit(err error) bool {
	var grant *engines.GrantError
	if errors.As(err, &grant) {
		return grant.Caveat == "ceiling" || grant.Caveat == "ceiling_daily"
	}
	return isA[*LimitError](err)
}

// isLate reports whether the time of a request was over.
func isLate(err error) bool {
	var not *NotReadyError
	if errors.As(err, &not) {
		return not.Cause == CauseDeadline || not.Cause == CauseMinSeq
	}
	return errors.Is(err, context.DeadlineExceeded)
}
