package wallet

import (
	"net/http"
	"strconv"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	walletapi "ronbox/httpapi/wire/wallet"
)

// receiptRoom is the usual size of a receipt, bytes.
const receiptRoom = 640

// sendAnswer sends a receipt, or the results of a batch: with 207 if some of its ops were refused.
func sendAnswer(c *httpapi.Request, a wallet.Answer) error {
	c.MarkReplayed(a.Replayed)
	if a.Batch {
		body, status := batchAnswer(a.Outcome)
		return c.Send(status, httpapi.CacheNone, body)
	}
	return c.Send(http.StatusOK, httpapi.CacheNone, a.Receipt.AppendJSON(make([]byte, 0, receiptRoom)))
}

// sendMinimal sends the results of a batch to a caller that prefers them without the receipts.
func sendMinimal(c *httpapi.Request, a wallet.Answer) error {
	c.MarkReplayed(a.Replayed)
	c.Set(walletapi.PreferenceApplied, walletapi.PreferMinimal)
	body, status := minimalAnswer(a.Outcome)
	return c.Send(status, httpapi.CacheNone, body)
}

// minimalRoom is the usual size of a result without its receipt, bytes.
const minimalRoom = 80

// minimalAnswer renders the results of a batch as batchAnswer does, with the txid of an executed op
// instead of its receipt, and with the root of the batch. An op that an earlier batch has executed
// has the root of that one. The receipts have all else; they can be read by their txids.
func minimalAnswer(out ledger.Outcome) (body []byte, status int) {
	status = http.StatusOK
	var newest *record.Receipt
	for i := range out.Results {
		one := &out.Results[i]
		if one.Reject == nil && (newest == nil || one.Receipt.Batch > newest.Batch) {
			newest = &one.Receipt
		}
	}
	b := append(make([]byte, 0, minimalRoom*len(out.Results)+128), `{"results":[`...)
	for i := range out.Results {
		one := &out.Results[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"index":`...), int64(i), 10)
		if one.Reject == nil {
			b, _ = one.Receipt.TxID.AppendText(append(b, `,"status":200,"txid":"`...))
			b = append(b, '"')
			if one.Receipt.Batch != newest.Batch {
				b = appendRoot(b, one.Receipt.Root)
			}
		} else {
			status = http.StatusMultiStatus
			b = appendRefusal(b, one.Reject, out.Receipt.Version == record.ReceiptVersion)
		}
		b = append(b, '}')
	}
	b = append(b, ']')
	if newest != nil {
		b = appendRoot(b, newest.Root)
	}
	return append(b, '}'), status
}

func appendRoot(b []byte, root b3.Digest) []byte {
	b, _ = root.AppendText(append(b, `,"root":"`...))
	return append(b, '"')
}

// batchAnswer renders the results of a batch. A refused op has its code and the text that belongs
// to the code, because the journal keeps no more; so a repetition gets the same bytes.
//
// There are two renderers, each with golden vectors: a repetition must get the bytes of the first
// answer. The renderers, the table told and the renderer of receipts are never edited. The version
// of a batch's record selects the renderer; a batch without a record is never repeated and takes
// the newest. Another form needs a new version of records and a renderer beside these.
func batchAnswer(out ledger.Outcome) (body []byte, status int) {
	status = http.StatusOK
	b := append(make([]byte, 0, receiptRoom*len(out.Results)+32), `{"results":[`...)
	for i := range out.Results {
		one := &out.Results[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"index":`...), int64(i), 10)
		if one.Reject == nil {
			b = one.Receipt.AppendJSON(append(b, `,"status":200,"receipt":`...))
		} else {
			status = http.StatusMultiStatus
			b = appendRefusal(b, one.Reject, out.Receipt.Version == record.ReceiptVersion)
		}
		b = append(b, '}')
	}
	return append(b, `]}`...), status
}

// told has the words of renderers 1 and 2 for each reason of a refused op. code is of former
// releases: no problem has it.
var told = map[string]struct {
	status int
	code   string
	retry  bool
}{
	"idem_conflict":      {http.StatusUnprocessableEntity, "IDEMPOTENCY_CONFLICT", false},
	"expired":            {http.StatusBadRequest, "BAD_REQUEST", false},
	"account_locked":     {http.StatusConflict, "ACCOUNT_LOCKED", false},
	"asset_unknown":      {http.StatusBadRequest, "BAD_REQUEST", false},
	"nonce_reused":       {http.StatusConflict, "NONCE_CONFLICT", false},
	"nonce_gap":          {http.StatusConflict, "NONCE_CONFLICT", true},
	"limit_op":           {http.StatusForbidden, "LIMITS_EXCEEDED", false},
	"limit_daily":        {http.StatusForbidden, "LIMITS_EXCEEDED", false},
	"limit_total":        {http.StatusForbidden, "LIMITS_EXCEEDED", false},
	"limit_holds":        {http.StatusForbidden, "LIMITS_EXCEEDED", false},
	"hold_unknown":       {http.StatusNotFound, "HOLD_NOT_FOUND", false},
	"hold_closed":        {http.StatusConflict, "HOLD_CLOSED", false},
	"hold_expired":       {http.StatusConflict, "HOLD_EXPIRED", false},
	"insufficient_funds": {http.StatusConflict, "INSUFFICIENT_FUNDS", false},
	"aborted":            {http.StatusConflict, "ABORTED", true},
	"once_conflict":      {http.StatusUnprocessableEntity, "IDEMPOTENCY_CONFLICT", false},
	"reference_conflict": {http.StatusConflict, "REFERENCE_CONFLICT", false},
	"decimals_set":       {http.StatusConflict, "DECIMALS_SET", false},
	"period_closed":      {http.StatusGone, "PERIOD_CLOSED", false},
	"internal":           {http.StatusInternalServerError, "Internal", false},
}

// saidGap is the detail of renderer 2 for a nonce that is ahead.
const saidGap = "a nonce before it was not used; this answer stays as it is: once that nonce is used, send this " +
	"op anew in another request, with a " +
	"new Idempotency-Key"

// appendRefusal appends the members status and error of a result. Renderer 1 shows a refusal as if
// the op had come alone. In renderer 2 no refusal is retryable, because only another request can
// succeed.
func appendRefusal(b []byte, r *ledger.Reject, former bool) []byte {
	reason := wallet.ReasonOf(r)
	words, known := told[reason]
	if !known {
		reason, words = httpapi.ReasonInternal, told[httpapi.ReasonInternal]
	}
	b = strconv.AppendInt(append(b, `,"status":`...), int64(words.status), 10)
	b = append(append(append(b, `,"error":{"code":"`...), words.code...), `","reason":"`...)
	b = append(append(b, reason...), `","retryable":`...)
	b = strconv.AppendBool(b, words.retry && former)
	if r.Code == record.NonceGap && !former {
		b = append(append(append(b, `,"detail":"`...), saidGap...), '"')
	}
	return append(b, '}')
}
