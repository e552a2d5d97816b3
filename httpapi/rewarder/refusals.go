package rewarder

import (
	"errors"
	"strings"

	"ronbox/engines/rewarder"
	"ronbox/httpapi"
	rewarderapi "ronbox/httpapi/wire/rewarder"
	"ronbox/store"
)

// errorMaps maps the errors of the rewarder to their rows.
func errorMaps() []httpapi.Map {
	is := httpapi.Is
	field := httpapi.Field(func(e *rewarder.FieldError) string { return e.Field })
	clash := func(cause string, of func(*rewarder.ConflictError) bool) httpapi.Map {
		return httpapi.Map{
			Is: func(err error) bool {
				e, ok := errors.AsType[*rewarder.ConflictError](err)
				return ok && of(e)
			},
			Reason: httpapi.ReasonConflict, Cause: cause, Text: httpapi.Said,
			Details: httpapi.Detail(func(e *rewarder.ConflictError) httpapi.Details {
				return httpapi.Details{"what": e.What, "stands": e.Has, "given": e.Given}
			}),
		}
	}
	about := func(what string) func(*rewarder.ConflictError) bool {
		return func(e *rewarder.ConflictError) bool { return e.What == what }
	}
	return []httpapi.Map{
		{Is: ofSignatures, Reason: httpapi.ReasonMalformed, Cause: rewarderapi.CauseSignatures, Details: field,
			Text: httpapi.Said},
		{Is: httpapi.IsA[*rewarder.FieldError], Reason: httpapi.ReasonMalformed, Details: field, Text: httpapi.Said},
		{Is: is(rewarder.ErrNotFound), Reason: httpapi.ReasonNotFound},
		clash(rewarderapi.CauseUpload, about("upload")),
		clash(rewarderapi.CauseArtifactOff, func(e *rewarder.ConflictError) bool {
			return e.What == "artifact" && e.Has == rewarder.ArtifactOff
		}),
		clash(rewarderapi.CauseArtifact, about("artifact")),
		clash(rewarderapi.CauseState, about("state")),
		clash(rewarderapi.CausePin, about(rewarder.WhatPin)),
		clash(rewarderapi.CauseEpoch, about("epoch")),
		clash("", func(*rewarder.ConflictError) bool { return true }),
		{Is: httpapi.IsA[*rewarder.QuotaError], Reason: rewarderapi.ReasonQuota,
			Details: httpapi.Detail(func(e *rewarder.QuotaError) httpapi.Details {
				return httpapi.Details{"key": e.Key, "used_bytes": e.Used, "limit_bytes": e.Limit}
			})},
		{Is: httpapi.IsA[*rewarder.QuarantineError], Reason: rewarderapi.ReasonQuarantined, Text: httpapi.Said,
			Details: httpapi.Detail(quarantine)},
		{Is: is(rewarder.ErrDraining), Reason: httpapi.ReasonDraining},
		{Is: is(rewarder.ErrLate), Reason: httpapi.ReasonTimeout, Cause: rewarderapi.CauseLate,
			Details: httpapi.Told(httpapi.Details{"outcome": "none"})},
		{Is: is(store.ErrSlow), Reason: rewarderapi.ReasonSlow,
			Details: httpapi.Told(httpapi.Details{"outcome": "none", "peer": "store"})},
		{Is: is(rewarder.ErrNoPins), Reason: httpapi.ReasonDegraded, Text: httpapi.Said,
			Details: httpapi.Told(httpapi.Details{"peer": "registry"})},
		{Is: is(rewarder.ErrNoLedger), Reason: httpapi.ReasonDegraded,
			Text:    func(error) string { return "the ledger did not answer, and nothing was begun" },
			Details: httpapi.Told(httpapi.Details{"peer": "ledger"})},
	}
}

// ofSignatures reports whether the signatures of a policy are at fault.
func ofSignatures(err error) bool {
	e, ok := errors.AsType[*rewarder.FieldError](err)
	return ok && strings.HasPrefix(e.Field, "signatures")
}

func quarantine(e *rewarder.QuarantineError) httpapi.Details {
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
}
