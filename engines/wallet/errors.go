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
// ledger.ErrSafeMode, ledger.ErrCursor and ledger.ErrRange. CodeOf returns the code of each.
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

// Code is how a refusal is told on the wire, in metrics, in the audit and in logs. In the answer of
// a batch a refused op has its code only, since the journal keeps no more.
type Code struct {
	Name      string // "NONCE_CONFLICT"
	Reason    string // one lower-case word, for metrics, logs and answers: "nonce_gap"
	Status    int    // of HTTP
	Retryable bool   // the same request may succeed later as it is
}

// The codes of the wallet's own refusals.
var (
	codeBadRequest  = Code{"BAD_REQUEST", "malformed", 400, false}
	codeForbidden   = Code{"FORBIDDEN", "forbidden", 403, false}
	codeLimits      = Code{"LIMITS_EXCEEDED", "limits_exceeded", 403, false}
	codeNotFound    = Code{"NOT_FOUND", "not_found", 404, false}
	codeNoAccount   = Code{"NOT_FOUND", "account_unknown", 404, false}
	codeNoPayee     = Code{"NOT_FOUND", "payee_unknown", 404, false}
	codeInFlight    = Code{"IDEMPOTENCY_IN_FLIGHT", "idem_in_flight", 409, true}
	codeBusy        = Code{"BUSY", "busy", 429, true}
	codeInternal    = Code{"INTERNAL_ERROR", "internal", 500, false}
	codeRetryLater  = Code{"RETRY_LATER", "degraded", 503, true}
	codeLate        = Code{"RETRY_LATER", "timeout", 503, true}
	codeUnavailable = Code{"UPSTREAM_UNAVAILABLE", "upstream", 503, true}
	codeFull        = Code{"STORE_FULL", "store_full", 507, true}
	codeRestored    = Code{"RETRY_LATER", "restored", 503, true}
)

// rejectCodes are the codes of the ledger's refusals. Answers of batches contain them, and are sent
// again byte for byte: a row is never edited, and a new reason comes at the end. A change needs a
// table of another version, beside the other renderer of httpapi.
var rejectCodes = [...]Code{
	record.IdemConflict:      {"IDEMPOTENCY_CONFLICT", "idem_conflict", 422, false},
	record.Expired:           {"BAD_REQUEST", "expired", 400, false},
	record.AccountLocked:     {"ACCOUNT_LOCKED", "account_locked", 409, false},
	record.AssetUnknown:      {"BAD_REQUEST", "asset_unknown", 400, false},
	record.NonceReused:       {"NONCE_CONFLICT", "nonce_reused", 409, false},
	record.NonceGap:          {"NONCE_CONFLICT", "nonce_gap", 409, true},
	record.LimitOp:           {"LIMITS_EXCEEDED", "limit_op", 403, false},
	record.LimitDaily:        {"LIMITS_EXCEEDED", "limit_daily", 403, false},
	record.LimitTotal:        {"LIMITS_EXCEEDED", "limit_total", 403, false},
	record.LimitHolds:        {"LIMITS_EXCEEDED", "limit_holds", 403, false},
	record.HoldUnknown:       {"HOLD_NOT_FOUND", "hold_unknown", 404, false},
	record.HoldClosed:        {"HOLD_CLOSED", "hold_closed", 409, false},
	record.HoldExpired:       {"HOLD_EXPIRED", "hold_expired", 409, false},
	record.InsufficientFunds: {"INSUFFICIENT_FUNDS", "insufficient_funds", 409, false},
	record.Aborted:           {"ABORTED", "aborted", 409, true},
	record.OnceConflict:      {"IDEMPOTENCY_CONFLICT", "once_conflict", 422, false},
	record.ReferenceConflict: {"REFERENCE_CONFLICT", "reference_conflict", 409, false},
	record.DecimalsSet:       {"DECIMALS_SET", "decimals_set", 409, false},
}

// errorCodes are asked in order: the more specific error comes first, and an unknown outcome before
// the error of a later try.
var errorCodes = [...]struct {
	is   func(error) bool
	code Code
}{
	{isA[*OutcomeError], codeUnavailable},
	{isLimit, codeLimits},
	{isA[*engines.GrantError], codeForbidden},
	{is(ErrForbidden), codeForbidden},
	{isA[*FieldError], codeBadRequest},
	{is(ledger.ErrCursor), codeBadRequest},
	{is(ledger.ErrRange), codeBadRequest},
	{is(ErrNotFound), codeNotFound},
	{is(ErrUnknownAccount), codeNoAccount},
	{is(ErrUnknownPayee), codeNoPayee},
	{is(ErrInFlight), codeInFlight},
	{is(flow.ErrBusy), codeBusy},
	{is(ledger.ErrFull), codeFull},
	{is(ledger.ErrRestored), codeRestored},
	{is(ledger.ErrUnavailable), codeUnavailable},
	{is(ledger.ErrSafeMode), codeUnavailable},
	{isLate, codeLate},
	{isA[*NotReadyError], codeRetryLater},
	{is(ledger.ErrLoading), codeRetryLater},
	{is(flow.ErrClosed), codeRetryLater},
	{is(flow.ErrCanceled), codeRetryLater},
	{is(context.Canceled), codeRetryLater},
}

// rejectCode returns the code of a refusal by the ledger's rules.
func rejectCode(r record.Result) Code {
	if int(r) < len(rejectCodes) && rejectCodes[r].Name != "" {
		return rejectCodes[r]
	}
	return codeInternal
}

// CodeOf returns the code of an error that a method of Engine returned.
func CodeOf(err error) Code {
	var reject *ledger.Reject
	if errors.As(err, &reject) {
		return rejectCode(reject.Code)
	}
	for _, row := range errorCodes {
		if row.is(err) {
			return row.code
		}
	}
	return codeInternal
}

// Codes returns all codes that CodeOf may return, some more than once.
func Codes() []Code {
	out := []Code{codeInternal}
	for _, row := range errorCodes {
		out = append(out, row.code)
	}
	for r := range rejectCodes {
		out = append(out, rejectCode(record.Result(r)))
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
