package rewarder

import (
	"net/http"

	"ronbox/httpapi/refusal"
)

// Exit codes of the verbs of the rewarder for its refusals.
const (
	ExitQuarantined = 20 // the run is quarantined or paused
	ExitConflict    = 21 // the epoch or id is taken by something else
)

// Causes of conflicts: what the request and the node disagree about.
const (
	CauseUpload      = "upload"
	CauseArtifact    = "artifact"
	CauseArtifactOff = "artifact_off" // the node writes no files
	CauseState       = "state"
	CausePin         = "pinned_policy"
	CauseEpoch       = "epoch"
)

// Other reasons and causes.
const (
	ReasonQuarantined = "quarantined"
	ReasonQuota       = "quota"
	ReasonSlow        = "slow_storage"

	CauseLate       = "late"
	CauseSignatures = "signatures"
)

// Refusals has the rows of the rewarder.
var Refusals = refusal.Table{
	{
		Reason: "malformed", Cause: CauseSignatures, Title: "Malformed request",
		Status:  http.StatusBadRequest,
		Means:   "The signatures of the policy do not count.",
		Changed: "Nothing.",
		Next:    "Sign the policy with --key, using a key in rewarder.policy_trust_keys of the node.",
	},
	{
		Reason: "not_found", Title: "Not found", Status: http.StatusNotFound,
		Means:   "The epoch, the policy, the upload or the actor does not exist.",
		Changed: "Nothing.",
		Next:    "Check the epoch: `ronbox rewarder run EPOCH …` makes one.",
		Call:    "GET /rewarder/epochs lists the epochs.",
	},
	{
		Reason: "conflict", Title: "Conflict", Status: http.StatusConflict, Exit: ExitConflict,
		Means:   "The id stands for something else: details.what names it.",
		Changed: "Nothing.",
		Next:    "An id is bound to its content for ever: choose another id.",
	},
	{
		Reason: "conflict", Cause: CauseUpload, Title: "Conflict", Status: http.StatusConflict,
		Exit:    ExitConflict,
		Means:   "The upload is not in the state that the request needs.",
		Changed: "Nothing.",
		Next:    "`ronbox rewarder inputs list` shows the state of uploads.",
	},
	{
		Reason: "conflict", Cause: CauseArtifactOff, Title: "Conflict",
		Status:  http.StatusConflict,
		Means:   "The node writes no files of runs.",
		Changed: "Nothing.",
		Next:    "With amnesia, rewarder.artifact_dir must be in memory. Set it, then restart the node.",
	},
	{
		Reason: "conflict", Cause: CauseArtifact, Title: "Conflict", Status: http.StatusConflict,
		Exit:    refusal.ExitBusy,
		Means:   "The files of the run are being written.",
		Changed: "Nothing.",
		Next:    "Wait until the node is done: `ronbox rewarder show EPOCH` shows the progress.",
	},
	{
		Reason: "conflict", Cause: CauseState, Title: "Conflict", Status: http.StatusConflict,
		Exit:    refusal.ExitBusy,
		Means:   "The run is not in the state that the request needs.",
		Changed: "Nothing.",
		Next:    "Wait until the node is done: `ronbox rewarder show EPOCH` shows the progress.",
	},
	{
		Reason: "conflict", Cause: CausePin, Title: "Conflict", Status: http.StatusConflict,
		Exit:    ExitConflict,
		Means:   "The registry does not pin the policy.",
		Changed: "Nothing.",
		Next:    "Run a policy that the registry pins, or have its signers pin this one.",
	},
	{
		Reason: "conflict", Cause: CauseEpoch, Title: "Conflict", Status: http.StatusConflict,
		Exit:    ExitConflict,
		Means:   "The epoch has a run with other usage, another policy or another pool.",
		Changed: "Nothing.",
		Next: "`ronbox rewarder show EPOCH` shows the existing run; other usage, policy or pool needs another " +
			"epoch.",
	},
	{
		Reason: ReasonQuota, Title: "Quota exceeded", Status: http.StatusInsufficientStorage,
		Means:   "The uploads of this tenant, or of all, have used up the bytes that the rewarder may store.",
		Changed: "Nothing.",
		Next: "Seal and run, or drop, uploads that no run uses: `ronbox rewarder inputs list` lists them, " +
			"`ronbox rewarder inputs remove UPLOAD` drops one.",
	},
	{
		Reason: ReasonQuarantined, Title: "Quarantined", Status: http.StatusConflict,
		Exit: ExitQuarantined,
		Means: "The run is quarantined: its payout violates a rule, for instance because the pool has too " +
			"little.",
		Changed: "Some or all actors are not paid. None is paid twice.",
		Next:    "`ronbox rewarder show EPOCH` shows the reason: the run is never paid.",
	},
	{
		Reason: "timeout", Cause: CauseLate, Title: "Deadline passed",
		Status:  http.StatusGatewayTimeout,
		Means:   "The deadline passed before the request was begun.",
		Changed: "Nothing.",
		Next:    "Run the same command again, or allow more with --timeout.",
		Call:    "Send the same request again, with a later deadline.",
	},
	{
		Reason: ReasonSlow, Title: "Storage is slow",
		Status: http.StatusServiceUnavailable, Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The run was not accepted, because the commits before it took too long.",
		Changed: "Nothing.",
		Next:    "Run the same command again. If it persists, look at the disk: `ronbox doctor`.",
		Call:    "Send the same request again after Retry-After.",
	},
}
