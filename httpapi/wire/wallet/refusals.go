package wallet

import (
	"net/http"
	"slices"

	"ronbox/httpapi/refusal"
	"ronbox/httpapi/wire/ledger"
)

// Refusals has the rows of the wallet and of its ledger.
var Refusals = slices.Concat(own, ledger.Refusals)

// own has the rows of the wallet itself.
var own = refusal.Table{
	{
		Reason: "limits_exceeded", Title: "Beyond a limit", Status: http.StatusForbidden,
		Exit:    refusal.ExitFailed,
		Means:   "The request exceeds a limit of the wallet, which details.limit names.",
		Changed: "Nothing.",
		Next:    "Send less at once, or raise the limit that is named.",
	},
	{
		Reason: "limits_exceeded", Cause: "batch", Title: "Batch too large",
		Status: http.StatusForbidden, Exit: refusal.ExitFailed,
		Means:   "The batch has more operations than wallet.batch_max_ops.",
		Changed: "Nothing.",
		Next:    "Send the others in another batch with another key.",
	},
	{
		Reason: "limits_exceeded", Cause: "token", Title: "Beyond a limit of the token",
		Status: http.StatusForbidden, Exit: refusal.ExitFailed,
		Means:   "The amount is above a ceiling of the token.",
		Changed: "Nothing.",
		Next:    "Move a smaller amount, or use another token. `ronbox token inspect` shows its ceilings.",
	},
	{
		Reason: "forbidden", Cause: "system_account", Title: "Not allowed",
		Status: http.StatusForbidden, Exit: refusal.ExitFailed,
		Means: "Accounts that begin with sys: belong to the ledger: no request pays from or to one. A caller that " +
			"may see all accounts may read sys:issue:<asset>.",
		Changed: "Nothing.",
		Next:    "Name another account: no token reaches this one.",
	},
	{
		Reason: "account_unknown", Title: "No such account", Status: http.StatusNotFound,
		Means:   "The account does not exist.",
		Changed: "Nothing.",
		Next:    "Check the name. `ronbox wallet freeze --new` locks an account that was never paid.",
		Call:    "Send \"new\":true in the body to open it.",
	},
	{
		Reason: "payee_unknown", Title: "No such payee", Status: http.StatusNotFound,
		Means:   "The payee does not exist, and the request must not open it.",
		Changed: "Nothing.",
		Next:    "Check the name. Without --existing the payment opens the account.",
		Call:    "Without payee=existing a payment opens it.",
	},
	{
		Reason: "not_found", Title: "Not found", Status: http.StatusNotFound,
		Means:   "The record does not exist, or the caller may not see it.",
		Changed: "Nothing.",
		Next:    "Check the txid: `ronbox wallet history ACCOUNT` shows those of an account.",
		Call:    "GET /v1/history shows the records of an account.",
	},
	{
		Reason: "seq_ahead", Title: "The ledger is not that far", Status: http.StatusConflict,
		Means: "The reader has seen a record that the ledger does not have: " +
			"the ledger was restored, or is another one.",
		Changed: "Nothing.",
		Next: "Compare your records with the ledger up to details.head_seq. Then follow after that one: " +
			"`ronbox wallet events --after`.",
		Call: "Compare your records with GET /v1/payments. Then follow after details.head_seq.",
	},
	{
		Reason: "idem_in_flight", Title: "Still in progress",
		Status: http.StatusConflict, Retry: true, Wait: refusal.WaitBusy,
		Means:   "A request with this Idempotency-Key is in progress.",
		Changed: "Nothing by this request. The earlier one may complete.",
		Next:    "Run the same command again to get the answer of the earlier one.",
		Call:    "Send the same request again to get its answer.",
	},
	{
		Reason: "upstream", Title: "The ledger does not answer",
		Status: http.StatusServiceUnavailable, Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The ledger did not answer.",
		Changed: "Nothing.",
		Next:    "Run the same command again. `ronbox status` shows the cause.",
		Call:    "Send the same request again after Retry-After.",
	},
	{
		Reason: "upstream", Cause: "outcome_unknown", Title: "Outcome unknown",
		Status: http.StatusServiceUnavailable, Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The ledger did not answer in time.",
		Changed: "Unknown. It may have taken effect.",
		Next:    "Run the same command again: it takes effect at most once.",
		Call: "Send the same request again, with the same Idempotency-Key, to get the outcome: " +
			"it is never done twice.",
	},
	{
		Reason: "timeout", Cause: "deadline", Title: "Not ready",
		Status: http.StatusServiceUnavailable, Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The deadline passed while the request was queued.",
		Changed: "Nothing.",
		Next:    "Run the same command again, or allow more with --timeout.",
		Call:    "Send the same request again, with a later deadline if it has one.",
	},
	{
		Reason: "timeout", Cause: "min_seq", Title: "The ledger is not that far",
		Status: http.StatusServiceUnavailable, Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The ledger does not reach the record that the request waits for.",
		Changed: "Nothing.",
		Next:    "Use ledger.seq of a receipt of this ledger, or try again later.",
	},
}
