package node

import (
	"slices"

	"ronbox/appliance/clock"
	"ronbox/appliance/obs"
	"ronbox/httpapi"
	nodeapi "ronbox/httpapi/wire/node"
)

// errorMaps maps the errors of the node to their rows.
func errorMaps() []httpapi.Map {
	return []httpapi.Map{
		{Is: httpapi.IsA[*ConflictError], Reason: httpapi.ReasonConflict, Text: httpapi.Said},
		{Is: httpapi.Is(obs.ErrNotRecording), Reason: httpapi.ReasonConflict,
			Text: func(error) string { return "the flight recorder is off" }},
		{Is: httpapi.Is(clock.ErrForward), Reason: httpapi.ReasonConflict, Cause: nodeapi.CauseNotAhead,
			Text: httpapi.Said},
		{Is: httpapi.Is(clock.ErrBeforeBuild), Reason: httpapi.ReasonConflict, Cause: nodeapi.CauseBeforeBuild,
			Text: httpapi.Said},
		{Is: httpapi.Is(ErrArchiveOff), Reason: "archive_off", Text: httpapi.Said},
		{Is: httpapi.Is(ErrArchiveBusy), Reason: "archive_busy", Text: httpapi.Said},
		{Is: httpapi.Is(ErrArchiveTarget), Reason: "archive_target", Text: httpapi.Said},
		{Is: httpapi.Is(ErrArchiveLocal), Reason: "archive_local", Text: httpapi.Said},
		{Is: httpapi.IsA[*ReloadError], Reason: "reload_refused", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *ReloadError) httpapi.Details {
				return httpapi.Details{"cause": e.Reason, "keys": slices.Concat([]string{}, e.Keys)}
			})},
		{Is: httpapi.IsA[*SnapshotDirError], Reason: nodeapi.ReasonSnapshotDir, Text: httpapi.Said,
			Details: httpapi.Detail(func(e *SnapshotDirError) httpapi.Details {
				d := httpapi.Details{"path": e.Path, "user": e.User}
				if e.Unit != "" {
					d["unit"] = e.Unit
				}
				return d
			})},
	}
}
