package wallet

import (
	"cmp"
	"errors"
	"net/http"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	"ronbox/store"
)

// hintUnknown is how to find out what became of a request.
const hintUnknown = "it may have been done: send the same request again, with the same Idempotency-Key, and the answer tells; " +
	"it is never done twice"

const hintNothing = "nothing was done by this request; send the same one again"

// hintSafeMode is the operator's way out.
const hintSafeMode = "what is sound is read as ever; stop the node, run `ronbox ledger verify`, then `ronbox ledger rebuild` if it finds only " +
	"derived tables bad, and start the node: it verifies everything once more before it takes writes"

// codeLimits is the wallet's word for more than may be; the stages before it say it of a body.
const codeLimits = "LIMITS_EXCEEDED"

// outcomeOf is what the wallet says of err.
func outcomeOf(err error) httpapi.Outcome { return outcome(wallet.CodeOf(err)) }

func outcome(code wallet.Code) httpapi.Outcome {
	return httpapi.Outcome{Status: statusOf(code), Reason: code.Reason, Code: code.Name, Retry: code.Retryable}
}

// words are all outcomes that outcomeOf may give.
func words() (out []httpapi.Outcome) {
	for _, code := range wallet.Codes() {
		out = append(out, outcome(code))
	}
	return out
}

// codeOf is the wallet's code for a refusal that every service knows.
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
	case httpapi.ReasonDraining, httpapi.ReasonDegraded, httpapi.ReasonRestored, httpapi.ReasonAmnesia, httpapi.ReasonCanceled, httpapi.ReasonTimeout:
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

// refusedError is a refusal by the ledger's rules, with the order that it refuses.
type refusedError struct {
	order wallet.Request
	owner bool // the caller may debit the account whose nonce it is
	*ledger.Reject
}

func (e *refusedError) Unwrap() error { return e.Reject }

// rules are what the wallet and its ledger refuse, and what the wallet says otherwise of a refusal that services share.
func rules() []httpapi.ErrorRule {
	return []httpapi.ErrorRule{
		{Is: httpapi.IsA[*BatchSizeError], Outcome: httpapi.Outcome{Status: http.StatusForbidden, Reason: "limits_exceeded", Code: codeLimits}, Title: "Batch too large",
			Details: func(error) httpapi.Details { return httpapi.Details{"limit": "batch_max_ops"} }},
		{Is: httpapi.IsA[*wallet.FieldError], Classify: outcomeOf, Title: "Malformed request", Text: fieldSaid,
			Details: indexed(httpapi.Field(func(e *wallet.FieldError) string { return e.Field }))},
		{Is: httpapi.IsA[*wallet.LimitError], Classify: outcomeOf, Title: "Beyond a limit", Text: limitSaid,
			Details: indexed(httpapi.Detail(func(e *wallet.LimitError) httpapi.Details { return httpapi.Details{"limit": e.Limit} }))},
		{Is: beyondToken, Classify: outcomeOf, Title: "Beyond a limit of the token", Text: limitSaid,
			Details: indexed(httpapi.Detail(func(e *engines.GrantError) httpapi.Details { return httpapi.Details{"limit": e.Caveat} }))},
		{Is: httpapi.Is(wallet.ErrSystemAccount), Classify: outcomeOf, Title: "Not allowed", Hint: hintSystem, Details: indexed(func(error) httpapi.Details { return httpapi.Details{"cause": "system_account"} })},
		{Is: httpapi.IsA[*wallet.ScopeError], Classify: outcomeOf, Title: "Not allowed", Text: scopeSaid,
			Details: indexed(httpapi.Detail(func(e *wallet.ScopeError) httpapi.Details { return httpapi.Details{"scope": e.Scope} }))},
		{Is: httpapi.Is(wallet.ErrForbidden), Classify: outcomeOf, Title: "Not allowed", Hint: httpapi.HintForbidden, Details: indexed(nil)},
		{Is: httpapi.Is(wallet.ErrUnknownAccount), Classify: outcomeOf, Title: "No such account", Details: httpapi.Told(httpapi.Details{"field": "account"}),
			Hint: "account: the ledger has not seen it, and nothing was done; \"new\":true in the body opens it"},
		{Is: httpapi.Is(wallet.ErrNotFound), Classify: outcomeOf, Title: "Not found", Hint: "there is no such record, or it is not yours to see"},
		{Is: httpapi.Is(wallet.ErrInFlight), Classify: outcomeOf, Title: "Still under way", Wait: httpapi.WaitBusy,
			Hint: "a request with this Idempotency-Key is being worked on; send the same one again to get its answer"},
		{Is: httpapi.Is(ledger.ErrCursor), Classify: outcomeOf, Title: "Malformed request", Hint: "cursor: is not one that this query gave",
			Details: func(error) httpapi.Details { return httpapi.Details{"field": "cursor"} }},
		{Is: httpapi.Is(ledger.ErrRange), Classify: outcomeOf, Title: "Range not served",
			Hint: "the ledger does not reach that far; GET /v1/ledger/head says how far it does"},
		{Is: outcomeIs(true), Classify: outcomeOf, Title: "Outcome unknown", Wait: httpapi.WaitDegraded, Hint: hintUnknown, Details: httpapi.Told(httpapi.Details{"outcome": "unknown"})},
		{Is: outcomeIs(false), Classify: outcomeOf, Title: "The ledger does not answer", Wait: httpapi.WaitDegraded,
			Hint: hintNothing, Details: httpapi.Told(httpapi.Details{"outcome": "none"})},
		{Is: unreadable, Classify: outcomeOf, Title: "The record cannot be read", Wait: httpapi.WaitDegraded,
			Details: inSafeMode,
			Hint:    "what this has to read is damaged; of a write that meets it nothing was done, and whether an earlier one with its key did, GET /v1/history tells; " + hintSafeMode},
		{Is: httpapi.Is(errNeverThatFar), Classify: outcomeOf, Title: "The ledger takes no writes", Wait: httpapi.WaitDegraded,
			Details: func(error) httpapi.Details { return httpapi.Details{"cause": causeSafeMode, "field": "min_seq"} },
			Hint:    "min_seq: is not reached, and will not be before the ledger takes writes again; without it the balance is read as it stands; " + hintSafeMode},
		{Is: httpapi.Is(ledger.ErrSafeMode), Classify: outcomeOf, Title: "The ledger takes no writes", Wait: httpapi.WaitDegraded,
			Details: inSafeMode,
			Hint:    "nothing was done by this request; whether an earlier one with its key did, GET /v1/history tells; " + hintSafeMode},
		{Is: httpapi.Is(ledger.ErrFull), Classify: outcomeOf, Title: "Storage is full", Wait: httpapi.WaitDegraded, Hint: "nothing was written; reads go on"},
		{Is: httpapi.Is(ledger.ErrNotFound), Classify: outcomeOf, Title: "Not found", Hint: "there is no such record, or it is not yours to see"},
		{Is: httpapi.IsA[*wallet.BehindError], Classify: outcomeOf, Title: "The ledger is not that far", Wait: httpapi.WaitDegraded, Details: behind,
			Hint: "min_seq: is not reached; take it from a receipt of this ledger (ledger.seq), or ask again later"},
		{Is: httpapi.Any(httpapi.IsA[*wallet.NotReadyError], httpapi.Is(ledger.ErrLoading)), Classify: outcomeOf, Title: "Not ready", Wait: httpapi.WaitDegraded,
			Hint: hintNothing, Details: notReady},
		{Is: httpapi.IsA[*engines.GrantError], Classify: outcomeOf, Title: "Not allowed", Text: httpapi.DeniedText, Details: indexed(httpapi.DeniedDetails)},
		{Is: httpapi.Is(httpapi.ErrBodyTooLarge), Title: "Body too large", Details: httpapi.Told(httpapi.Details{"limit": "body"}),
			Outcome: httpapi.Outcome{Status: http.StatusRequestEntityTooLarge, Reason: httpapi.ReasonBodyCap, Code: codeLimits}},
		{Is: unknown, Title: "Outcome unknown", Wait: httpapi.WaitDegraded, Hint: hintUnknown, Details: httpapi.Told(httpapi.Details{"outcome": "unknown"}),
			Outcome: httpapi.Outcome{Status: http.StatusServiceUnavailable, Reason: httpapi.ReasonCommitUnsure, Code: "UPSTREAM_UNAVAILABLE", Retry: true}},
	}
}

// unknown finds a commit whose outcome nobody knows; a store that failed says more.
func unknown(err error) bool {
	return errors.Is(err, flow.ErrUnknown) && !errors.Is(err, store.ErrPoisoned)
}

// hintSystem is about the accounts that no token opens.
const hintSystem = "accounts that begin with sys: are the ledger's own: no request pays from or to one; who may see all accounts may read " +
	"sys:issue:<asset>"

const causeSafeMode = "safe_mode"

func inSafeMode(error) httpapi.Details {
	return httpapi.Details{"cause": causeSafeMode, "outcome": "none"}
}

// notReady says what the wallet lacks.
func notReady(err error) httpapi.Details {
	var e *wallet.NotReadyError
	if !errors.As(err, &e) {
		return httpapi.Details{"cause": wallet.CauseStarting, "outcome": "none"}
	}
	return httpapi.Details{"cause": e.Cause, "outcome": "none"}
}

// behind says how far the ledger is.
func behind(err error) httpapi.Details {
	var e *wallet.BehindError
	_ = errors.As(err, &e)
	return httpapi.Details{"field": "min_seq", "reached_seq": e.Have}
}

// unreadable finds damage that was met by reading, not by a write that safe mode refuses.
func unreadable(err error) bool {
	return errors.Is(err, ledger.ErrSafeMode) && errors.Is(err, store.ErrCorrupt)
}

// outcomeIs finds an answer that did not come.
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

// beyondToken finds amounts above what a token allows, which is a limit like the wallet's own.
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

// indexed adds which operation of a batch is at fault.
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

// rejectRules are the ledger's rules.
func rejectRules() []httpapi.ErrorRule {
	reject := func(code record.Result, title, hint string, more func(*refusedError) httpapi.Details) httpapi.ErrorRule {
		r := httpapi.ErrorRule{Classify: outcomeOf, Title: title, Hint: hint, Is: func(err error) bool {
			e, ok := errors.AsType[*ledger.Reject](err)
			return ok && e.Code == code
		}}
		r.Details = indexed(func(err error) httpapi.Details {
			e := &refusedError{}
			if !errors.As(err, &e) && !errors.As(err, &e.Reject) || more == nil {
				return nil
			}
			return more(e)
		})
		return r
	}
	limit := func(code record.Result) httpapi.ErrorRule {
		r := reject(code, "Beyond a limit", "", limitOf)
		r.Text = limitSaid
		return r
	}
	named := func(name string) func(*refusedError) httpapi.Details {
		return func(*refusedError) httpapi.Details { return httpapi.Details{"field": name} }
	}
	return []httpapi.ErrorRule{
		reject(record.IdemConflict, "Key is taken", "this Idempotency-Key stands for another request; choose a new key for a new request", nil),
		reject(record.Expired, "Too late", "valid_until: is over; nothing was done", named("valid_until")),
		lockedRule(reject(record.AccountLocked, "Account is locked", "", partyOf)),
		reject(record.AssetUnknown, "No such asset", "asset: is not declared here; GET /v1/assets lists those that are", named("asset")),
		reject(record.NonceReused, "Nonce is used",
			"nonce: was used before; GET /v1/account says the next one, and details.committed_txid what used it, if that was the last", nonceOf),
		reject(record.NonceGap, "Nonce is ahead", "nonce: one before it was not used yet; GET /v1/account says the next one", nonceOf),
		limit(record.LimitOp), limit(record.LimitDaily), limit(record.LimitTotal), limit(record.LimitHolds),
		reject(record.HoldUnknown, "No such hold", "hold: there is none of this txid, or it is not yours", nil),
		reject(record.HoldClosed, "Hold is closed", "hold: was captured or released before", nil),
		reject(record.HoldExpired, "Hold is over", "hold: its time is over; what it held is the payer's again", nil),
		unknownPayer(reject(record.InsufficientFunds, "No such payer", "from: nobody has ever paid this account, so it has nothing to give: is its name right?", payerDetail)),
		reject(record.InsufficientFunds, "Not enough", "amount_minor: there is less to spend than the amount, or less held than is to be captured", assetDetail),
		reject(record.Aborted, "Not done", "another operation of its batch was refused", nil),
		reject(record.OnceConflict, "Id is taken", "this id stands for another settlement", nil),
	}
}

func limitOf(e *refusedError) httpapi.Details { return httpapi.Details{"limit": e.Limit} }

// lockedRule tells which side of an operation a flag forbids.
func lockedRule(r httpapi.ErrorRule) httpapi.ErrorRule {
	r.Text = func(err error) string {
		var e *ledger.Reject
		_ = errors.As(err, &e)
		word := map[string]string{"from": "from: a flag forbids this account to give", "to": "to: a flag forbids this account to take"}[e.Party]
		return cmp.Or(word, "a flag of one of the accounts forbids it") + "; GET /v1/account shows the flags"
	}
	return r
}

func partyOf(e *refusedError) httpapi.Details {
	if e.Party == "" {
		return nil
	}
	return httpapi.Details{"field": e.Party}
}

// unknownPayer narrows a rule about funds to accounts that the ledger has not seen.
func unknownPayer(r httpapi.ErrorRule) httpapi.ErrorRule {
	r.Is = func(err error) bool {
		e, ok := errors.AsType[*ledger.Reject](err)
		return ok && e.Code == record.InsufficientFunds && e.Unknown
	}
	return r
}

func payerDetail(e *refusedError) httpapi.Details {
	d := assetDetail(e)
	if d == nil {
		d = httpapi.Details{}
	}
	d["field"], d["cause"] = "from", "account_unknown"
	return d
}

func assetDetail(e *refusedError) httpapi.Details {
	if e.order.Asset == "" {
		return nil
	}
	return httpapi.Details{"asset": e.order.Asset}
}

// nonceOf is where the sequence of an account stands, for a caller who may debit it only.
func nonceOf(e *refusedError) httpapi.Details {
	if !e.owner {
		return httpapi.Details{"field": memberNonce.first()}
	}
	d := httpapi.Details{"field": memberNonce.first(), "expected_nonce": e.Expected}
	if !e.Committed.IsZero() {
		d["committed_txid"] = e.Committed.String()
	}
	return d
}

// limitSaid names what is beyond a limit, the limit, and what to do.
func limitSaid(err error) string {
	var reject *ledger.Reject
	var own *wallet.LimitError
	var token *engines.GrantError
	limit := ""
	switch {
	case errors.As(err, &reject):
		limit = reject.Limit
	case errors.As(err, &own):
		limit = own.Limit
	case errors.As(err, &token):
		limit = token.Caveat
	}
	return limitWords(limit) + "; nothing was done"
}

func limitWords(limit string) string {
	switch limit {
	case ledger.LimitPerOp:
		return "amount_minor: is more than one operation may move (wallet.max_amount_per_op): move less at once"
	case ledger.LimitDaily:
		return "amount_minor: is more than the account may still give today (wallet.daily_ceiling): the day ends at 00:00 UTC"
	case ledger.LimitTokenDaily:
		return "amount_minor: is more than the token still allows today (ceiling_daily): the day ends at 00:00 UTC"
	case ledger.LimitAccountTotal:
		return "amount_minor: the receiver would have more than an account may (wallet.max_account_total)"
	case ledger.LimitOpenHolds:
		return "there are as many open holds as may be (wallet.max_open_holds): capture or release some"
	case "ceiling":
		return "amount_minor: is above the token's ceiling, which `ronbox token inspect` shows"
	case "ceiling_daily":
		return "amount_minor: is above the token's ceiling_daily, which `ronbox token inspect` shows"
	case "batch_max_ops":
		return "ops: are more than a batch may hold (wallet.batch_max_ops): send the rest as another one, under a key of its own"
	}
	return "details.limit says which"
}
