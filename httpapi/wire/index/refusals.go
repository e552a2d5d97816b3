package index

import (
	"net/http"

	"ronbox/httpapi/refusal"
)

// Causes of refusals.
const (
	CauseSilent = "silent_peers"
	CausePeers  = "peers"
	CauseRow    = "row"
)

// Refusals has the rows of the index.
var Refusals = refusal.Table{
	{
		Reason: "not_found", Title: "Not found", Status: http.StatusNotFound,
		Means:   "Neither this node nor a peer knows it.",
		Changed: "Nothing.",
		Next:    "`ronbox index list` lists the names of this node, `ronbox index peers` its peers.",
	},
	{
		Reason: "not_found", Cause: CauseSilent, Title: "Not found", Status: http.StatusNotFound,
		Means:   "Most peers do not know it, and some gave no answer.",
		Changed: "Nothing.",
		Next:    "`ronbox index peers` shows which. `ronbox index list` lists the names of this node.",
	},
	{
		Reason: "conflict", Title: "Written before", Status: http.StatusConflict,
		Means:   "The version has another manifest, and a version keeps its manifest for ever.",
		Changed: "Nothing.",
		Next:    "Put the next version.",
	},
	{
		Reason: "foreign_name", Title: "Name of another node", Status: http.StatusForbidden,
		Means:   "The registry gives the name to another node: only the node whose item lists it may put it.",
		Changed: "Nothing.",
		Next:    "Put it at the node that owns it, or propose an item that gives the name to this node.",
	},
	{
		Reason: "not_implemented", Title: "Not implemented", Status: http.StatusNotImplemented,
		Means:   "Delegated Routing has this operation, but this node does not: it has only the lookup of providers.",
		Changed: "Nothing.",
		Next:    "Use another router for it. Providers are published with `ronbox index announce`.",
	},
	{
		Reason: "quota", Title: "Too many requests", Status: http.StatusTooManyRequests,
		Retry: true, Wait: refusal.WaitBusy,
		Means:   "The quota of all clients for this minute is used up.",
		Changed: "Nothing. The request was not begun.",
		Next:    "Run the same command again in a minute.",
		Call:    "Send the same request again after Retry-After.",
	},
	{
		Reason: "corrupt", Cause: CauseRow, Title: "Stored row is damaged",
		Status:  http.StatusInternalServerError,
		Means:   "The stored row of the key is damaged.",
		Changed: "Nothing.",
		Next: "`ronbox index remove --forget {name}` drops the damaged row; then put it again, or restore a " +
			"snapshot.",
	},
	{
		Reason: "breaker_open", Title: "No peer answers",
		Status: http.StatusServiceUnavailable, Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The node asks no peer at the moment, because the peers failed repeatedly.",
		Changed: "Nothing.",
		Next:    "`ronbox index peers` shows which peers fail. Then run the same command again.",
		Call:    "Send the same request again after Retry-After. `ronbox index peers` shows which peers fail.",
	},
	{
		Reason: "upstream", Title: "No peer answers",
		Status: http.StatusServiceUnavailable, Retry: true, Wait: refusal.WaitDegraded,
		Means:   "Too many peers gave no answer.",
		Changed: "Nothing.",
		Next:    "`ronbox index peers` shows why. Then run the same command again.",
		Call:    "Send the same request again after Retry-After. `ronbox index peers` shows why.",
	},
	{
		Reason: "timeout", Cause: CausePeers, Title: "Deadline passed",
		Status: http.StatusGatewayTimeout, Retry: true,
		Means:   "No peer answered in time.",
		Changed: "Nothing.",
		Next:    "Run the same command again, or allow more with --timeout.",
		Call:    "Send the same request again, with a later deadline if it has one.",
	},
}
