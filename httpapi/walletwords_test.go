package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"ronbox/httpapi/wire"
)

// checkWords holds that a refusal names the field that it is about, says why, and, where there is a doubt, how to find out.
func checkWords(t *testing.T, doc string, p wire.Problem) {
	t.Helper()
	field, named := p.Details["field"].(string)
	if named && !strings.Contains(p.Detail, field+": ") && !strings.Contains(p.Detail, "header "+field) {
		t.Errorf("%s: %q does not begin with the field %s", doc, p.Detail, field)
	}
	if limit, ok := p.Details["limit"].(string); ok {
		of := map[string]string{
			"per_op": "wallet.max_amount_per_op", "daily": "wallet.daily_ceiling", "token_daily": "ceiling_daily", "account_total": "wallet.max_account_total",
			"open_holds": "wallet.max_open_holds", "ceiling": "token's ceiling", "ceiling_daily": "ceiling_daily", "batch_max_ops": "ops: ", "body": "server.max_body_bytes",
		}[limit]
		if of == "" || !strings.Contains(p.Detail, of) {
			t.Errorf("%s: %q does not say which limit", doc, p.Detail)
		}
	}
	why := map[string]string{
		"insufficient_funds": "amount_minor: there is less to spend than the amount", "nonce_reused": "was used before", "nonce_gap": "not used yet", "hold_closed": "hold: was captured or released before",
		"hold_expired": "hold: its time is over", "hold_unknown": "hold: there is none of this txid, or it is not yours", "account_locked": "a flag of one of the accounts",
		"idem_conflict": "stands for another request", "idem_in_flight": "send the same one again to get its answer", "asset_unknown": "not declared",
		reasonBusy: "nothing was enqueued", reasonInflight: "nothing was begun", reasonRate: "after Retry-After", reasonStoreFull: "nothing was written", reasonUnauth: "send a token", reasonForbidden: " ",
		reasonInternal: "corr_id", reasonRestored: "accept-restore", reasonDraining: "nothing was done", "expired": "is over",
	}[p.Reason]
	if !strings.Contains(p.Detail, why) {
		t.Errorf("%s: %q, want %q in it", doc, p.Detail, why)
	}
	switch p.Details["outcome"] {
	case "unknown":
		if !strings.Contains(p.Detail, "same request") {
			t.Errorf("%s: %q does not say how to find out", doc, p.Detail)
		}
	case "none":
		if !strings.Contains(p.Detail, "nothing was") && !strings.Contains(p.Detail, "before anything was done") {
			t.Errorf("%s: %q does not say that nothing was done", doc, p.Detail)
		}
	}
}

// checkRetryAfter: whole seconds from 1 on wherever it makes sense to come again, the same outside the body as in it, none elsewhere.
func checkRetryAfter(t *testing.T, doc string, w *httptest.ResponseRecorder, p wire.Problem) {
	t.Helper()
	want := w.Code == 429 || w.Code == 503 || w.Code == 507 || p.Code == "IDEMPOTENCY_IN_FLIGHT"
	given := w.Header().Get("Retry-After")
	if n, _ := strconv.Atoi(given); want != (n >= 1) || given != "" && n != p.RetryAfter {
		t.Errorf("%s: Retry-After %q, in the body %d", doc, given, p.RetryAfter)
	}
	if (w.Header().Get("WWW-Authenticate") != "") != (w.Code == http.StatusUnauthorized) {
		t.Errorf("%s: challenged as %q", doc, w.Header().Get("WWW-Authenticate"))
	}
}
