package wallet

import (
	"context"
	"errors"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Code is what a caller is told of a refusal. Within a batch it is all that a caller is told, since the journal keeps no more.
type Code struct {
	Name      string // "NONCE_CONFLICT"
	Reason    string // the one lower-case word for it in metrics, logs and answers: "nonce_gap"
	Retryable bool   // the same request may succeed later as it stands
}

// The codes of the wallet's own refusals; those of the ledger's rules are in rejectCodes.
var (
	codeBadRequest  = Code{"BAD_REQUEST", "malformed", false}
	codeForbidden   = Code{"FORBIDDEN", "forbidden", false}
	codeLimits      = Code{"LIMITS_EXCEEDED", "limits_exceeded", false}
	codeNotFound    = Code{"NOT_FOUND", "not_found", false}
	codeNoAccount   = Code{"NOT_FOUND", "account_unknown", false}
	codeInFlight    = Code{"IDEMPOTENCY_IN_FLIGHT", "idem_in_flight", true}
	codeBusy        = Code{"BUSY", "busy", true}
	codeInternal    = Code{"INTERNAL_ERROR", "internal", false}
	codeRetryLater  = Code{"RETRY_LATER", "degraded", true}
	codeLate        = Code{"RETRY_LATER", "timeout", true}
	codeUnavailable = Code{"UPSTREAM_UNAVAILABLE", "upstream", true}
	codeFull        = Code{"STORE_FULL", "store_full", true}
	codeRestored    = Code{"RETRY_LATER", "restored", true}
)

// rejectCodes are the codes of the ledger's refusals. Answers of batches have them, and are sent again as they were sent first: what stands here
// is never edited, and a new reason comes at the end. What is to be told otherwise one day gets a table of another version, beside the other
// renderer of httpapi.
var rejectCodes = [...]Code{
	record.IdemConflict:      {"IDEMPOTENCY_CONFLICT", "idem_conflict", false},
	record.Expired:           {"BAD_REQUEST", "expired", false},
	record.AccountLocked:     {"ACCOUNT_LOCKED", "account_locked", false},
	record.AssetUnknown:      {"BAD_REQUEST", "asset_unknown", false},
	record.NonceReused:       {"NONCE_CONFLICT", "nonce_reused", false},
	record.NonceGap:          {"NONCE_CONFLICT", "nonce_gap", true},
	record.LimitOp:           {"LIMITS_EXCEEDED", "limit_op", false},
	record.LimitDaily:        {"LIMITS_EXCEEDED", "limit_daily", false},
	record.LimitTotal:        {"LIMITS_EXCEEDED", "limit_total", false},
	record.LimitHolds:        {"LIMITS_EXCEEDED", "limit_holds", false},
	record.HoldUnknown:       {"HOLD_NOT_FOUND", "hold_unknown", false},
	record.HoldClosed:        {"HOLD_CLOSED", "hold_closed", false},
	record.HoldExpired:       {"HOLD_EXPIRED", "hold_expired", false},
	record.InsufficientFunds: {"INSUFFICIENT_FUNDS", "insufficient_funds", false},
	record.Aborted:           {"ABORTED", "aborted", true},
	record.OnceConflict:      {"IDEMPOTENCY_CONFLICT", "once_conflict", false},
}

// rejectCode is the code of a refusal by the ledger's rules.
func rejectCode(r record.Result) Code {
	if int(r) < len(rejectCodes) && rejectCodes[r].Name != "" {
		return rejectCodes[r]
	}
	return codeInternal
}

// CodeOf is the code of an error that a method of Engine returned.
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

// Codes are all that CodeOf may give, some more than once.
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

type codeRow struct {
	is   func(error) bool
	code Code
}

// errorCodes are asked in order: what says more comes first, and that an outcome is not known before what a later try has met.
var errorCodes = [...]codeRow{
	{isA[*OutcomeError], codeUnavailable},
	{isLimit, codeLimits},
	{isA[*engines.GrantError], codeForbidden},
	{is(ErrForbidden), codeForbidden},
	{isA[*FieldError], codeBadRequest},
	{is(ledger.ErrCursor), codeBadRequest},
	{is(ledger.ErrRange), codeBadRequest},
	{is(ErrNotFound), codeNotFound},
	{is(ErrUnknownAccount), codeNoAccount},
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

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isLimit finds amounts that are too large for the wallet or for the token; any other refusal of a token is a lack of rights.
func isLimit(err error) bool {
	var grant *engines.GrantError
	if errors.As(err, &grant) {
		return grant.Caveat == "ceiling" || grant.Caveat == "ceiling_daily"
	}
	return isA[*LimitError](err)
}

// isLate finds what there was no time for.
func isLate(err error) bool {
	var not *NotReadyError
	if errors.As(err, &not) {
		return not.Cause == CauseDeadline || not.Cause == CauseMinSeq
	}
	return errors.Is(err, context.DeadlineExceeded)
}
