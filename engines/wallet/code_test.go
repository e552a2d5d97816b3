package wallet_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
	tables "ronbox/httpapi/refusal"
	walletapi "ronbox/httpapi/wire/wallet"
)

// rowOf returns the row of an error in the table of refusals.
func rowOf(err error) *tables.Row {
	row := *walletapi.Refusals.Find(wallet.ReasonOf(err), "")
	if slices.Contains(tables.Shared, row) {
		row.Code = walletapi.CodeOf(row.Reason)
	}
	return &row
}

// Every reason of the engine has a row in the table of refusals. A single op and an op of a batch
// have the same reason.
func TestEveryReasonHasARow(t *testing.T) {
	word := regexp.MustCompile(`^[a-z_]+$`)
	for _, reason := range wallet.AllReasons() {
		if walletapi.Refusals.Find(reason, "") == nil || !word.MatchString(reason) {
			t.Errorf("%s has no row", reason)
		}
	}
	for r := record.Replayed + 1; r.Known(); r++ {
		for _, err := range []error{&ledger.Reject{Code: r}, &wallet.IndexError{3, &ledger.Reject{Code: r}}} {
			if got := wallet.ReasonOf(err); got != r.String() {
				t.Errorf("%v: %s, want %s", err, got, r)
			}
		}
	}
}

func TestCodes(t *testing.T) {
	for _, tt := range []struct {
		err       error
		name      string
		retryable bool
	}{
		{&wallet.FieldError{"to", "is wrong"}, "BAD_REQUEST", false},
		{&wallet.IndexError{1, &wallet.FieldError{"to", "is wrong"}}, "BAD_REQUEST", false},
		{ledger.ErrCursor, "BAD_REQUEST", false},
		{fmt.Errorf("x: %w", ledger.ErrRange), "BAD_REQUEST", false},
		{wallet.ErrForbidden, "FORBIDDEN", false}, {wallet.ErrSystemAccount, "FORBIDDEN", false},
		{&engines.GrantError{Caveat: "account"}, "FORBIDDEN", false},
		{&engines.GrantError{Caveat: "asset"}, "FORBIDDEN", false},
		{&engines.GrantError{Caveat: "ceiling"}, "LIMITS_EXCEEDED", false},
		{&engines.GrantError{Caveat: "ceiling_daily"}, "LIMITS_EXCEEDED", false},
		{&wallet.LimitError{"batch_max_ops"}, "LIMITS_EXCEEDED", false},
		{wallet.ErrNotFound, "NOT_FOUND", false},
		{wallet.ErrInFlight, "IDEMPOTENCY_IN_FLIGHT", true},
		{flow.ErrBusy, "BUSY", true},
		{errors.New("bug"), "INTERNAL_ERROR", false},
		{&wallet.NotReadyError{Cause: wallet.CauseLedger}, "RETRY_LATER", true},
		{flow.ErrClosed, "RETRY_LATER", true},
		{context.DeadlineExceeded, "RETRY_LATER", true},
		{context.Canceled, "RETRY_LATER", true},
		{ledger.ErrLoading, "RETRY_LATER", true},
		{&wallet.OutcomeError{Unknown: true, Cause: context.DeadlineExceeded}, "UPSTREAM_UNAVAILABLE", true},
		{&wallet.OutcomeError{Cause: upstream.ErrOpen}, "UPSTREAM_UNAVAILABLE", true},
		{ledger.ErrSafeMode, "UPSTREAM_UNAVAILABLE", true},
		{ledger.ErrFull, "STORE_FULL", true},
	} {
		if row := rowOf(tt.err); row.Code != tt.name || row.Retry != tt.retryable {
			t.Errorf("%v: %+v, want %s %v", tt.err, row, tt.name, tt.retryable)
		}
	}
}

// RETRY_LATER has the reason "timeout" if the time ran out, and "degraded" if a dependency was not
// ready.
func TestReasonsOfRetryLater(t *testing.T) {
	for err, want := range map[error]string{
		&wallet.NotReadyError{Cause: wallet.CauseDeadline}: "timeout",
		context.DeadlineExceeded:                           "timeout",
		&wallet.BehindError{Want: 2, Have: 1}:              "timeout",
		&wallet.NotReadyError{Cause: wallet.CauseCanceled}: "degraded",
		&wallet.NotReadyError{Cause: wallet.CauseLedger}:   "degraded",
		context.Canceled:  "degraded",
		ledger.ErrLoading: "degraded",
	} {
		row := rowOf(fmt.Errorf("x: %w", err))
		if row.Reason != want || row.Code != "RETRY_LATER" || !row.Retry {
			t.Errorf("%v: %+v, want the reason %s", err, row, want)
		}
	}
}

// Error messages name the next step: how to resolve an unknown outcome, or that the request can be
// retried.
func TestOutcomeSaysWhatNext(t *testing.T) {
	for want, err := range map[string]error{
		"outcome unknown: the same request with the same key finds out": &wallet.OutcomeError{Unknown: true, Cause: flow.ErrUnknown},
		"nothing was done": &wallet.OutcomeError{Cause: upstream.ErrOpen},
		"ask again":        wallet.ErrInFlight,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
}
