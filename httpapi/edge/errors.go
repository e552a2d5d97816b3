package edge

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"ronbox/appliance/flow"
	"ronbox/engines/edge"
	"ronbox/httpapi"
)

// Refusals of the HTTP layer itself.
var (
	errRange        = errors.New("one range of bytes that the content has is served; Content-Range says how many it has")
	errPrecondition = errors.New("If-Match names other bytes than these")
	errPath         = &edge.PathError{Reason: "encodes a slash, a backslash or a control character"}
	errTile         = errors.New("a tile is /z/x/y.ext, in decimal without leading zeros")
	errExt          = errors.New("the tiles of the pack have another extension; its TileJSON names it")
	errHost         = errors.New("the name of the host cannot be used for the URLs of tiles: edge.public_url can name another")
)

// seedWords are the seed's words, as edge_rejects_total has them, for reasons that the frame or the engine calls otherwise.
var seedWords = map[string]string{
	httpapi.ReasonRatioCap: httpapi.ReasonInflateCap, httpapi.ReasonInflight: httpapi.ReasonRate, httpapi.ReasonBusy: httpapi.ReasonRate,
}

// code is the spelling of a reason in problems.
func code(reason string) string { return "edge_" + reason }

// rules are what the edge refuses. The same request may do better later where a wait is given.
func rules() []httpapi.ErrorRule {
	is, any := httpapi.Is, httpapi.Any
	rule := func(status int, reason, title string, wait httpapi.Wait, match func(error) bool) httpapi.ErrorRule {
		return httpapi.ErrorRule{Is: match, Outcome: httpapi.Outcome{Status: status, Reason: reason, Code: code(reason), Retry: wait != httpapi.WaitNone}, Title: title, Wait: wait}
	}
	const never, soon, later = httpapi.WaitNone, httpapi.WaitBusy, httpapi.WaitDegraded
	final := httpapi.ErrorRule{Is: httpapi.IsA[*edge.FillError], Classify: fillOutcome, Title: "Not fetched", Details: httpapi.Detail(func(e *edge.FillError) httpapi.Details {
		return httpapi.Details{"tries": e.Tries}
	})}
	passing := final.When(func(err error) bool {
		e, ok := errors.AsType[*edge.FillError](err)
		return ok && e.Retryable()
	})
	passing.Wait = later
	amnesia := rule(503, httpapi.ReasonAmnesia, "Nothing may be kept", later, is(edge.ErrAmnesia))
	amnesia.Retry = false
	return []httpapi.ErrorRule{
		passing, final,
		rule(400, "bad_path", "Malformed path", never, httpapi.IsA[*edge.PathError]),
		rule(400, "bad_tile", "No such tile anywhere", never, any(is(edge.ErrBadTile), is(errTile))),
		rule(400, "bad_ext", "Wrong extension", never, is(errExt)),
		rule(400, httpapi.ReasonMalformed, "Malformed request", never, is(errHost)),
		rule(404, httpapi.ReasonNotFound, "Not found", never, any(is(edge.ErrNotFound), is(edge.ErrNoPack), is(edge.ErrNoRaw), is(edge.ErrOutside))),
		rule(403, string(edge.NotAllowed), "Nothing is fetched", never, is(edge.ErrOffline)).
			Say(`edge.mode is "offline": with "live", and the host in edge.allow, it is fetched`),
		rule(406, "not_acceptable", "No coding that is accepted", never, is(edge.ErrCoding)),
		rule(412, httpapi.ReasonPrecondition, "Precondition failed", never, is(errPrecondition)),
		rule(416, "invalid_range", "Range not satisfiable", never, is(errRange)),
		rule(503, "corrupt", "Stored bytes were damaged", later, is(edge.ErrCorrupt)), // also where it could not be set aside
		rule(429, httpapi.ReasonRate, "Too many requests", soon, httpapi.IsA[*edge.RateError]),
		rule(429, httpapi.ReasonBusy, "Too many fills", soon, is(flow.ErrBusy)),
		amnesia.Say("the node keeps nothing on a disk, and so fetches nothing; packs are served"),
		rule(503, "cas_full", "Content store is full", later, is(edge.ErrFull)),
		rule(503, "pack_opening", "Pack is being opened", later, is(edge.ErrPackOpening)),
		rule(503, "pack_verifying", "Pack is being verified", later, is(edge.ErrPackPending)),
		rule(503, "pack_failed", "Pack is not fit to be served", later, is(edge.ErrPackFailed)),
		rule(503, httpapi.ReasonTimeout, "Deadline passed", soon, is(context.DeadlineExceeded)).
			Say("it was not there in time; what was begun goes on, and the same request may find it done"),
	}
}

// fillStatus are the statuses of the faults of a fill.
var fillStatus = map[edge.Reason]int{
	edge.NotAllowed: http.StatusForbidden, edge.UpstreamNotFound: http.StatusNotFound, edge.ETagInvalid: http.StatusFailedDependency,
	edge.DigestMismatch: http.StatusFailedDependency, edge.NotCacheable: http.StatusFailedDependency, edge.ObjectCap: http.StatusFailedDependency,
	edge.Upstream4xx: http.StatusFailedDependency, edge.Timeout: http.StatusServiceUnavailable, edge.UpstreamUnavailable: http.StatusServiceUnavailable,
	edge.Upstream5xx: http.StatusBadGateway, edge.UpstreamConnect: http.StatusBadGateway, edge.UpstreamTruncated: http.StatusBadGateway,
	edge.UpstreamUnframed: http.StatusBadGateway, edge.RedirectLoop: http.StatusBadGateway,
}

// fillWords are the outcomes of all faults of a fill.
func fillWords() (out []httpapi.Outcome) {
	for _, r := range slices.Sorted(maps.Keys(fillStatus)) {
		out = append(out, fillOutcome(&edge.FillError{Reason: r}))
	}
	return out
}

func fillOutcome(err error) httpapi.Outcome {
	e, _ := errors.AsType[*edge.FillError](err)
	return httpapi.Outcome{Status: fillStatus[e.Reason], Reason: string(e.Reason), Code: code(string(e.Reason)), Retry: e.Retryable()}
}
