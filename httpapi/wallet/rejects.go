package wallet

import (
	"cmp"
	"errors"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
)

// rejectRules returns the refusals by the ledger's rules.
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
		reject(record.IdemConflict, "Key is taken",
			"this Idempotency-Key stands for another request; choose a new key for a new request", nil),
		reject(record.Expired, "Too late", "valid_until: is over; nothing was done", named("valid_until")),
		lockedRule(reject(record.AccountLocked, "Account is locked", "", partyOf)),
		reject(record.AssetUnknown, "No such asset", "asset: is not declared; GET /v1/assets lists the declared "+
			"assets",
			named("asset")),
		reject(
			record.NonceReused,
			"Nonce is used",
			"nonce: was used before; GET /v1/account shows the next one; if it was the last nonce, "+
				"details.committed_txid names the transaction that used it",
			nonceOf,
		),
		reject(record.NonceGap, "Nonce is ahead",
			"nonce: one before it was not used yet; GET /v1/account says the next one", nonceOf),
		limit(record.LimitOp),
		limit(record.LimitDaily),
		limit(record.LimitTotal),
		limit(record.LimitHolds),
		reject(record.HoldUnknown, "No such hold", "hold: there is none of this txid, or it is not yours", nil),
		reject(record.HoldClosed, "Hold is closed", "hold: was captured or released before", nil),
		reject(record.HoldExpired, "Hold has expired", "hold: its time is over; its amount was returned to "+
			"the payer", nil),
		unknownPayer(
			reject(record.InsufficientFunds, "No such payer",
				"from: nobody has ever paid this account, so it has no money: check its name", payerDetail),
		),
		reject(record.InsufficientFunds, "Not enough",
			"amount_minor: there is less to spend than the amount, or less on hold than the amount to "+
				"capture", assetDetail),
		reject(record.Aborted, "Not done", "another operation of the batch was refused", nil),
		reject(record.OnceConflict, "Id is taken", "this id belongs to another settlement", nil),
		reject(record.ReferenceConflict, "Reference is taken",
			"reference: is bound to another operation; GET /v1/tx?reference= shows it", named("reference")),
		reject(record.DecimalsSet, "Decimals are set",
			"decimals: the asset has other decimals, and they are set once; GET /v1/assets shows them",
			named("decimals")),
	}
}

func limitOf(e *refusedError) httpapi.Details { return httpapi.Details{"limit": e.Limit} }

// lockedRule names the side of an operation that a flag forbids.
func lockedRule(r httpapi.ErrorRule) httpapi.ErrorRule {
	r.Text = func(err error) string {
		var e *ledger.Reject
		_ = errors.As(err, &e)
		word := map[string]string{"from": "from: a flag forbids this account to pay", "to": "to: a flag " +
			"forbids this account to be paid"}[e.Party]
		return cmp.Or(word, "a flag of one of the accounts forbids the operation") + "; GET /v1/account shows the flags"
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
