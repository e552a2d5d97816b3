package cluster

import (
	"net/http"

	"ronbox/httpapi/refusal"
)

// CauseStays is the details.cause if a transfer of the leadership has failed.
const CauseStays = "leader_stays"

// Refusals has the rows of the cluster.
var Refusals = refusal.Table{
	{
		Reason: "conflict", Title: "Not in this state", Status: http.StatusConflict,
		Means:   "The operation does not fit the state of this node or of the cluster.",
		Changed: "Nothing.",
		Next:    "The message says what to do. `ronbox doctor` shows the state of the node.",
	},
	{
		Reason: "not_found", Title: "Not found", Status: http.StatusNotFound,
		Means:   "The cluster has no such member.",
		Changed: "Nothing.",
		Next:    "`ronbox cluster status` lists the members.",
	},
	{
		Reason: "busy", Cause: CauseStays, Title: "The leader stays",
		Status: http.StatusServiceUnavailable, Retry: true, Wait: refusal.WaitBusy,
		Means:   "The transfer of the leadership has failed, and the leader leads on.",
		Changed: "Nothing.",
		Next:    "Run the same command again. `ronbox cluster status` shows the members.",
	},
}
