package httpapi

import (
	"context"
	"slices"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/inflate"
	"ronbox/store"
)

var (
	outcomeNone    = Told(Details{"outcome": "none"})
	outcomeUnknown = Told(Details{"outcome": "unknown"})
)

// sharedMaps returns the maps that are tried in order after those of the service. An error without
// a Map is internal.
func sharedMaps() []Map {
	return slices.Concat(requestMaps(), accessMaps(), storeMaps(), waitingMaps())
}

// requestMaps are for errors of the request itself.
func requestMaps() []Map {
	return []Map{
		{Is: IsA[*BodyError], Reason: ReasonSchema, Details: Field(func(e *BodyError) string { return e.Field }),
			Text: Said},
		{Is: IsA[*QueryError], Reason: ReasonMalformed, Details: Field(func(e *QueryError) string { return e.Param }),
			Text: Said},
		{Is: Any(Is(errNoBody), Is(errPath)), Reason: ReasonMalformed, Text: Said},
		{Is: IsA[*PathError], Reason: ReasonMalformed, Details: Field(func(e *PathError) string { return e.Param }),
			Text: Said},
		{Is: Any(Is(errBodyCut), Is(errNested)), Reason: ReasonMalformed, Text: Said},
		{Is: Is(inflate.ErrStream), Reason: ReasonMalformed,
			Text: func(error) string { return "the body does not match its Content-Encoding" }},
		{Is: Is(inflate.ErrRatio), Reason: ReasonRatioCap},
		{Is: Is(inflate.ErrTooLarge), Reason: ReasonInflateCap},
		{
			Is:     Any(Is(auth.ErrSpec), Is(engines.ErrAmount), Is(engines.ErrAccount), Is(engines.ErrAsset)),
			Reason: ReasonMalformed, Text: Said,
		},
		{Is: IsA[*HeaderError], Reason: ReasonBadHeader, Text: Said,
			Details: Field(func(e *HeaderError) string { return e.Header })},
		{Is: Is(errTarget), Reason: ReasonMalformed, Cause: "target", Text: Said},
		{Is: Is(errHeaders), Reason: ReasonBadHeader, Cause: "headers", Text: Said},
		{Is: Is(errLength), Reason: ReasonLength, Text: Said},
		{Is: Any(Is(ErrBodyTooLarge), Is(store.ErrTooLarge)), Reason: ReasonBodyCap, Text: Said},
		{
			Is:     Any(Is(errMediaType), Is(errEncoding), Is(inflate.ErrEncoding), IsA[*mediaError]),
			Reason: ReasonMediaType, Text: Said,
		},
		{Is: Is(errBodySlow), Reason: ReasonTimeout, Cause: "slow_body", Details: outcomeNone},
		{Is: Is(ErrPrecondition), Reason: ReasonPrecondition, Text: Said},
		{Is: Is(ErrRange), Reason: ReasonRange, Text: Said},
	}
}

// accessMaps are for the caller's permissions and limits, and the state of the node.
func accessMaps() []Map {
	return []Map{
		{Is: IsA[*noRouteError], Reason: ReasonNotFound, Cause: "no_route", Text: Said},
		{Is: Is(ErrNoRoute), Reason: ReasonNotFound, Cause: "no_route"},
		{Is: Is(errCORSOff), Reason: ReasonCORSOff, Details: Told(Details{"key": "server.cors.allow_origins"})},
		{Is: Any(Is(errNoSchema), Is(ErrNoSuch)), Reason: ReasonNotFound, Text: Said},
		{Is: IsA[*methodError], Reason: ReasonMethod, Text: Said},
		{Is: Is(auth.ErrUnauthenticated), Reason: ReasonUnauth},
		{
			Is: Any(IsA[*auth.DeniedError], IsA[*engines.GrantError]), Reason: ReasonForbidden,
			Text: DeniedText, Details: DeniedDetails,
		},
		{Is: Any(IsA[*rateError], IsA[*auth.LimitedError]), Reason: ReasonRate},
		{Is: Is(errInflight), Reason: ReasonInflight},
		{Is: Is(errStreams), Reason: ReasonStreams, Text: Said},
		{Is: Is(errDraining), Reason: ReasonDraining},
		{Is: Is(errStarting), Reason: ReasonDegraded, Details: Told(Details{"cause": "starting"}), Text: Said},
		{Is: Is(errScrape), Reason: ReasonDegraded, Text: Said},
	}
}

// storeMaps are for errors of the store. ErrPoisoned comes before ErrUnknown, because it may be
// both.
func storeMaps() []Map {
	return []Map{
		{Is: Is(store.ErrPoisoned), Reason: ReasonStoreFailed, Details: outcomeUnknown},
		{Is: Is(store.ErrFull), Reason: ReasonStoreFull},
		{Is: Is(errElsewhere), Reason: ReasonNotLeader, Cause: "elsewhere", Details: outcomeNone},
		{Is: Is(store.ErrNotLeader), Reason: ReasonNotLeader, Details: outcomeNone},
		{Is: Is(store.ErrSlow), Reason: ReasonDegraded, Cause: "storage_slow"},
		{Is: Is(store.ErrRestored), Reason: ReasonRestored, Details: Told(Details{"cause": ReasonRestored})},
		{Is: Is(errDamaged), Reason: ReasonCorrupt, Cause: "shut_out"},
		{Is: Is(store.ErrCorrupt), Reason: ReasonCorrupt},
		{Is: Is(store.ErrAmnesia), Reason: ReasonAmnesia},
		{Is: Is(store.ErrTimeout), Reason: ReasonTimeout, Details: outcomeNone},
	}
}

// waitingMaps are for a wait that ended without an answer.
func waitingMaps() []Map {
	return []Map{
		{Is: Is(flow.ErrBusy), Reason: ReasonBusy},
		{Is: Is(flow.ErrUnknown), Reason: ReasonCommitUnsure, Details: outcomeUnknown},
		{Is: Is(flow.ErrClosed), Reason: ReasonDraining},
		{Is: Is(context.DeadlineExceeded), Reason: ReasonTimeout, Details: outcomeNone},
		{
			Is:     Any(Is(flow.ErrCanceled), Is(flow.ErrAborted), Is(context.Canceled)),
			Reason: ReasonCanceled, Details: outcomeNone,
		},
	}
}
