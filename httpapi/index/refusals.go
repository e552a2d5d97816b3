package index

import (
	"fmt"

	"ronbox/engines/index/name"
	"ronbox/httpapi"
	indexapi "ronbox/httpapi/wire/index"
	"ronbox/store"
)

// errorMaps maps the errors of the index to their rows. The outcomes of lookups come first, because
// they wrap the errors of peers.
func errorMaps() []httpapi.Map {
	is := httpapi.Is
	return []httpapi.Map{
		{Is: httpapi.IsA[*name.SilentError], Reason: httpapi.ReasonNotFound, Cause: indexapi.CauseSilent,
			Details: httpapi.Detail(func(e *name.SilentError) httpapi.Details {
				return httpapi.Details{"silent": e.Peers}
			})},
		{Is: httpapi.Any(is(name.ErrNotFound), is(name.ErrForeignCID)), Reason: httpapi.ReasonNotFound},
		{Is: httpapi.IsA[*name.ConflictError], Reason: httpapi.ReasonConflict, Text: httpapi.Said,
			Details: httpapi.Detail(func(e *name.ConflictError) httpapi.Details {
				return httpapi.Details{"manifest": e.Has.String()}
			})},
		{Is: httpapi.IsA[*name.ForeignNameError], Reason: "foreign_name",
			Details: httpapi.Detail(func(e *name.ForeignNameError) httpapi.Details {
				return httpapi.Details{"node": e.Node}
			})},
		{Is: is(errNotImplemented), Reason: "not_implemented", Text: httpapi.Said},
		{Is: is(errRouteFull), Reason: httpapi.ReasonInflight, Text: httpapi.Said},
		{Is: is(errQuota), Reason: "quota"},
		{Is: httpapi.IsA[*name.RateError], Reason: httpapi.ReasonRate, Text: func(error) string {
			return "index.ratelimit.miss_rps: too many lookups of this network ask peers; nothing was begun"
		}},
		{Is: httpapi.IsA[*store.RowError], Reason: httpapi.ReasonCorrupt, Cause: indexapi.CauseRow,
			Details: httpapi.Detail(damagedDetails)},
		{Is: httpapi.IsA[*name.BreakerOpenError], Reason: "breaker_open", Text: httpapi.Said,
			Details: httpapi.Detail(func(e *name.BreakerOpenError) httpapi.Details {
				return httpapi.Details{"retry_after_ms": e.RetryAfter.Milliseconds()}
			})},
		{Is: is(name.ErrUpstream), Reason: "upstream"},
		{Is: is(name.ErrTimeout), Reason: httpapi.ReasonTimeout, Cause: indexapi.CausePeers},
		{Is: httpapi.IsA[*name.KeyError], Reason: httpapi.ReasonMalformed, Text: httpapi.Said,
			Details: httpapi.Told(httpapi.Details{"field": paramKey})},
		{Is: httpapi.IsA[*name.CIDError], Reason: httpapi.ReasonMalformed, Text: httpapi.Said,
			Details: httpapi.Told(httpapi.Details{"field": paramCID})},
		{Is: httpapi.IsA[*name.RecordError], Reason: httpapi.ReasonMalformed, Text: httpapi.Said,
			Details: httpapi.Field(func(e *name.RecordError) string { return e.Field })},
	}
}

// damagedDetails describes a damaged row: its bucket, its key in hex and, if the key is a name, the
// name.
func damagedDetails(e *store.RowError) httpapi.Details {
	d := httpapi.Details{"bucket": e.Bucket, "key": fmt.Sprintf("%x", e.Key)}
	if k, err := name.ParseKey(string(e.Key)); err == nil && k.String() == string(e.Key) {
		d["name"] = k.String()
	}
	return d
}
