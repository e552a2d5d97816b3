package wallet_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
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
	return walletapi.Refusals.Find(wallet.ReasonOf(err), "")
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

func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		err       error
		name      string
		retryable bool
	}{
		{&wallet.FieldError{"to", "is wrong"}, "malformed", false},
		{&wallet.IndexError{1, &wallet.FieldError{"to", "is wrong"}}, "malformed", false},
		{ledger.ErrCursor, "malformed", false},
		{fmt.Errorf("x: %w", ledger.ErrRange), "malformed", false},
		{wallet.ErrForbidden, "forbidden", false}, {wallet.ErrSystemAccount, "forbidden", false},
		{&engines.GrantError{Caveat: "account"}, "forbidden", false},
		{&engines.GrantError{Caveat: "asset"}, "forbidden", false},
		{&engines.GrantError{Caveat: "ceiling"}, "limits_exceeded", false},
		{&engines.GrantError{Caveat: "ceiling_daily"}, "limits_exceeded", false},
		{&wallet.LimitError{"batch_max_ops"}, "limits_exceeded", false},
		{wallet.ErrNotFound, "not_found", false},
		{wallet.ErrInFlight, "idem_in_flight", true},
		{flow.ErrBusy, "busy", true},
		{errors.New("bug"), "internal", false},
		{&wallet.NotReadyError{Cause: wallet.CauseLedger}, "degraded", true},
		{flow.ErrClosed, "degraded", true},
		{context.DeadlineExceeded, "timeout", true},
		{context.Canceled, "degraded", true},
		{ledger.ErrLoading, "degraded", true},
		{&wallet.OutcomeError{Unknown: true, Cause: context.DeadlineExceeded}, "upstream", true},
		{&wallet.OutcomeError{Cause: upstream.ErrOpen}, "upstream", true},
		{ledger.ErrSafeMode, "upstream", true},
		{ledger.ErrFull, "store_full", true},
	} {
		if row := rowOf(tt.err); row.Reason != tt.name || row.Retry != tt.retryable {
			t.Errorf("%v: %+v, want %s %v", tt.err, row, tt.name, tt.retryable)
		}
	}
}

// A refusal that may be repeated later has the reason "timeout" if the time ran out, and "degraded" if a dependency was not
// ready.
func TestReasonsToRetryLater(t *testing.T) {
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
		if row.Reason != want || !row.Retry {
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
