package rewarder

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"ronbox/engines/rewarder"
	"ronbox/httpapi"
	rewarderapi "ronbox/httpapi/wire/rewarder"
	"ronbox/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every error of the engine has a status, a code, and the details that a caller needs.
func TestErrorsAsAnswers(t *testing.T) {
	run := rewarder.Run{
		State:      rewarder.Quarantined,
		Quarantine: &rewarder.Quarantine{Kind: rewarder.KindEgress, Reason: "funds", Has: "1", Need: "2"},
	}
	for _, tt := range []struct {
		err     error
		status  int
		reason  string
		retry   bool
		details httpapi.Details // some of them
	}{
		{&rewarder.FieldError{Field: "metrics", Reason: "x"}, http.StatusBadRequest, "malformed", false, httpapi.Details{"field": "metrics"}},
		{rewarder.ErrNotFound, http.StatusNotFound, "not_found", false, nil},
		{&rewarder.ConflictError{What: "epoch", Has: "a", Given: "b"}, http.StatusConflict, "conflict", false, httpapi.Details{"stands": "a", "given": "b"}},
		{&rewarder.QuarantineError{Run: run}, http.StatusConflict, "quarantined", false, httpapi.Details{"kind": "egress", "cause": "funds", "has": "1", "need": "2"}},
		{&rewarder.ConflictError{What: "next part", Has: "1", Given: "3"}, http.StatusConflict, "conflict", false, httpapi.Details{"what": "next part", "stands": "1"}},
		{&rewarder.QuotaError{Key: "rewarder.inputs.max_bytes", Used: 1, Limit: 2}, http.StatusInsufficientStorage, "quota", false,
			httpapi.Details{"key": "rewarder.inputs.max_bytes", "limit_bytes": uint64(2)}},
		{rewarder.ErrDraining, http.StatusServiceUnavailable, "draining", true, nil},
		{rewarder.ErrLate, http.StatusGatewayTimeout, "timeout", false, httpapi.Details{"outcome": "none"}},
		{store.ErrSlow, http.StatusServiceUnavailable, "slow_storage", true, httpapi.Details{"outcome": "none", "peer": "store"}},
		{fmt.Errorf("%w: %w", rewarder.ErrNoPins, errors.New("stale")), http.StatusServiceUnavailable, "degraded", true, httpapi.Details{"peer": "registry"}},
		{fmt.Errorf("%w: %w", rewarder.ErrNoLedger, context.DeadlineExceeded), http.StatusServiceUnavailable, "degraded", true, httpapi.Details{"peer": "ledger"}},
	} {
		err := fmt.Errorf("what was done: %w", tt.err)
		all := errorMaps()
		at := slices.IndexFunc(all, func(m httpapi.Map) bool { return m.Is(err) })
		if at < 0 {
			t.Errorf("%v: no Map knows it", tt.err)
			continue
		}
		row := rewarderapi.Refusals.Find(all[at].Reason, all[at].Cause)
		if row.Status != tt.status || row.Reason != tt.reason || row.Retry != tt.retry {
			t.Errorf("%v: %+v, want %d %s", tt.err, row, tt.status, tt.reason)
		}
		for name, want := range tt.details {
			if got := all[at].Details(err)[name]; got != want {
				t.Errorf("%v: details.%s = %v, want %v", tt.err, name, got, want)
			}
		}
	}
	if slices.ContainsFunc(errorMaps(), func(m httpapi.Map) bool { return m.Is(errors.New("a bug")) }) {
		t.Error("a Map knows what no one does")
	}
}
