package wallet

import (
	"errors"
	"path/filepath"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	ledgerhttp "ronbox/httpapi/ledger"
	ledgerapi "ronbox/httpapi/wire/ledger"
	"ronbox/store"
)

// refusedError is a refusal by the ledger's rules with the refused order.
type refusedError struct {
	order ledger.Op
	owner bool // the caller may debit the account of the nonce
	*ledger.Reject
}

func (e *refusedError) Unwrap() error { return e.Reject }

// declaredError is returned for the declaration of an asset that a closed period has.
type declaredError struct{ *ledger.Reject }

func (e *declaredError) Unwrap() error { return e.Reject }

// errorMaps maps the errors of the wallet and of its ledger to their rows.
func errorMaps() []httpapi.Map {
	is, none := httpapi.Is, httpapi.Details{"outcome": "none"}
	return append(rejects(), []httpapi.Map{
		{Is: httpapi.IsA[*BatchSizeError], Reason: "limits_exceeded", Cause: "batch", Text: httpapi.Said,
			Details: httpapi.Told(httpapi.Details{"limit": "batch_max_ops"})},
		{Is: httpapi.IsA[*wallet.FieldError], Reason: httpapi.ReasonMalformed, Text: fieldSaid,
			Details: indexed(httpapi.Field(func(e *wallet.FieldError) string { return e.Field }))},
		{Is: httpapi.IsA[*wallet.LimitError], Reason: "limits_exceeded", Text: limitSaid,
			Details: indexed(httpapi.Detail(func(e *wallet.LimitError) httpapi.Details {
				return httpapi.Details{"limit": e.Limit}
			}))},
		{Is: beyondToken, Reason: "limits_exceeded", Cause: "token", Text: limitSaid,
			Details: indexed(httpapi.Detail(func(e *engines.GrantError) httpapi.Details {
				return httpapi.Details{"limit": e.Caveat}
			}))},
		{Is: is(wallet.ErrSystemAccount), Reason: httpapi.ReasonForbidden, Cause: "system_account",
			Details: indexed(nil)},
		{Is: httpapi.IsA[*wallet.ScopeError], Reason: httpapi.ReasonForbidden, Text: scopeSaid,
			Details: indexed(httpapi.Detail(func(e *wallet.ScopeError) httpapi.Details {
				return httpapi.Details{"scope": e.Scope}
			}))},
		{Is: is(wallet.ErrForbidden), Reason: httpapi.ReasonForbidden, Details: indexed(nil)},
		{Is: is(wallet.ErrUnknownAccount), Reason: "account_unknown",
			Details: httpapi.Told(httpapi.Details{"field": "account"})},
		{Is: is(wallet.ErrUnknownPayee), Reason: "payee_unknown",
			Details: httpapi.Told(httpapi.Details{"field": "to"})},
		{Is: httpapi.Any(is(wallet.ErrNotFound), is(ledger.ErrNotFound)), Reason: httpapi.ReasonNotFound},
		{Is: is(wallet.ErrInFlight), Reason: "idem_in_flight"},
		{Is: is(ledger.ErrCursor), Reason: httpapi.ReasonMalformed,
			Details: httpapi.Told(httpapi.Details{"field": "cursor"}),
			Text:    func(error) string { return "cursor: was not returned for this query" }},
		{Is: httpapi.IsA[*SeqAheadError], Reason: "seq_ahead", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *SeqAheadError) httpapi.Details {
				return httpapi.Details{"head_seq": e.Head}
			})},
		{Is: httpapi.IsA[*ledger.ClosedError], Reason: record.PeriodClosed.String(), Cause: ledgerapi.CauseRead,
			Details: httpapi.Detail(func(e *ledger.ClosedError) httpapi.Details {
				d := periodDetails(e)
				d["first_seq"] = e.FirstSeq
				return d
			})},
		{Is: httpapi.IsA[*ledgerhttp.NoPeriodError], Reason: httpapi.ReasonNotFound, Cause: ledgerapi.CausePeriod},
		{Is: is(ledger.ErrRange), Reason: httpapi.ReasonMalformed, Cause: "range"},
		{Is: outcomeIs(true), Reason: "upstream", Cause: "outcome_unknown",
			Details: httpapi.Told(httpapi.Details{"outcome": "unknown"})},
		{Is: is(store.ErrNotLeader), Reason: httpapi.ReasonNotLeader, Details: httpapi.Told(none)},
		{Is: outcomeIs(false), Reason: "upstream", Details: httpapi.Told(none)},
		{Is: unreadable, Reason: "upstream", Cause: ledgerapi.CauseSafeMode, Details: httpapi.Told(none),
			Text: func(error) string { return "a record that this request has to read is damaged; nothing was done" }},
		{Is: is(errNeverThatFar), Reason: "upstream", Cause: ledgerapi.CauseSafeMode,
			Details: httpapi.Told(httpapi.Details{"field": "min_seq"}),
			Text: func(error) string {
				return "min_seq: is not reached before the ledger accepts writes again; without it the balance is " +
					"read as it stands"
			}},
		{Is: is(ledger.ErrSafeMode), Reason: "upstream", Cause: ledgerapi.CauseSafeMode, Details: httpapi.Told(none)},
		{Is: is(ledger.ErrFull), Reason: httpapi.ReasonStoreFull},
		{Is: httpapi.IsA[*wallet.BehindError], Reason: httpapi.ReasonTimeout, Cause: wallet.CauseMinSeq,
			Details: behind},
		{Is: late, Reason: httpapi.ReasonTimeout, Cause: wallet.CauseDeadline, Details: httpapi.Told(none)},
		{Is: httpapi.Any(httpapi.IsA[*wallet.NotReadyError], is(ledger.ErrLoading)), Reason: httpapi.ReasonDegraded,
			Text: notReadySaid, Details: notReady},
		{Is: httpapi.IsA[*engines.GrantError], Reason: httpapi.ReasonForbidden, Text: httpapi.DeniedText,
			Details: indexed(httpapi.DeniedDetails)},
		{Is: is(httpapi.ErrBodyTooLarge), Reason: httpapi.ReasonBodyCap, Text: httpapi.Said,
			Details: httpapi.Told(httpapi.Details{"limit": "body"})},
	}...)
}

// rejects maps the refusals by the ledger's rules.
func rejects() []httpapi.Map {
	reject := func(code record.Result, more func(*refusedError) httpapi.Details) httpapi.Map {
		return httpapi.Map{
			Reason: code.String(),
			Is: func(err error) bool {
				e, ok := errors.AsType[*ledger.Reject](err)
				return ok && e.Code == code
			},
			Details: indexed(func(err error) httpapi.Details {
				e := &refusedError{}
				if !errors.As(err, &e) && !errors.As(err, &e.Reject) || more == nil {
					return nil
				}
				return more(e)
			}),
		}
	}
	limit := func(code record.Result) httpapi.Map {
		m := reject(code, func(e *refusedError) httpapi.Details { return httpapi.Details{"limit": e.Limit} })
		m.Text = limitSaid
		return m
	}
	named := func(name string) func(*refusedError) httpapi.Details {
		return func(*refusedError) httpapi.Details { return httpapi.Details{"field": name} }
	}
	locked := reject(record.AccountLocked, partyOf)
	locked.Text = lockedSaid
	payer := reject(record.InsufficientFunds, payerDetail)
	payer.Cause, payer.Is = "account_unknown", payerUnknown
	declared := reject(record.PeriodClosed, func(e *refusedError) httpapi.Details { return periodDetails(e.Closed) })
	declared.Cause, declared.Is = ledgerapi.CauseDeclared, httpapi.IsA[*declaredError]
	return []httpapi.Map{
		declared,
		reject(record.IdemConflict, nil),
		reject(record.Expired, named("valid_until")),
		locked,
		reject(record.AssetUnknown, named("asset")),
		reject(record.NonceReused, nonceOf),
		reject(record.NonceGap, nonceOf),
		limit(record.LimitOp),
		limit(record.LimitDaily),
		limit(record.LimitTotal),
		limit(record.LimitHolds),
		reject(record.HoldUnknown, nil),
		reject(record.HoldClosed, nil),
		reject(record.HoldExpired, nil),
		payer,
		reject(record.InsufficientFunds, assetDetail),
		reject(record.Aborted, nil),
		reject(record.OnceConflict, nil),
		reject(record.ReferenceConflict, named("reference")),
		reject(record.DecimalsSet, named("decimals")),
		reject(record.PeriodClosed, func(e *refusedError) httpapi.Details { return periodDetails(e.Closed) }),
	}
}

// periodDetails describes a closed period, if it is known.
func periodDetails(c *ledger.ClosedError) httpapi.Details {
	if c == nil {
		return nil
	}
	return httpapi.Details{
		"period": c.Period, "to_seq": c.ToSeq, "to_at": ledgerhttp.Instant(c.ToAt), "file": filepath.Base(c.File),
	}
}

// lockedSaid names the side of an operation that a flag forbids.
func lockedSaid(err error) string {
	var e *ledger.Reject
	_ = errors.As(err, &e)
	switch e.Party {
	case "from":
		return "from: a flag forbids this account to pay"
	case "to":
		return "to: a flag forbids this account to be paid"
	}
	return "a flag of one of the accounts forbids the operation"
}

func partyOf(e *refusedError) httpapi.Details {
	if e.Party == "" {
		return nil
	}
	return httpapi.Details{"field": e.Party}
}

// payerUnknown reports whether the payer is an account that the ledger has never seen.
func payerUnknown(err error) bool {
	e, ok := errors.AsType[*ledger.Reject](err)
	return ok && e.Code == record.InsufficientFunds && e.Unknown
}

func payerDetail(e *refusedError) httpapi.Details {
	d := assetDetail(e)
	if d == nil {
		d = httpapi.Details{}
	}
	d["field"] = "from"
	return d
}

func assetDetail(e *refusedError) httpapi.Details {
	if e.order.Asset == "" {
		return nil
	}
	return httpapi.Details{"asset": e.order.Asset}
}

// nonceOf returns the next nonce of an account, to a caller that may debit the account.
func nonceOf(e *refusedError) httpapi.Details {
	if !e.owner {
		return httpapi.Details{"field": "nonce"}
	}
	d := httpapi.Details{"field": "nonce", "expected_nonce": e.Expected}
	if !e.Committed.IsZero() {
		d["committed_txid"] = e.Committed.String()
	}
	return d
}

// notReady returns the cause for which the wallet is not ready.
func notReady(err error) httpapi.Details {
	var e *wallet.NotReadyError
	if !errors.As(err, &e) {
		return httpapi.Details{"cause": wallet.CauseStarting, "outcome": "none"}
	}
	return httpapi.Details{"cause": e.Cause, "outcome": "none"}
}

// notReadySaid explains why the wallet is not ready, if more than the cause is known.
func notReadySaid(err error) string {
	if e, ok := errors.AsType[*wallet.NotReadyError](err); ok && e.Detail != "" {
		return e.Cause + ": " + e.Detail + "; nothing was done"
	}
	return ""
}

// late reports whether the time of a request was over while it was queued.
func late(err error) bool {
	e, ok := errors.AsType[*wallet.NotReadyError](err)
	return ok && e.Cause == wallet.CauseDeadline
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
	return "this operation needs the scope " + e.Scope
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

// limitSaid names the member, the limit that it exceeds, and the remedy.
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
		return "amount_minor: exceeds the limit of one operation (wallet.max_amount_per_op): split the amount"
	case ledger.LimitDaily:
		return "amount_minor: exceeds the rest of the account's daily ceiling (wallet.daily_ceiling): the day " +
			"ends at 00:00 UTC"
	case ledger.LimitTokenDaily:
		return "amount_minor: exceeds the rest of the token's daily ceiling (ceiling_daily): the day ends at 00:00 UTC"
	case ledger.LimitAccountTotal:
		return "amount_minor: the balance of the receiver would exceed its limit (wallet.max_account_total)"
	case ledger.LimitOpenHolds:
		return "the maximum number of holds is open (wallet.max_open_holds): capture or release some"
	case "ceiling":
		return "amount_minor: is above the token's ceiling, which `ronbox token inspect` shows"
	case "ceiling_daily":
		return "amount_minor: is above the token's ceiling_daily, which `ronbox token inspect` shows"
	case "batch_max_ops":
		return "ops: are more than a batch may have (wallet.batch_max_ops): send the others in another batch with " +
			"another key"
	}
	return "details.limit names the limit"
}
