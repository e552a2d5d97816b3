package rewarder

import (
	"cmp"
	"net/http"

	"ronbox/engines/rewarder"
	"ronbox/httpapi"
	"ronbox/store"
)

// codes maps shared reasons to the codes of the rewarder. All other reasons map to BAD_REQUEST.
var codes = map[string]string{
	httpapi.ReasonUnauth:       "UNAUTHENTICATED",
	httpapi.ReasonForbidden:    "UNAUTHORIZED",
	httpapi.ReasonNotFound:     "NOT_FOUND",
	httpapi.ReasonConflict:     "CONFLICT",
	httpapi.ReasonBusy:         "BUSY",
	httpapi.ReasonInflight:     "BUSY",
	httpapi.ReasonRate:         "RATE_LIMITED",
	httpapi.ReasonTimeout:      "TIMEOUT",
	httpapi.ReasonCommitUnsure: "TIMEOUT",
	httpapi.ReasonDraining:     "DRAINING",
	httpapi.ReasonCanceled:     "DRAINING",
	httpapi.ReasonStoreFull:    "STORE_FULL",
	httpapi.ReasonDegraded:     "DEPENDENCY_UNAVAILABLE",
	httpapi.ReasonRestored:     "DEPENDENCY_UNAVAILABLE",
	httpapi.ReasonAmnesia:      "DEPENDENCY_UNAVAILABLE",
	httpapi.ReasonNotLeader:    "DEPENDENCY_UNAVAILABLE",
	httpapi.ReasonStoreFailed:  "DEPENDENCY_UNAVAILABLE",
	httpapi.ReasonInternal:     "INTERNAL",
	httpapi.ReasonMethod:       "METHOD_NOT_ALLOWED",
	"corrupt":                  "CORRUPT",
}

func codeOf(reason string) string { return cmp.Or(codes[reason], "BAD_REQUEST") }

// rules maps the errors of the rewarder to answers, and overrides some shared ones.
func rules() []httpapi.ErrorRule {
	conflict := httpapi.ErrorRule{
		Outcome: httpapi.Outcome{Status: http.StatusConflict, Reason: httpapi.ReasonConflict, Code: "CONFLICT"},
		Title:   "Conflict",
	}
	field := func(e *rewarder.FieldError) string { return e.Field }
	return []httpapi.ErrorRule{
		{
			Is: httpapi.IsA[*rewarder.FieldError],
			Outcome: httpapi.Outcome{
				Status: http.StatusBadRequest,
				Reason: httpapi.ReasonMalformed,
				Code:   "BAD_REQUEST",
			},
			Title:   "Malformed request",
			Details: httpapi.Field(field),
		},
		{
			Is:      httpapi.Is(rewarder.ErrNotFound),
			Outcome: httpapi.Outcome{Status: http.StatusNotFound, Reason: httpapi.ReasonNotFound, Code: "NOT_FOUND"},
			Hint:    "it does not exist; GET /rewarder/epochs lists the epochs",
			Title:   "Not found",
		},
		conflict.When(httpapi.IsA[*rewarder.ConflictError]).
			With(httpapi.Detail(func(e *rewarder.ConflictError) httpapi.Details {
				return httpapi.Details{"what": e.What, "stands": e.Has, "given": e.Given}
			})),
		{
			Is:      httpapi.IsA[*rewarder.QuotaError],
			Outcome: httpapi.Outcome{Status: http.StatusInsufficientStorage, Reason: "quota", Code: "QUOTA_EXCEEDED"},
			Title:   "Quota exceeded",
			Hint: "nothing was written: seal and run, or drop, uploads that no run uses; " +
				"`ronbox rewarder inputs ls` lists them",
			Details: httpapi.Detail(func(e *rewarder.QuotaError) httpapi.Details {
				return httpapi.Details{"key": e.Key, "used_bytes": e.Used, "limit_bytes": e.Limit}
			}),
		},
		conflict.When(httpapi.IsA[*rewarder.QuarantineError]).As("quarantined").Called("QUARANTINED", "Quarantined").
			With(httpapi.Detail(func(e *rewarder.QuarantineError) httpapi.Details {
				q := e.Run.Quarantine
				return httpapi.Details{
					"run_key":    e.Run.RunKey,
					"commitment": e.Run.Commitment,
					"kind":       q.Kind,
					"cause":      q.Reason,
					"has":        q.Has,
					"need":       q.Need,
					"account":    q.Account,
				}
			})),
		{
			Is: httpapi.Is(rewarder.ErrDraining),
			Outcome: httpapi.Outcome{
				Status: http.StatusServiceUnavailable,
				Reason: httpapi.ReasonDraining,
				Code:   "DRAINING",
				Retry:  true,
			},
			Title: "Node is draining",
			Wait:  httpapi.WaitDrain,
			Hint:  "nothing was begun; the node is shutting down",
		},
		{
			Is:      httpapi.Is(rewarder.ErrLate),
			Outcome: httpapi.Outcome{Status: http.StatusGatewayTimeout, Reason: httpapi.ReasonTimeout, Code: "TIMEOUT"},
			Title:   "Deadline passed",
			Details: httpapi.Told(httpapi.Details{"outcome": "none"}),
			Hint:    "the deadline has passed: nothing was begun",
		},
		{
			Is: httpapi.Is(store.ErrSlow),
			Outcome: httpapi.Outcome{
				Status: http.StatusServiceUnavailable,
				Reason: "slow_storage",
				Code:   "DEPENDENCY_UNAVAILABLE",
				Retry:  true,
			},
			Title:   "Storage is slow",
			Wait:    httpapi.WaitDegraded,
			Details: httpapi.Told(httpapi.Details{"outcome": "none", "peer": "store"}),
			Hint:    "nothing was begun; send it again after Retry-After",
		},
		{
			Is: httpapi.Is(rewarder.ErrNoPins),
			Outcome: httpapi.Outcome{
				Status: http.StatusServiceUnavailable,
				Reason: httpapi.ReasonDegraded,
				Code:   "DEPENDENCY_UNAVAILABLE",
				Retry:  true,
			},
			Title:   "Not ready",
			Wait:    httpapi.WaitDegraded,
			Details: httpapi.Told(httpapi.Details{"peer": "registry"}),
		},
		{
			Is: httpapi.Is(rewarder.ErrNoLedger),
			Outcome: httpapi.Outcome{
				Status: http.StatusServiceUnavailable,
				Reason: httpapi.ReasonDegraded,
				Code:   "DEPENDENCY_UNAVAILABLE",
				Retry:  true,
			},
			Title:   "Not ready",
			Wait:    httpapi.WaitDegraded,
			Hint:    "the ledger did not answer, and nothing was begun; send it again after Retry-After",
			Details: httpapi.Told(httpapi.Details{"peer": "ledger"}),
		},
	}
}
