package node

import (
	"fmt"
	"net/http"
	"slices"

	"ronbox/appliance/clock"
	"ronbox/appliance/obs"
	"ronbox/httpapi"
	nodeapi "ronbox/httpapi/wire/node"
)

// ConflictError is returned if an operation is not possible in the current state: status 409.
// Reason is for people and contains no part of the request.
type ConflictError struct{ Reason string }

func (e *ConflictError) Error() string { return e.Reason }

// ReloadError is returned if a configuration was refused and the old one stays: status 422.
type ReloadError struct {
	Reason string   // parse, validate, restart, bind, tls …
	Keys   []string // keys that are invalid or need a restart
	Detail string   // for people
}

func (e *ReloadError) Error() string {
	if e.Detail == "" {
		return "the old configuration stays in force: " + e.Reason
	}
	return "the old configuration stays in force: " + e.Detail
}

// SnapshotDirError is returned if the node cannot write the folder of a snapshot: status 400.
type SnapshotDirError struct {
	nodeapi.SnapshotDir
	Cause error // errno
}

func (e *SnapshotDirError) Error() string {
	by := "user " + e.User
	if e.Unit != "" {
		by += ", unit " + e.Unit
	}
	return fmt.Sprintf("%s: %v (%s)", e.Path, e.Cause, by)
}

// Unwrap returns the cause.
func (e *SnapshotDirError) Unwrap() error { return e.Cause }

// ReasonSnapshotDir is the reason of a SnapshotDirError.
const ReasonSnapshotDir = "snapshot_dir"

// rules returns the rules for errors of the node.
func rules() []httpapi.ErrorRule {
	clash := httpapi.ErrorRule{
		Outcome: httpapi.Outcome{Status: http.StatusConflict, Reason: httpapi.ReasonConflict, Code: "Conflict"},
		Title:   "Not in this state",
	}
	return []httpapi.ErrorRule{
		clash.When(httpapi.IsA[*ConflictError]),
		clash.When(httpapi.Is(obs.ErrNotRecording)).Say("the flight recorder is off"),
		clash.When(httpapi.Is(clock.ErrForward)).With(httpapi.Told(httpapi.Details{"cause": "not_ahead"})),
		clash.When(httpapi.Is(clock.ErrBeforeBuild)).With(httpapi.Told(httpapi.Details{"cause": "before_build"})),
		{
			Is: httpapi.IsA[*ReloadError],
			Outcome: httpapi.Outcome{
				Status: http.StatusUnprocessableEntity,
				Reason: "reload_refused",
				Code:   "ReloadRefused",
			},
			Title: "Configuration refused",
			Details: httpapi.Detail(func(e *ReloadError) httpapi.Details {
				return httpapi.Details{"cause": e.Reason, "keys": slices.Concat([]string{}, e.Keys)}
			}),
		},
		{
			Is:      httpapi.IsA[*SnapshotDirError],
			Outcome: httpapi.Outcome{Status: http.StatusBadRequest, Reason: ReasonSnapshotDir, Code: "Malformed"},
			Title:   "The folder cannot be written",
			Details: httpapi.Detail(func(e *SnapshotDirError) httpapi.Details {
				d := httpapi.Details{"path": e.Path, "user": e.User}
				if e.Unit != "" {
					d["unit"] = e.Unit
				}
				return d
			}),
		},
	}
}
