package edge

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/meter"
	"ronbox/engines/edge/pack"
	"ronbox/httpapi"
)

// Errors of the HTTP layer itself.
var (
	errRange        = errors.New("the range must be one range of bytes within the content; Content-Range has the size")
	errPrecondition = errors.New("the content does not have a tag of If-Match")
	errPath         = &asset.PathError{Reason: "encodes a slash, a backslash or a control character"}
	errTile         = errors.New("the path of a tile is /z/x/y.ext, with decimal numbers without leading zeros")
	errExt          = errors.New("the tiles of the pack have another extension; see its TileJSON")
	errEpoch        = errors.New("an epoch is a decimal number from 1, without leading zeros")
	errScript       = errors.New("a page of this node may not run stored objects as script, style or worker")
	errHost         = errors.New("the host of the request is not valid in URLs of tiles: set edge.public_url")
)

// seedWords maps reasons of the frame and the engine to those of edge_rejects_total.
var seedWords = map[string]string{
	httpapi.ReasonRatioCap: httpapi.ReasonInflateCap,
	httpapi.ReasonInflight: httpapi.ReasonRate,
	httpapi.ReasonBusy:     httpapi.ReasonRate,
}

// code returns the problem code of a reason.
func code(reason string) string { return "edge_" + reason }

// rules returns the error table of the edge. An error with a wait may succeed when it is retried.
func rules() []httpapi.ErrorRule {
	is, any := httpapi.Is, httpapi.Any
	rule := func(status int, reason, title string, wait httpapi.Wait, match func(error) bool) httpapi.ErrorRule {
		return httpapi.ErrorRule{
			Is: match,
			Outcome: httpapi.Outcome{
				Status: status, Reason: reason, Code: code(reason), Retry: wait != httpapi.WaitNone,
			},
			Title: title,
			Wait:  wait,
		}
	}
	const never, soon, later = httpapi.WaitNone, httpapi.WaitBusy, httpapi.WaitDegraded
	final := httpapi.ErrorRule{
		Is:       httpapi.IsA[*asset.FillError],
		Classify: fillOutcome,
		Title:    "Not fetched",
		Details: httpapi.Detail(func(e *asset.FillError) httpapi.Details {
			return httpapi.Details{"tries": e.Tries}
		}),
	}
	passing := final.When(func(err error) bool {
		e, ok := errors.AsType[*asset.FillError](err)
		return ok && e.Retryable()
	})
	passing.Wait = later
	amnesia := rule(503, httpapi.ReasonAmnesia, "Nothing may be stored", later, is(asset.ErrAmnesia))
	amnesia.Retry = false
	return []httpapi.ErrorRule{
		// first, because they wrap the errors of fetches
		rule(504, "missing", "Bytes of the site are missing", later, httpapi.IsA[*asset.MissingError]),
		rule(502, "bad_manifest", "Manifest is not sound", never, httpapi.IsA[*asset.SiteError]),
		passing,
		final,
		rule(400, "bad_path", "Malformed path", never, httpapi.IsA[*asset.PathError]),
		rule(400, "bad_tile", "Invalid tile", never, any(is(pack.ErrBadTile), is(errTile))),
		rule(400, "bad_ext", "Wrong extension", never, is(errExt)),
		rule(400, httpapi.ReasonMalformed, "Malformed request", never,
			any(is(errHost), is(errEpoch), is(asset.ErrType))),
		rule(404, httpapi.ReasonNotFound, "Not found", never,
			any(is(asset.ErrNotFound), is(pack.ErrMissing), is(pack.ErrNoRaw), is(pack.ErrOutside))),
		rule(403, string(asset.NotAllowed), "Nothing is fetched", never, is(asset.ErrOffline)).
			Say(`edge.mode is "offline", so nothing is fetched: set it to "live" and add the host to edge.allow`),
		rule(403, httpapi.ReasonForbidden, "Not for pages of this node", never, is(errScript)),
		rule(406, "not_acceptable", "No acceptable coding", never, is(pack.ErrCoding)),
		rule(404, httpapi.ReasonNotFound, "No statement", never, is(meter.ErrNoStatement)).
			Say("this node ran in no fleet in that epoch, the epoch is in the future, or its statement is too old"),
		rule(409, "epoch_open", "Epoch is not final", never, httpapi.IsA[*meter.OpenEpochError]).
			With(httpapi.Detail(func(e *meter.OpenEpochError) httpapi.Details {
				return httpapi.Details{"final_at": e.Final.UTC().Format(time.RFC3339)}
			})),
		rule(409, "pins_full", "Too many pins", never, httpapi.IsA[*asset.PinsError]),
		rule(413, httpapi.ReasonBodyCap, "Object is too large", never, httpapi.IsA[*asset.SizeError]),
		rule(422, "other_digest", "Other bytes than expected", never, httpapi.IsA[*asset.DigestError]),
		rule(412, httpapi.ReasonPrecondition, "Precondition failed", never, is(errPrecondition)),
		rule(416, "invalid_range", "Range not satisfiable", never, is(errRange)),
		// also if the object could not be set aside
		rule(503, "corrupt", "Stored object was damaged", later, is(asset.ErrCorrupt)),
		rule(429, httpapi.ReasonRate, "Too many requests", soon, httpapi.IsA[*asset.RateError]),
		rule(429, httpapi.ReasonBusy, "Too many fills", soon, is(flow.ErrBusy)),
		amnesia.Say("the node writes nothing to a disk, so it fetches nothing; packs are served"),
		rule(503, "cas_unavailable", "Content store is not open", later, is(asset.ErrStore)),
		rule(503, "cas_full", "Content store is full", later, is(asset.ErrFull)),
		rule(503, "storage", "Content store fails", later, is(asset.ErrDisk)).
			Say("the disk of the node does not read or write its content store; /readyz names the cause"),
		rule(503, "names_unavailable", "Name cannot be looked up", later, is(asset.ErrNames)),
		rule(503, "pack_opening", "Pack is being opened", later, is(pack.ErrOpening)),
		rule(503, "pack_verifying", "Pack is being verified", later, is(pack.ErrPending)),
		rule(503, "pack_failed", "Pack is invalid", later, is(pack.ErrFailed)),
		rule(503, httpapi.ReasonTimeout, "Deadline passed", soon, is(context.DeadlineExceeded)).
			Say("it took too long, and may go on: retry the request"),
	}
}

// fillStatus maps the reasons of failed fills to statuses.
var fillStatus = map[asset.Reason]int{
	asset.NotAllowed:          http.StatusForbidden,
	asset.UpstreamNotFound:    http.StatusNotFound,
	asset.ETagInvalid:         http.StatusFailedDependency,
	asset.DigestMismatch:      http.StatusFailedDependency,
	asset.NotCacheable:        http.StatusFailedDependency,
	asset.ObjectCap:           http.StatusFailedDependency,
	asset.Upstream4xx:         http.StatusFailedDependency,
	asset.Timeout:             http.StatusServiceUnavailable,
	asset.UpstreamUnavailable: http.StatusServiceUnavailable,
	asset.Upstream5xx:         http.StatusBadGateway,
	asset.UpstreamConnect:     http.StatusBadGateway,
	asset.UpstreamTruncated:   http.StatusBadGateway,
	asset.UpstreamUnframed:    http.StatusBadGateway,
	asset.RedirectLoop:        http.StatusBadGateway,
}

// fillWords returns the outcomes of all reasons of failed fills.
func fillWords() (out []httpapi.Outcome) {
	for _, r := range slices.Sorted(maps.Keys(fillStatus)) {
		out = append(out, fillOutcome(&asset.FillError{Reason: r}))
	}
	return out
}

func fillOutcome(err error) httpapi.Outcome {
	e, _ := errors.AsType[*asset.FillError](err)
	return httpapi.Outcome{
		Status: fillStatus[e.Reason],
		Reason: string(e.Reason),
		Code:   code(string(e.Reason)),
		Retry:  e.Retryable(),
	}
}
