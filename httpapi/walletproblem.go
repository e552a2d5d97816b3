package httpapi

import (
	"errors"
	"net/http"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
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

// byCode fills in what the wallet says of err.
func (r row) byCode(err error) row {
	code := wallet.CodeOf(err)
	r.status, r.reason, r.code, r.retry = code.Status, code.Reason, code.Name, code.Retryable
	return r
}

// inWallet is r in the words of the wallet: its code for the reason, and 503 where others say 504.
func (r row) inWallet() row {
	r.code = walletCode(r.reason)
	if r.status == http.StatusGatewayTimeout {
		r.status = http.StatusServiceUnavailable
	}
	if r.status == http.StatusServiceUnavailable && r.wait == waitNone {
		r.wait = waitDegraded
	}
	switch r.reason {
	case reasonBodyCap:
		r.more = func(error) details { return details{"limit": "body"} }
	case reasonCommitUnsure:
		r.hint = hintUnknown
	}
	return r
}

// walletCode is the wallet's code for a refusal that every service knows.
func walletCode(reason string) string {
	switch reason {
	case reasonUnauth:
		return "UNAUTHORIZED"
	case reasonForbidden:
		return "FORBIDDEN"
	case reasonNotFound, reasonMethod:
		return "NOT_FOUND"
	case reasonBodyCap, reasonLimits:
		return codeLimits
	case reasonBusy, reasonRate, reasonInflight, reasonStreams:
		return "BUSY"
	case reasonDraining, reasonDegraded, reasonRestored, reasonAmnesia, reasonCanceled, reasonTimeout:
		return "RETRY_LATER"
	case reasonCommitUnsure, reasonStoreFailed:
		return "UPSTREAM_UNAVAILABLE"
	case reasonStoreFull:
		return "STORE_FULL"
	case reasonInternal:
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

// walletRows are what the wallet and its ledger refuse.
func walletRows() []row {
	return append(rejectRows(), []row{
		{is: as[*BatchSizeError], status: http.StatusForbidden, reason: reasonLimits, code: codeLimits, title: "Batch too large",
			more: func(error) details { return details{"limit": "batch_max_ops"} }},
		{is: as[*wallet.FieldError], coded: true, title: "Malformed request", say: fieldSaid,
			more: indexed(field(func(e *wallet.FieldError) string { return e.Field }))},
		{is: as[*wallet.LimitError], coded: true, title: "Beyond a limit", say: limitSaid,
			more: indexed(detail(func(e *wallet.LimitError) details { return details{"limit": e.Limit} }))},
		{is: beyondToken, coded: true, title: "Beyond a limit of the token", say: limitSaid,
			more: indexed(detail(func(e *engines.GrantError) details { return details{"limit": e.Caveat} }))},
		{is: is(wallet.ErrSystemAccount), coded: true, title: "Not allowed", hint: hintSystem, more: indexed(nil)},
		{is: is(wallet.ErrForbidden), coded: true, title: "Not allowed", hint: hintForbidden, more: indexed(nil)},
		{is: is(wallet.ErrNotFound), coded: true, title: "Not found", hint: "there is no such record, or it is not yours to see"},
		{is: is(wallet.ErrInFlight), coded: true, title: "Still under way", wait: waitBusy,
			hint: "a request with this Idempotency-Key is being worked on; send the same one again to get its answer"},
		{is: is(ledger.ErrCursor), coded: true, title: "Malformed request", hint: "cursor: is not one that this query gave",
			more: func(error) details { return details{"field": "cursor"} }},
		{is: is(ledger.ErrRange), coded: true, title: "Range not served",
			hint: "the ledger does not reach that far; GET /v1/ledger/head says how far it does"},
		{is: outcomeIs(true), coded: true, title: "Outcome unknown", wait: waitDegraded, hint: hintUnknown, more: outcome("unknown")},
		{is: outcomeIs(false), coded: true, title: "The ledger does not answer", wait: waitDegraded,
			hint: hintNothing, more: outcome("none")},
		{is: unreadable, coded: true, title: "The record cannot be read", wait: waitDegraded,
			more: inSafeMode,
			hint: "what this has to read is damaged; of a write that meets it nothing was done, and whether an earlier one with its key did, GET /v1/history tells; " + hintSafeMode},
		{is: is(errNeverThatFar), coded: true, title: "The ledger takes no writes", wait: waitDegraded,
			more: func(error) details { return details{"cause": causeSafeMode, "field": "min_seq"} },
			hint: "min_seq: is not reached, and will not be before the ledger takes writes again; without it the balance is read as it stands; " + hintSafeMode},
		{is: is(ledger.ErrSafeMode), coded: true, title: "The ledger takes no writes", wait: waitDegraded,
			more: inSafeMode,
			hint: "nothing was done by this request; whether an earlier one with its key did, GET /v1/history tells; " + hintSafeMode},
		{is: is(ledger.ErrFull), coded: true, title: "Storage is full", wait: waitDegraded, hint: "nothing was written; reads go on"},
		{is: is(ledger.ErrNotFound), coded: true, title: "Not found", hint: "there is no such record, or it is not yours to see"},
		{is: as[*wallet.BehindError], coded: true, title: "The ledger is not that far", wait: waitDegraded, more: behind,
			hint: "min_seq: is not reached; take it from a receipt of this ledger (ledger.seq), or ask again later"},
		{is: either(as[*wallet.NotReadyError], is(ledger.ErrLoading)), coded: true, title: "Not ready", wait: waitDegraded,
			hint: hintNothing, more: notReady},
	}...)
}

// hintSystem is about the accounts that no token opens.
const hintSystem = "accounts that begin with sys: are the ledger's own: no request pays from or to one; who may see all accounts may read " +
	"sys:issue:<asset>"

const causeSafeMode = "safe_mode"

func inSafeMode(error) details { return details{"cause": causeSafeMode, "outcome": "none"} }

// notReady says what the wallet lacks.
func notReady(err error) details {
	var e *wallet.NotReadyError
	if !errors.As(err, &e) {
		return details{"cause": wallet.CauseStarting, "outcome": "none"}
	}
	return details{"cause": e.Cause, "outcome": "none"}
}

// behind says how far the ledger is.
func behind(err error) details {
	var e *wallet.BehindError
	_ = errors.As(err, &e)
	return details{"field": "min_seq", "reached_seq": e.Have}
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

func fieldSaid(err error) string {
	var e *wallet.FieldError
	_ = errors.As(err, &e)
	return e.Field + ": " + e.Reason
}

// indexed adds which operation of a batch is at fault.
func indexed(more func(error) details) func(error) details {
	return func(err error) details {
		var at *wallet.IndexError
		var d details
		if more != nil {
			d = more(err)
		}
		if errors.As(err, &at) {
			if d == nil {
				d = details{}
			}
			d["index"] = at.Index
		}
		return d
	}
}

// rejectRows are the ledger's rules.
func rejectRows() []row {
	reject := func(code record.Result, title, hint string, more func(*refusedError) details) row {
		r := row{coded: true, title: title, hint: hint, is: func(err error) bool {
			e, ok := errors.AsType[*ledger.Reject](err)
			return ok && e.Code == code
		}}
		r.more = indexed(func(err error) details {
			e := &refusedError{}
			if !errors.As(err, &e) && !errors.As(err, &e.Reject) || more == nil {
				return nil
			}
			return more(e)
		})
		return r
	}
	limit := func(code record.Result) row {
		r := reject(code, "Beyond a limit", "", limitOf)
		r.say = limitSaid
		return r
	}
	named := func(name string) func(*refusedError) details {
		return func(*refusedError) details { return details{"field": name} }
	}
	return []row{
		reject(record.IdemConflict, "Key is taken", "this Idempotency-Key stands for another request; choose a new key for a new request", nil),
		reject(record.Expired, "Too late", "valid_until: is over; nothing was done", named("valid_until")),
		reject(record.AccountLocked, "Account is locked", "a flag of one of the accounts forbids it; GET /v1/account shows the flags", nil),
		reject(record.AssetUnknown, "No such asset", "asset: is not declared here; GET /v1/assets lists those that are", named("asset")),
		reject(record.NonceReused, "Nonce is used",
			"nonce: was used before; GET /v1/account says the next one, and details.committed_txid what used it, if that was the last", nonceOf),
		reject(record.NonceGap, "Nonce is ahead", "nonce: one before it was not used yet; GET /v1/account says the next one", nonceOf),
		limit(record.LimitOp), limit(record.LimitDaily), limit(record.LimitTotal), limit(record.LimitHolds),
		reject(record.HoldUnknown, "No such hold", "hold: there is none of this txid, or it is not yours", nil),
		reject(record.HoldClosed, "Hold is closed", "hold: was captured or released before", nil),
		reject(record.HoldExpired, "Hold is over", "hold: its time is over; what it held is the payer's again", nil),
		reject(record.InsufficientFunds, "Not enough", "amount_minor: there is less to spend than the amount, or less held than is to be captured", assetOf),
		reject(record.Aborted, "Not done", "another operation of its batch was refused", nil),
		reject(record.OnceConflict, "Id is taken", "this id stands for another settlement", nil),
	}
}

func limitOf(e *refusedError) details { return details{"limit": e.Limit} }

func assetOf(e *refusedError) details {
	if e.order.Asset == "" {
		return nil
	}
	return details{"asset": e.order.Asset}
}

// nonceOf tells who may debit the account where its sequence stands, and no one else.
func nonceOf(e *refusedError) details {
	if !e.owner {
		return details{"field": memberNonce.first()}
	}
	d := details{"field": memberNonce.first(), "expected_nonce": e.Expected}
	if !e.Committed.IsZero() {
		d["committed_txid"] = e.Committed.String()
	}
	return d
}
