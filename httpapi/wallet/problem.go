package wallet

import (
	"errors"
	"net/http"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	"ronbox/store"
)

// hintUnknown explains how to learn an unknown outcome.
const hintUnknown = "it may have been done: send the same request again, with the same Idempotency-Key, to get the " +
	"outcome; it is never done twice"

const hintNothing = "nothing was done by this request; send the same one again"

// hintSafeMode tells the operator how to leave safe mode.
const hintSafeMode = "undamaged records can be read; stop the node, run `ronbox ledger verify`, then `ronbox " +
	"ledger rebuild` if only derived tables are bad, and start the node: it verifies everything once more " +
	"before it accepts writes"

// codeLimits is the wallet's code for an exceeded limit. The front uses it for large bodies.
const codeLimits = "LIMITS_EXCEEDED"

// outcomeOf returns the outcome of err.
func outcomeOf(err error) httpapi.Outcome { return outcome(wallet.CodeOf(err)) }

func outcome(code wallet.Code) httpapi.Outcome {
	return httpapi.Outcome{Status: code.Status, Reason: code.Reason, Code: code.Name, Retry: code.Retryable}
}

// words returns all outcomes that outcomeOf may return.
func words() (out []httpapi.Outcome) {
	for _, code := range wallet.Codes() {
		out = append(out, outcome(code))
	}
	return out
}

// codeOf returns the wallet's code of a refusal that all services share.
func codeOf(reason string) string {
	switch reason {
	case httpapi.ReasonUnauth:
		return "UNAUTHORIZED"
	case httpapi.ReasonForbidden:
		return "FORBIDDEN"
	case httpapi.ReasonNotFound:
		return "NOT_FOUND"
	case httpapi.ReasonMethod:
		return "METHOD_NOT_ALLOWED"
	case httpapi.ReasonBodyCap:
		return codeLimits
	case httpapi.ReasonBusy, httpapi.ReasonRate, httpapi.ReasonInflight, httpapi.ReasonStreams:
		return "BUSY"
	case httpapi.ReasonDraining,
		httpapi.ReasonDegraded,
		httpapi.ReasonRestored,
		httpapi.ReasonNotLeader,
		httpapi.ReasonAmnesia,
		httpapi.ReasonCanceled,
		httpapi.ReasonTimeout:
		return "RETRY_LATER"
	case httpapi.ReasonCommitUnsure, httpapi.ReasonStoreFailed:
		return "UPSTREAM_UNAVAILABLE"
	case httpapi.ReasonStoreFull:
		return "STORE_FULL"
	case httpapi.ReasonInternal, httpapi.ReasonCorrupt:
		return "INTERNAL_ERROR"
	}
	return "BAD_REQUEST"
}

// refusedError is a refusal by the ledger's rules with the refused order.
type refusedError struct {
	order ledger.Op
	owner bool // the caller may debit the account of the nonce
	*ledger.Reject
}

func (e *refusedError) Unwrap() error { return e.Reject }

// rules returns the refusals of the wallet and its ledger, and the shared refusals that the wallet
// words in its own way.
func rules() []httpapi.ErrorRule {
	return []httpapi.ErrorRule{
		{
			Is:      httpapi.IsA[*BatchSizeError],
			Outcome: httpapi.Outcome{Status: http.StatusForbidden, Reason: "limits_exceeded", Code: codeLimits},
			Title:   "Batch too large",
			Details: func(error) httpapi.Details { return httpapi.Details{"limit": "batch_max_ops"} },
		},
		{Is: httpapi.IsA[*wallet.FieldError], Classify: outcomeOf, Title: "Malformed request", Text: fieldSaid,
			Details: indexed(httpapi.Field(func(e *wallet.FieldError) string { return e.Field }))},
		{
			Is:       httpapi.IsA[*wallet.LimitError],
			Classify: outcomeOf,
			Title:    "Beyond a limit",
			Text:     limitSaid,
			Details: indexed(
				httpapi.Detail(func(e *wallet.LimitError) httpapi.Details { return httpapi.Details{"limit": e.Limit} }),
			),
		},
		{
			Is:       beyondToken,
			Classify: outcomeOf,
			Title:    "Beyond a limit of the token",
			Text:     limitSaid,
			Details: indexed(
				httpapi.Detail(
					func(e *engines.GrantError) httpapi.Details { return httpapi.Details{"limit": e.Caveat} },
				),
			),
		},
		{
			Is:       httpapi.Is(wallet.ErrSystemAccount),
			Classify: outcomeOf,
			Title:    "Not allowed",
			Hint:     hintSystem,
			Details:  indexed(func(error) httpapi.Details { return httpapi.Details{"cause": "system_account"} }),
		},
		{
			Is:       httpapi.IsA[*wallet.ScopeError],
			Classify: outcomeOf,
			Title:    "Not allowed",
			Text:     scopeSaid,
			Details: indexed(
				httpapi.Detail(func(e *wallet.ScopeError) httpapi.Details { return httpapi.Details{"scope": e.Scope} }),
			),
		},
		{
			Is:       httpapi.Is(wallet.ErrForbidden),
			Classify: outcomeOf,
			Title:    "Not allowed",
			Hint:     httpapi.HintForbidden,
			Details:  indexed(nil),
		},
		{
			Is:       httpapi.Is(wallet.ErrUnknownAccount),
			Classify: outcomeOf,
			Title:    "No such account",
			Details:  httpapi.Told(httpapi.Details{"field": "account"}),
			Hint:     "account: does not exist, and nothing was done; send \"new\":true in the body to open it",
		},
		{
			Is:       httpapi.Is(wallet.ErrUnknownPayee),
			Classify: outcomeOf,
			Title:    "No such payee",
			Details:  httpapi.Told(httpapi.Details{"field": "to"}),
			Hint: "to: this account does not exist, and nothing was done; without payee=existing a payment " +
				"opens it",
		},
		{
			Is:       httpapi.Is(wallet.ErrNotFound),
			Classify: outcomeOf,
			Title:    "Not found",
			Hint:     "the record does not exist, or you may not see it",
		},
		{Is: httpapi.Is(wallet.ErrInFlight), Classify: outcomeOf, Title: "Still in progress", Wait: httpapi.WaitBusy,
			Hint: "a request with this Idempotency-Key is in progress; send the same one again to get its " +
				"answer"},
		{
			Is:       httpapi.Is(ledger.ErrCursor),
			Classify: outcomeOf,
			Title:    "Malformed request",
			Hint:     "cursor: was not returned for this query",
			Details:  func(error) httpapi.Details { return httpapi.Details{"field": "cursor"} },
		},
		{Is: httpapi.Is(ledger.ErrRange), Classify: outcomeOf, Title: "Range not served",
			Hint: "the ledger does not reach that far; GET /v1/ledger/head shows its newest batch and record"},
		{
			Is:       outcomeIs(true),
			Classify: outcomeOf,
			Title:    "Outcome unknown",
			Wait:     httpapi.WaitDegraded,
			Hint:     hintUnknown,
			Details:  httpapi.Told(httpapi.Details{"outcome": "unknown"}),
		},
		{
			Is:      httpapi.Is(store.ErrNotLeader),
			Title:   "No leader",
			Wait:    httpapi.WaitBusy,
			Hint:    httpapi.HintNotLeader,
			Details: httpapi.Told(httpapi.Details{"outcome": "none"}),
			Outcome: httpapi.Outcome{
				Status: http.StatusServiceUnavailable,
				Reason: httpapi.ReasonNotLeader,
				Code:   "RETRY_LATER",
				Retry:  true,
			},
		},
		{Is: outcomeIs(false), Classify: outcomeOf, Title: "The ledger does not answer", Wait: httpapi.WaitDegraded,
			Hint: hintNothing, Details: httpapi.Told(httpapi.Details{"outcome": "none"})},
		{
			Is:       unreadable,
			Classify: outcomeOf,
			Title:    "The record cannot be read",
			Wait:     httpapi.WaitDegraded,
			Details:  inSafeMode,
			Hint: "a record that this request has to read is damaged; nothing was done; GET " +
				"/v1/history shows whether an earlier request with its key was executed; " + hintSafeMode,
		},
		{
			Is:       httpapi.Is(errNeverThatFar),
			Classify: outcomeOf,
			Title:    "The ledger takes no writes",
			Wait:     httpapi.WaitDegraded,
			Details: func(error) httpapi.Details {
				return httpapi.Details{"cause": causeSafeMode, "field": "min_seq"}
			},
			Hint: "min_seq: is not reached before the ledger accepts writes again; without it the balance is read " +
				"as it stands; " + hintSafeMode,
		},
		{
			Is:       httpapi.Is(ledger.ErrSafeMode),
			Classify: outcomeOf,
			Title:    "The ledger takes no writes",
			Wait:     httpapi.WaitDegraded,
			Details:  inSafeMode,
			Hint: "nothing was done by this request; GET /v1/history shows whether an earlier request with its " +
				"key was executed; " + hintSafeMode,
		},
		{
			Is:       httpapi.Is(ledger.ErrFull),
			Classify: outcomeOf,
			Title:    "Storage is full",
			Wait:     httpapi.WaitDegraded,
			Hint:     "nothing was written; reads still succeed",
		},
		{
			Is:       httpapi.Is(ledger.ErrNotFound),
			Classify: outcomeOf,
			Title:    "Not found",
			Hint:     "the record does not exist, or you may not see it",
		},
		{
			Is:       httpapi.IsA[*wallet.BehindError],
			Classify: outcomeOf,
			Title:    "The ledger is not that far",
			Wait:     httpapi.WaitDegraded,
			Details:  behind,
			Hint:     "min_seq: is not reached; use ledger.seq of a receipt of this ledger, or try again later",
		},
		{
			Is:       httpapi.Any(httpapi.IsA[*wallet.NotReadyError], httpapi.Is(ledger.ErrLoading)),
			Classify: outcomeOf,
			Title:    "Not ready",
			Wait:     httpapi.WaitDegraded,
			Text:     notReadySaid,
			Details:  notReady,
		},
		{
			Is:       httpapi.IsA[*engines.GrantError],
			Classify: outcomeOf,
			Title:    "Not allowed",
			Text:     httpapi.DeniedText,
			Details:  indexed(httpapi.DeniedDetails),
		},
		{
			Is:      httpapi.Is(httpapi.ErrBodyTooLarge),
			Title:   "Body too large",
			Details: httpapi.Told(httpapi.Details{"limit": "body"}),
			Outcome: httpapi.Outcome{
				Status: http.StatusRequestEntityTooLarge,
				Reason: httpapi.ReasonBodyCap,
				Code:   codeLimits,
			},
		},
		{
			Is:      unknown,
			Title:   "Outcome unknown",
			Wait:    httpapi.WaitDegraded,
			Hint:    hintUnknown,
			Details: httpapi.Told(httpapi.Details{"outcome": "unknown"}),
			Outcome: httpapi.Outcome{
				Status: http.StatusServiceUnavailable,
				Reason: httpapi.ReasonCommitUnsure,
				Code:   "UPSTREAM_UNAVAILABLE",
				Retry:  true,
			},
		},
	}
}

// unknown reports whether the outcome of a commit is unknown. A failed store has a rule of its own.
func unknown(err error) bool {
	return errors.Is(err, flow.ErrUnknown) && !errors.Is(err, store.ErrPoisoned)
}

// hintSystem explains the accounts that no token reaches.
const hintSystem = "accounts that begin with sys: belong to the ledger: no request pays from or to one; a caller " +
	"that may see all accounts may read sys:issue:<asset>"

const causeSafeMode = "safe_mode"

func inSafeMode(error) httpapi.Details {
	return httpapi.Details{"cause": causeSafeMode, "outcome": "none"}
}

// notReady returns the cause for which the wallet is not ready.
func notReady(err error) httpapi.Details {
	var e *wallet.NotReadyError
	if !errors.As(err, &e) {
		return httpapi.Details{"cause": wallet.CauseStarting, "outcome": "none"}
	}
	return httpapi.Details{"cause": e.Cause, "outcome": "none"}
}

// notReadySaid explains why the wallet is not ready.
func notReadySaid(err error) string {
	if e, ok := errors.AsType[*wallet.NotReadyError](err); ok && e.Detail != "" {
		return e.Cause + ": " + e.Detail + "; " + hintNothing
	}
	return hintNothing
}

// behind returns the newest record of the ledger.
func behind(err error) httpapi.Details {
	var e *wallet.BehindError
	_ = errors.As(err, &e)
	return httpapi.Details{"field": "min_seq", "reached_seq": e.Have}
}

// unreadable reports whether a read met damage, in contrast to a write that safe mode refuses.
func unreadable(err error) bool {
	return errors.Is(err, ledger.ErrSafeMode) && errors.Is(err, store.ErrCorrupt)
}

// outcomeIs reports whether the ledger gave no answer.
func outcomeIs(unknown bool) func(error) bool {
	return func(err error) bool {
		if late, ok := errors.AsType[*wallet.OutcomeError](err); ok {
			return late.Unknown == unknown
		}
		if gone, ok := errors.AsType[*ledger.UnavailableError](err); ok {
			return gone.Unknown == unknown
		}
		return !unknown && errors.Is(err, ledger.ErrUnavailable)
	}
}

// beyondToken reports whether an amount is above a ceiling of the token.
func beyondToken(err error) bool {
	e, ok := errors.AsType[*engines.GrantError](err)
	return ok && (e.Caveat == "ceiling" || e.Caveat == "ceiling_daily")
}

func scopeSaid(err error) string {
	var e *wallet.ScopeError
	_ = errors.As(err, &e)
	return "this operation needs the scope " + e.Scope + "; `ronbox token inspect` shows what a token allows"
}

func fieldSaid(err error) string {
	var e *wallet.FieldError
	_ = errors.As(err, &e)
	return e.Field + ": " + e.Reason
}

// indexed adds the index of the operation at fault in a batch.
func indexed(more func(error) httpapi.Details) func(error) httpapi.Details {
	return func(err error) httpapi.Details {
		var at *wallet.IndexError
		var d httpapi.Details
		if more != nil {
			d = more(err)
		}
		if errors.As(err, &at) {
			if d == nil {
				d = httpapi.Details{}
			}
			d["index"] = at.Index
		}
		return d
	}
}
