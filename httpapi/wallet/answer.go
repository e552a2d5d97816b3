package wallet

import (
	"net/http"
	"strconv"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	ledgerapi "ronbox/httpapi/wire/ledger"
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

// batchAnswer renders the results of a batch. A refused op has its code and the text that belongs
// to the code, because the journal keeps no more; so a repetition gets the same bytes.
//
// There are two renderers, each with golden vectors: a repetition must get the bytes of the first
// answer. The renderers, the codes of the ledger's rows and the renderer of receipts are never
// edited. The version of a batch's record selects the renderer; a batch without a record is never
// repeated and takes the newest. Another form needs a new version of records and a renderer
// beside these.
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

// saidGap is the detail of renderer 2 for a nonce that is ahead.
const saidGap = "a nonce before it was not used; this answer stays as it is: once that nonce is used, send this " +
	"op anew in another request, with a " +
	"new Idempotency-Key"

// appendRefusal appends the members status and error of a result. Renderer 1 shows a refusal as if
// the op had come alone. In renderer 2 no refusal is retryable, because only another request can
// succeed.
func appendRefusal(b []byte, r *ledger.Reject, former bool) []byte {
	row := ledgerapi.Refusals.Find(wallet.ReasonOf(r), "")
	b = strconv.AppendInt(append(b, `,"status":`...), int64(row.Status), 10)
	b = append(append(append(b, `,"error":{"code":"`...), row.Code...), `","reason":"`...)
	b = append(append(b, row.Reason...), `","retryable":`...)
	b = strconv.AppendBool(b, row.Retry && former)
	if r.Code == record.NonceGap && !former {
		b = append(append(append(b, `,"detail":"`...), saidGap...), '"')
	}
	return append(b, '}')
}
