package ledger

import (
	"net/http"

	"ronbox/httpapi/refusal"
)

// Refusals has the rows of refusals by the rules of the ledger and of its reads. They are refusals
// of the service wallet.
var Refusals = refusal.Table{
	{
		Reason: "idem_conflict", Title: "Key is taken",
		Status:  http.StatusUnprocessableEntity,
		Means:   "This Idempotency-Key stands for another request.",
		Changed: "Nothing.",
		Next: "`ronbox wallet history ACCOUNT` shows the earlier request. Repeat it unchanged, or omit --key for a " +
			"new one.",
		Call: "Choose a new key for a new request; a repetition must have the same body.",
	},
	{
		Reason: "expired", Title: "Too late", Status: http.StatusBadRequest,
		Means:   "The time limit of the request is over.",
		Changed: "Nothing.",
		Next:    "Set a later valid_until, or none.",
	},
	{
		Reason: "account_locked", Title: "Account is locked", Status: http.StatusConflict,
		Means:   "A flag of one of the accounts forbids the operation.",
		Changed: "Nothing.",
		Next:    "`ronbox wallet seq ACCOUNT` shows its flags, `ronbox wallet unfreeze` clears them.",
		Call:    "GET /v1/account shows the flags.",
	},
	{
		Reason: "asset_unknown", Title: "No such asset", Status: http.StatusBadRequest,
		Means:   "The asset is not declared in the ledger.",
		Changed: "Nothing.",
		Next:    "`ronbox wallet assets` lists the declared assets, --declare adds one.",
		Call:    "GET /v1/assets lists the declared assets.",
	},
	{
		Reason: "nonce_reused", Title: "Nonce is used", Status: http.StatusConflict,
		Means:   "The nonce was used before.",
		Changed: "Nothing by this request.",
		Next: "`ronbox wallet seq ACCOUNT` shows the next nonce, which is assigned if --nonce is omitted; " +
			"`ronbox wallet history ACCOUNT` shows the operation that used this one.",
		Call: "GET /v1/account shows the next one. If it was the last nonce, details.committed_txid names the " +
			"transaction that used it.",
	},
	{
		Reason: "nonce_gap", Title: "Nonce is ahead", Status: http.StatusConflict, Retry: true,
		Means:   "A nonce before this one was not used yet.",
		Changed: "Nothing.",
		Next: "Send the missing operation first. `ronbox wallet seq ACCOUNT` shows the next nonce, which is " +
			"assigned if --nonce is omitted.",
		Call: "GET /v1/account shows the next one.",
	},
	{
		Reason: "limit_op", Title: "Beyond a limit", Status: http.StatusForbidden,
		Exit:    refusal.ExitFailed,
		Means:   "The amount exceeds the limit of one operation (wallet.max_amount_per_op).",
		Changed: "Nothing.",
		Next:    "Split the amount, or raise the limit.",
	},
	{
		Reason: "limit_daily", Title: "Beyond a limit", Status: http.StatusForbidden,
		Exit:    refusal.ExitFailed,
		Means:   "The payment exceeds the rest of the daily ceiling of the account or of the token.",
		Changed: "Nothing.",
		Next:    "Wait until 00:00 UTC, raise wallet.daily_ceiling, or use another token.",
	},
	{
		Reason: "limit_total", Title: "Beyond a limit", Status: http.StatusForbidden,
		Exit:    refusal.ExitFailed,
		Means:   "The balance of the receiver would exceed its limit (wallet.max_account_total).",
		Changed: "Nothing.",
		Next:    "Pay another account, or raise the limit.",
	},
	{
		Reason: "limit_holds", Title: "Beyond a limit", Status: http.StatusForbidden,
		Exit:    refusal.ExitFailed,
		Means:   "The account has the maximum number of open holds (wallet.max_open_holds).",
		Changed: "Nothing.",
		Next:    "Capture or release some of them: `ronbox wallet history ACCOUNT` shows its holds.",
	},
	{
		Reason: "hold_unknown", Title: "No such hold", Status: http.StatusNotFound,
		Means:   "There is no hold of this txid, or it belongs to another owner.",
		Changed: "Nothing.",
		Next:    "`ronbox wallet history ACCOUNT` shows its holds and how they ended.",
		Call:    "GET /v1/history shows the holds of an account.",
	},
	{
		Reason: "hold_closed", Title: "Hold is closed", Status: http.StatusConflict,
		Means:   "The hold was captured or released before.",
		Changed: "Nothing.",
		Next:    "`ronbox wallet history ACCOUNT` shows its holds and how they ended.",
		Call:    "GET /v1/history shows the holds of an account.",
	},
	{
		Reason: "hold_expired", Title: "Hold has expired", Status: http.StatusConflict,
		Means:   "The time of the hold is over; its amount was returned to the payer.",
		Changed: "Nothing.",
		Next:    "Create a new hold. `ronbox wallet history ACCOUNT` shows its holds and how they ended.",
		Call:    "Create a new hold.",
	},
	{
		Reason: "insufficient_funds", Title: "Not enough", Status: http.StatusConflict,
		Means: "The payer has less to spend than the amount, or less on hold than the amount to " +
			"capture.",
		Changed: "Nothing.",
		Next: "`ronbox wallet balance ACCOUNT` shows the amount that can be spent, `ronbox wallet history ACCOUNT` " +
			"the amounts on hold.",
		Call: "GET /v1/balance shows the amount that can be spent.",
	},
	{
		Reason: "insufficient_funds", Cause: "account_unknown", Title: "No such payer",
		Status:  http.StatusConflict,
		Means:   "Nobody has ever paid this account, so it has no money.",
		Changed: "Nothing.",
		Next:    "Check the name of the payer: it was never paid.",
	},
	{
		Reason: "aborted", Title: "Not done", Status: http.StatusConflict, Retry: true,
		Means:   "The operation was not carried out, because another one of the batch was refused.",
		Changed: "Nothing.",
		Next:    "Correct the operation that was refused, then send the batch with a new key.",
	},
	{
		Reason: "once_conflict", Title: "Id is taken",
		Status:  http.StatusUnprocessableEntity,
		Means:   "The id belongs to another settlement.",
		Changed: "Nothing.",
		Next:    "Choose another id. `ronbox wallet history ACCOUNT` shows the earlier settlement.",
		Call:    "Choose another id.",
	},
	{
		Reason: "reference_conflict", Title: "Reference is taken",
		Status:  http.StatusConflict,
		Means:   "The reference is bound to another operation.",
		Changed: "Nothing by this request.",
		Next: "`ronbox wallet tx --reference REFERENCE` shows that operation. Use another reference for another " +
			"operation.",
		Call: "GET /v1/tx?reference= shows it. Use another reference for another operation.",
	},
	{
		Reason: "decimals_set", Title: "Decimals are set", Status: http.StatusConflict,
		Means:   "The asset has other decimals, and they are set once.",
		Changed: "Nothing.",
		Next:    "`ronbox wallet assets` shows the decimals. Declare another asset for other ones.",
		Call:    "GET /v1/assets shows them.",
	},
	{
		Reason: "period_closed", Title: "Period is closed", Status: http.StatusGone,
		Means:   "The payment with this reference was made, in a period of the ledger that is closed.",
		Changed: "Nothing by this request.",
		Next: "Do not pay it again, nor under another reference: it was paid in period {period}, and {file} has the " +
			"record.",
		Call: "Do not pay it again, nor under another reference. details.file has the record.",
	},
	{
		Reason: "period_closed", Cause: CauseRead, Title: "Period is closed", Status: http.StatusGone,
		Means: "This is of a period that was closed: its records are in the file of the period, and no longer in " +
			"the ledger.",
		Changed: "Nothing.",
		Next: "{file} has the records up to {to_seq}: `ronbox ledger proof TXID --periods DIR` proves one, DIR being " +
			"the folder of the file. Begin a list with record {first_seq}.",
		Call: "details.file has the records up to details.to_seq: `ronbox ledger proof TXID --periods DIR` proves " +
			"one. Begin a list with record details.first_seq.",
	},
	{
		Reason: "period_closed", Cause: CauseDeclared, Title: "Declared before", Status: http.StatusGone,
		Means: "The asset is declared, with these decimals if some were given, in a closed period: its file has the " +
			"record.",
		Changed: "Nothing, and nothing needs to be.",
		Next:    "`ronbox wallet assets` shows it.",
		Call:    "GET /v1/assets shows it.",
	},
	{
		Reason: "not_found", Cause: CausePeriod, Title: "No such period", Status: http.StatusNotFound,
		Means:   "No period with this number is closed.",
		Changed: "Nothing.",
		Next:    "`ronbox ledger periods` lists the closed periods.",
		Call:    "GET /v1/ledger/periods lists the closed periods.",
	},
	{
		Reason: "malformed", Cause: "range", Title: "Range not served",
		Status:  http.StatusBadRequest,
		Means:   "The ledger does not reach that far.",
		Changed: "Nothing.",
		Next:    "`ronbox ledger head` shows the newest batch and record.",
		Call:    "GET /v1/ledger/head shows its newest batch and record.",
	},
	{
		Reason: "upstream", Cause: CauseSafeMode, Title: "The ledger is in safe mode",
		Status: http.StatusServiceUnavailable, Retry: true, Wait: refusal.WaitDegraded,
		Means: "The journal of the ledger did not verify, so the ledger takes no writes. Undamaged records can " +
			"be read.",
		Changed: "Nothing by this request. GET /v1/history shows whether an earlier request with its key was executed.",
		Next:    leaveSafeMode,
		Call:    leaveSafeMode,
	},
}

// Causes of refusals.
const (
	CauseSafeMode = "safe_mode" // the ledger is in safe mode
	CauseRead     = "read"      // of period_closed: nothing was to be paid
	CauseDeclared = "declared"  // of period_closed: an asset was to be declared
	CausePeriod   = "period"    // of not_found
)

const leaveSafeMode = "Stop the node, run `ronbox ledger verify`, " +
	"then `ronbox ledger rebuild` if only derived tables " +
	"are bad, and start the node: it verifies everything once more before it accepts writes."
