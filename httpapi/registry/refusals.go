package registry

import (
	"errors"
	"strings"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/httpapi"
	registryapi "ronbox/httpapi/wire/registry"
)

// errorMaps maps the errors of the registry to their rows. The reason of a final refusal is also
// that of its audit record, which the engine writes.
func errorMaps() []httpapi.Map {
	is := httpapi.Is
	notReady := func(cause string) httpapi.Map {
		return httpapi.Map{
			Is: func(err error) bool {
				e, ok := errors.AsType[*document.NotReadyError](err)
				return ok && (e.Cause == cause || cause == "")
			},
			Reason: httpapi.ReasonDegraded, Cause: cause, Text: httpapi.Said,
			Details: httpapi.Detail(func(e *document.NotReadyError) httpapi.Details {
				return httpapi.Details{"cause": e.Cause}
			}),
		}
	}
	return []httpapi.Map{
		{Is: is(record.ErrMalformed), Reason: httpapi.ReasonMalformed, Text: malformed,
			Details: httpapi.Field(func(e *record.FieldError) string { return e.Field })},
		{Is: is(record.ErrHardLimit), Reason: "hard_limit", Text: httpapi.Said},
		{Is: is(record.ErrChainMismatch), Reason: "chain_mismatch", Text: httpapi.Said},
		{Is: httpapi.IsA[*document.ParentPendingError], Reason: "version_skew", Cause: registryapi.CauseParent,
			Text: httpapi.Said,
			Details: httpapi.Detail(func(e *document.ParentPendingError) httpapi.Details {
				return httpapi.Details{"parent": e.Parent}
			})},
		{Is: is(record.ErrVersionSkew), Reason: "version_skew", Text: httpapi.Said},
		{Is: httpapi.IsA[*document.GenesisApprovalError], Reason: "bad_approval", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *document.GenesisApprovalError) httpapi.Details {
				return httpapi.Details{"approval": e.Index, "signer_id": e.SignerID}
			})},
		{Is: is(record.ErrInvalidSig), Reason: "invalid_sig", Text: httpapi.Said},
		{Is: is(record.ErrRevokedKey), Reason: "revoked_key", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *record.RevokedKeyError) httpapi.Details {
				return httpapi.Details{"signer_id": e.SignerID, "status": e.Status}
			})},
		{Is: is(record.ErrQuorum), Reason: "quorum", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *record.QuorumError) httpapi.Details {
				return httpapi.Details{"have": e.Have, "need": e.Need}
			})},
		{Is: is(record.ErrClockSkew), Reason: "clock_skew", Text: httpapi.Said},
		{Is: is(document.ErrNotFound), Reason: httpapi.ReasonNotFound, Text: httpapi.Said},
		{Is: is(document.ErrExpired), Reason: "expired", Text: httpapi.Said},
		{Is: is(document.ErrPruned), Reason: "pruned", Text: httpapi.Said},
		{Is: httpapi.IsA[*document.DuplicateApprovalError], Reason: "duplicate_approval", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *document.DuplicateApprovalError) httpapi.Details {
				return httpapi.Details{"identical": e.Identical}
			})},
		{Is: httpapi.IsA[*document.FollowerError], Reason: "follower", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *document.FollowerError) httpapi.Details {
				return httpapi.Details{"hub": e.Hub}
			})},
		{Is: is(document.ErrConflict), Reason: httpapi.ReasonConflict, Text: httpapi.Said,
			Details: httpapi.Detail(func(e *document.StateError) httpapi.Details {
				return httpapi.Details{"state": e.State}
			})},
		{Is: is(document.ErrForbidden), Reason: httpapi.ReasonForbidden, Text: forbidden},
		{Is: is(document.ErrSource), Reason: "bad_source", Text: httpapi.Said},
		{Is: is(document.ErrRange), Reason: httpapi.ReasonMalformed, Cause: registryapi.CauseRange,
			Text: httpapi.Said},
		{Is: httpapi.IsA[*document.PendingLimitError], Reason: "pending_limit", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *document.PendingLimitError) httpapi.Details {
				return httpapi.Details{"limit": e.Limit, "max": e.Max}
			})},
		notReady(registryapi.CauseNoGenesis),
		notReady(registryapi.CauseRollback),
		notReady(""),
		{Is: httpapi.IsA[*document.TimeoutError], Reason: httpapi.ReasonTimeout, Text: httpapi.Said,
			Details: httpapi.Told(httpapi.Details{"outcome": "none"})},
	}
}

// malformed names the member at fault, without the words that are in the title and the reason.
func malformed(err error) string {
	if e, ok := errors.AsType[*record.FieldError](err); ok {
		return strings.TrimPrefix(e.Field+": "+e.Reason, ": ")
	}
	return err.Error()
}

func forbidden(err error) string {
	if e, ok := errors.AsType[*document.ForbiddenError](err); ok {
		return e.Reason
	}
	return err.Error()
}
