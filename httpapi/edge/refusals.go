package edge

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/extract"
	"ronbox/engines/edge/meter"
	"ronbox/engines/edge/pack"
	"ronbox/httpapi"
	edgeapi "ronbox/httpapi/wire/edge"
)

// errorMaps maps the errors of the edge to their rows. The errors of sites come first, because they
// wrap those of fetches.
func errorMaps() []httpapi.Map {
	is, isAny := httpapi.Is, httpapi.Any
	said := func(reason, cause string, is func(error) bool) httpapi.Map {
		return httpapi.Map{Is: is, Reason: reason, Cause: cause, Text: httpapi.Said}
	}
	out := []httpapi.Map{
		said("missing", "", httpapi.IsA[*asset.MissingError]),
		said("bad_manifest", "", httpapi.IsA[*asset.SiteError]),
	}
	return append(append(out, fills()...), []httpapi.Map{
		said("bad_path", "", httpapi.IsA[*asset.PathError]),
		said("bad_tile", "", isAny(is(pack.ErrBadTile), is(errTile))),
		said("bad_ext", "", is(errExt)),
		said(httpapi.ReasonMalformed, "", isAny(is(errHost), is(errEpoch), is(asset.ErrType), is(pack.ErrName))),
		said(httpapi.ReasonNotFound, "",
			isAny(is(asset.ErrNotFound), is(pack.ErrMissing), is(pack.ErrNoRaw), is(pack.ErrOutside))),
		{Is: is(asset.ErrOffline), Reason: string(asset.NotAllowed), Cause: edgeapi.CauseOffline},
		{Is: is(errScript), Reason: httpapi.ReasonForbidden, Cause: edgeapi.CauseScript},
		said("tile_too_large", "", is(pack.ErrTooLarge)),
		said("not_acceptable", "", is(pack.ErrCoding)),
		{Is: is(meter.ErrNoStatement), Reason: httpapi.ReasonNotFound, Cause: edgeapi.CauseStatement},
		{Is: httpapi.IsA[*meter.OpenEpochError], Reason: "epoch_open", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *meter.OpenEpochError) httpapi.Details {
				return httpapi.Details{"final_at": e.Final.UTC().Format(time.RFC3339)}
			})},
		said("pins_full", "", httpapi.IsA[*asset.PinsError]),
		said(httpapi.ReasonBodyCap, edgeapi.CauseObject, httpapi.IsA[*asset.SizeError]),
		{Is: httpapi.IsA[*pack.RefusedError], Reason: "pack_refused", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *pack.RefusedError) httpapi.Details {
				return httpapi.Details{"faults": e.Faults}
			})},
		said("pack_refused", "", is(extract.ErrAnother)),
		said("packs_full", "", httpapi.IsA[*pack.RoomError]),
		said("bad_region", "", httpapi.IsA[*extract.RegionError]),
		said("too_many_tiles", "", httpapi.IsA[*extract.ManyError]),
		said("no_ranges", "", is(extract.ErrNoRanges)),
		said("source_changed", "", is(extract.ErrChanged)),
		said("extracts_full", "", is(extract.ErrFull)),
		said("other_digest", "", httpapi.IsA[*asset.DigestError]),
		said(httpapi.ReasonPrecondition, "", is(errPrecondition)),
		said("invalid_range", "", is(errRange)),
		// also if the object could not be set aside
		said(httpapi.ReasonCorrupt, edgeapi.CauseObject, is(asset.ErrCorrupt)),
		said(httpapi.ReasonRate, edgeapi.CauseFills, httpapi.IsA[*asset.RateError]),
		{Is: is(flow.ErrBusy), Reason: httpapi.ReasonBusy},
		{Is: is(asset.ErrAmnesia), Reason: httpapi.ReasonAmnesia},
		said("cas_unavailable", "", is(asset.ErrStore)),
		said("cas_full", "", is(asset.ErrFull)),
		{Is: is(asset.ErrDisk), Reason: "storage"},
		said("names_unavailable", "", is(asset.ErrNames)),
		said("stale", "", is(asset.ErrStale)),
		said("pack_opening", "", is(pack.ErrOpening)),
		said("pack_verifying", "", is(pack.ErrPending)),
		said("pack_failed", "", is(pack.ErrFailed)),
		{Is: is(context.DeadlineExceeded), Reason: httpapi.ReasonTimeout, Cause: edgeapi.CauseRunning},
	}...)
}

// fills maps the reasons of failed fills.
func fills() (out []httpapi.Map) {
	for _, reason := range asset.Reasons() {
		m := httpapi.Map{
			Is: func(err error) bool {
				e, ok := errors.AsType[*asset.FillError](err)
				return ok && e.Reason == reason
			},
			Reason: string(reason),
			Text:   httpapi.Said,
			Details: httpapi.Detail(func(e *asset.FillError) httpapi.Details {
				return httpapi.Details{"tries": e.Tries}
			}),
		}
		if reason == asset.Timeout {
			m.Cause = edgeapi.CauseFill
		}
		out = append(out, m)
	}
	return out
}
