package wallet

import (
	"net/http"
	"strconv"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
)

// statusOf is the status of a code of the wallet.
func statusOf(c wallet.Code) int {
	switch c.Name {
	case "BAD_REQUEST":
		return http.StatusBadRequest
	case "FORBIDDEN", codeLimits:
		return http.StatusForbidden
	case "NOT_FOUND", "HOLD_NOT_FOUND":
		return http.StatusNotFound
	case "IDEMPOTENCY_IN_FLIGHT", "ACCOUNT_LOCKED", "NONCE_CONFLICT", "HOLD_CLOSED", "HOLD_EXPIRED", "INSUFFICIENT_FUNDS", "ABORTED":
		return http.StatusConflict
	case "IDEMPOTENCY_CONFLICT":
		return http.StatusUnprocessableEntity
	case "BUSY":
		return http.StatusTooManyRequests
	case "RETRY_LATER", "UPSTREAM_UNAVAILABLE":
		return http.StatusServiceUnavailable
	case "STORE_FULL":
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}

// receiptRoom is what a receipt takes as a rule, bytes.
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

// batchAnswer lists the results of a batch. An op that was refused shows its code, and words that belong to it, since no more of it is kept: so
// the bytes are the same whenever they are asked for.
//
// There are two renderers, for which golden vectors stand: a repetition must get the bytes that the first answer had. Nothing in them, in statusOf,
// the wallet's table of codes and the renderer of receipts is ever edited. The version of a batch's record says which renderer its answer takes; one
// that has none is never asked for again and takes the newest. So another form begins with a new version of records and stands beside these.
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

// saidGap is what renderer 2 says of a nonce that was ahead.
const saidGap = "a nonce before it was not used; this answer stays as it is: once that nonce is used, send this op anew in another request, with a " +
	"new Idempotency-Key"

// appendRefusal appends the members status and error of a result. Renderer 1 has a refusal as if the op had come alone; in renderer 2 none is
// retryable, since another request may do better and the same one never.
func appendRefusal(b []byte, r *ledger.Reject, former bool) []byte {
	c := wallet.CodeOf(r)
	b = strconv.AppendInt(append(b, `,"status":`...), int64(statusOf(c)), 10)
	b = append(append(append(b, `,"error":{"code":"`...), c.Name...), `","reason":"`...)
	b = append(append(b, c.Reason...), `","retryable":`...)
	b = strconv.AppendBool(b, c.Retryable && former)
	if r.Code == record.NonceGap && !former {
		b = append(append(append(b, `,"detail":"`...), saidGap...), '"')
	}
	return append(b, '}')
}
