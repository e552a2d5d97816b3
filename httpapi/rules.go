package httpapi

import (
	"context"
	"net/http"
	"slices"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/inflate"
	"ronbox/store"
)

const (
	hintDrain = "nothing was done; the node is on its way down"
	hintRate  = "nothing was begun; send it again after Retry-After"
	hintLate  = "the deadline passed before it was begun: nothing was written"

	hintElsewhere = "only the node that leads judges tokens, and another one leads (`ronbox cluster status` " +
		"names it): ask that one, or this one over its socket or from a metrics_allow network"
)

// HintNotLeader is the hint of a refusal while no node of a cluster leads.
const HintNotLeader = "no node of the cluster leads at the moment; nothing was done: send it again after " +
	"Retry-After, to any node"

var (
	outcomeNone    = Told(Details{"outcome": "none"})
	outcomeUnknown = Told(Details{"outcome": "unknown"})
)

// sharedRules returns the rules that are tried in order after those of the service. An error
// without a rule is internal.
func sharedRules() []ErrorRule {
	return slices.Concat(requestRules(), accessRules(), storeRules(), waitingRules())
}

// internalRule is the rule for bugs.
func internalRule() ErrorRule {
	return ErrorRule{Outcome: Outcome{http.StatusInternalServerError, ReasonInternal, "Internal", false},
		Title: "Internal error", Hint: "the node's log has the cause under this corr_id"}
}

// requestRules are for errors of the request itself.
func requestRules() []ErrorRule {
	bad := ErrorRule{
		Outcome: Outcome{http.StatusBadRequest, ReasonMalformed, "Malformed", false},
		Title:   "Malformed request",
	}
	return []ErrorRule{
		bad.When(IsA[*BodyError]).As(ReasonSchema).With(Field(func(e *BodyError) string { return e.Field })),
		bad.When(IsA[*QueryError]).With(Field(func(e *QueryError) string { return e.Param })),
		bad.When(Any(Is(errNoBody), Is(errPath))),
		bad.When(IsA[*PathError]).With(Field(func(e *PathError) string { return e.Param })),
		bad.When(Is(errBodyCut)),
		bad.When(Is(errNested)),
		bad.When(Is(inflate.ErrStream)).Say("the body does not match its Content-Encoding"),
		bad.When(Is(inflate.ErrRatio)).As(ReasonRatioCap).Say("the body is too large after decompression; " +
			"send it uncompressed"),
		bad.When(Is(inflate.ErrTooLarge)).As(ReasonInflateCap).Say("the inflated body is too large"),
		bad.When(Any(Is(auth.ErrSpec), Is(engines.ErrAmount), Is(engines.ErrAccount), Is(engines.ErrAsset))),
		bad.When(IsA[*HeaderError]).As(ReasonBadHeader).With(Field(func(e *HeaderError) string { return e.Header })),
		{
			Is:      Is(errTarget),
			Outcome: Outcome{http.StatusRequestURITooLong, ReasonMalformed, "Malformed", false},
			Title:   "URI too long",
		},
		{
			Is:      Is(errHeaders),
			Outcome: Outcome{http.StatusRequestHeaderFieldsTooLarge, ReasonBadHeader, "Malformed", false},
			Title:   "Too many headers",
		},
		{
			Is:      Is(errLength),
			Outcome: Outcome{http.StatusLengthRequired, ReasonLength, "LengthRequired", false},
			Title:   "Length required",
		},
		{
			Is:      Any(Is(ErrBodyTooLarge), Is(store.ErrTooLarge)),
			Outcome: Outcome{http.StatusRequestEntityTooLarge, ReasonBodyCap, "PayloadTooLarge", false},
			Title:   "Body too large",
		},
		{
			Is: Any(Is(errMediaType), Is(errEncoding), Is(inflate.ErrEncoding), IsA[*mediaError]),
			Outcome: Outcome{
				http.StatusUnsupportedMediaType,
				ReasonMediaType,
				"UnsupportedType",
				false,
			},
			Title: "Unsupported media type",
		},
		{Is: Is(errBodySlow), Outcome: Outcome{http.StatusRequestTimeout, ReasonTimeout, "Timeout", true},
			Title: "Request too slow", Details: outcomeNone},
		{
			Is:      Is(ErrPrecondition),
			Outcome: Outcome{http.StatusPreconditionFailed, ReasonPrecondition, "PreconditionFailed", false},
			Title:   "Precondition failed",
		},
		{
			Is:      Is(ErrRange),
			Outcome: Outcome{http.StatusRequestedRangeNotSatisfiable, ReasonRange, "RangeNotSatisfiable", false},
			Title:   "Range not satisfiable",
		},
	}
}

// accessRules are for the caller's permissions and limits, and the state of the node.
func accessRules() []ErrorRule {
	full := ErrorRule{
		Outcome: Outcome{http.StatusTooManyRequests, ReasonBusy, "Busy", true},
		Title:   "Too many requests",
		Wait:    WaitBusy,
	}
	lacks := ErrorRule{
		Outcome: Outcome{http.StatusServiceUnavailable, ReasonDegraded, "NotReady", true},
		Title:   "Not ready",
		Wait:    WaitDegraded,
	}
	return []ErrorRule{
		{
			Is:      Any(Is(ErrNoRoute), Is(errNoSchema), Is(ErrNoSuch)),
			Outcome: Outcome{http.StatusNotFound, ReasonNotFound, "NotFound", false},
			Title:   "Not found",
		},
		{Is: IsA[*methodError], Outcome: Outcome{http.StatusMethodNotAllowed, ReasonMethod, "MethodNotAllowed", false},
			Title: "Method not allowed"},
		{
			Is:      Is(auth.ErrUnauthenticated),
			Outcome: Outcome{http.StatusUnauthorized, ReasonUnauth, "Unauthorized", false},
			Title:   "Not authenticated",
			Hint:    "send a token in force as 'Authorization: Bearer …'; `ronbox token mint` makes one",
		},
		{
			Is:      Any(IsA[*auth.DeniedError], IsA[*engines.GrantError]),
			Outcome: Outcome{http.StatusForbidden, ReasonForbidden, "Forbidden", false},
			Title:   "Not allowed",
			Text:    DeniedText,
			Details: DeniedDetails,
		},
		{
			Is:      Any(IsA[*rateError], IsA[*auth.LimitedError]),
			Outcome: Outcome{http.StatusTooManyRequests, ReasonRate, "Busy", true},
			Title:   "Too many requests",
			Wait:    WaitToken,
			Hint:    hintRate,
		},
		full.When(Is(errInflight)).As(ReasonInflight),
		full.When(Is(errStreams)).As(ReasonStreams),
		{Is: Is(errDraining), Outcome: Outcome{http.StatusServiceUnavailable, ReasonDraining, "Draining", true},
			Title: "Node is draining", Wait: WaitDrain, Hint: hintDrain},
		lacks.When(Is(errStarting)).With(Told(Details{"cause": "starting"})),
		lacks.When(Is(errScrape)),
	}
}

// storeRules are for errors of the store. ErrPoisoned comes before ErrUnknown, because it may be
// both.
func storeRules() []ErrorRule {
	lacks := ErrorRule{
		Outcome: Outcome{http.StatusServiceUnavailable, ReasonDegraded, "NotReady", true},
		Wait:    WaitDegraded,
	}
	return []ErrorRule{
		lacks.When(Is(store.ErrPoisoned)).
			As(ReasonStoreFailed).
			Called("StoreFailed", "Storage failed").
			With(outcomeUnknown).
			Say("the node stops and starts again from disk; the same request is safe to repeat"),
		{Is: Is(store.ErrFull), Outcome: Outcome{http.StatusInsufficientStorage, ReasonStoreFull, "StoreFull", true},
			Title: "Storage is full", Wait: WaitDegraded, Hint: "nothing was written; reads still succeed"},
		lacks.When(Is(errElsewhere)).As(ReasonNotLeader).Called("NotLeader", "Another node leads").
			After(WaitBusy).With(outcomeNone).Say(hintElsewhere),
		lacks.When(Is(store.ErrNotLeader)).As(ReasonNotLeader).Called("NotLeader", "No leader").
			After(WaitBusy).With(outcomeNone).Say(HintNotLeader),
		lacks.When(Is(store.ErrSlow)).Called("StorageBusy", "Storage is slow").Say("nothing was written"),
		lacks.When(Is(store.ErrRestored)).As(ReasonRestored).Called("NotReady", "Restored, not yet accepted").
			With(Told(Details{"cause": ReasonRestored})).Say("reads still succeed; `ronbox db " +
			"accept-restore` permits writes"),
		{
			Is:      Is(errDamaged),
			Outcome: Outcome{http.StatusServiceUnavailable, ReasonCorrupt, "Corrupt", false},
			Title:   "Data is damaged",
		},
		{
			Is:      Is(store.ErrCorrupt),
			Outcome: Outcome{http.StatusInternalServerError, ReasonCorrupt, "Corrupt", false},
			Title:   "Data is damaged",
			Hint:    "a row is damaged; `ronbox db verify` names it, and `ronbox db restore` restores a snapshot",
		},
		{
			Is:      Is(store.ErrAmnesia),
			Outcome: Outcome{http.StatusServiceUnavailable, ReasonAmnesia, "NotReady", false},
			Title:   "Not in memory mode",
			Hint:    "the database is in memory only (amnesia.enabled), so there is no file",
		},
		{Is: Is(store.ErrTimeout), Outcome: Outcome{http.StatusGatewayTimeout, ReasonTimeout, "Timeout", true},
			Title: "Deadline passed", Hint: hintLate, Details: outcomeNone},
	}
}

// waitingRules are for a wait that ended without an answer.
func waitingRules() []ErrorRule {
	return []ErrorRule{
		{Is: Is(flow.ErrBusy), Outcome: Outcome{http.StatusTooManyRequests, ReasonBusy, "Busy", true},
			Title: "Queue is full", Wait: WaitBusy, Hint: "nothing was enqueued; send it again later"},
		{
			Is:      Is(flow.ErrUnknown),
			Outcome: Outcome{http.StatusGatewayTimeout, ReasonCommitUnsure, "Timeout", true},
			Title:   "Outcome unknown",
			Hint:    "it may have taken effect; repeat the same request to learn",
			Details: outcomeUnknown,
		},
		{Is: Is(flow.ErrClosed), Outcome: Outcome{http.StatusServiceUnavailable, ReasonDraining, "Draining", true},
			Title: "Node is draining", Wait: WaitDrain, Hint: hintDrain},
		{Is: Is(context.DeadlineExceeded), Outcome: Outcome{http.StatusGatewayTimeout, ReasonTimeout, "Timeout", true},
			Title: "Deadline passed", Hint: hintLate, Details: outcomeNone},
		{
			Is:      Any(Is(flow.ErrCanceled), Is(flow.ErrAborted), Is(context.Canceled)),
			Outcome: Outcome{http.StatusServiceUnavailable, ReasonCanceled, "Canceled", true},
			Title:   "Cancelled",
			Wait:    WaitDegraded,
			Hint:    "it was given up before anything was done",
			Details: outcomeNone,
		},
	}
}
