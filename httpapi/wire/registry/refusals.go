package registry

import (
	"net/http"

	"ronbox/httpapi/refusal"
)

// Exit codes of the verbs of the registry for its refusals.
const (
	ExitQuorum    = 20 // too few approvals or cosignatures, or one that does not count
	ExitStale     = 21 // the proposal has ended, or HEAD has moved
	ExitDuplicate = 22 // the key has signed it before
	ExitNotFound  = 23 // no such version, proposal or item
)

// Causes of refusals.
const (
	CauseNoGenesis = "no_genesis"
	CauseRollback  = "rollback_detected"
	CauseParent    = "parent"
	CauseRange     = "range"
)

// Refusals has the rows of the registry.
var Refusals = refusal.Table{
	{
		Reason: "malformed", Cause: CauseRange, Title: "Range not served",
		Status:  http.StatusBadRequest,
		Means:   "The range of versions is empty, reversed or too wide.",
		Changed: "Nothing.",
		Next:    "Ask for a smaller range up to the version that `ronbox registry head` shows.",
	},
	{
		Reason: "hard_limit", Title: "Beyond a fixed limit",
		Status:  http.StatusRequestEntityTooLarge,
		Means:   "The document exceeds a limit that no configuration can raise.",
		Changed: "Nothing.",
		Next:    "Split it into several versions.",
	},
	{
		Reason: "chain_mismatch", Title: "Does not build on HEAD",
		Status: http.StatusConflict, Exit: ExitStale,
		Means:   "The proposal does not build on the current version of the registry, because HEAD has moved.",
		Changed: "Nothing.",
		Next:    "Look at `ronbox registry head`, and propose again on top of it.",
	},
	{
		Reason: "version_skew", Title: "Version out of turn",
		Status: http.StatusConflict, Exit: ExitStale,
		Means:   "The proposal does not have the next version number.",
		Changed: "Nothing.",
		Next:    "Look at `ronbox registry head`, and propose again on top of it.",
	},
	{
		Reason: "version_skew", Cause: CauseParent, Title: "Version out of turn",
		Status: http.StatusConflict, Exit: ExitStale,
		Means:   "The proposal builds on another one, which is not committed.",
		Changed: "Nothing.",
		Next:    "Commit {parent} first.",
	},
	{
		Reason: "bad_approval", Title: "Approval of the genesis does not count",
		Status: http.StatusUnprocessableEntity, Exit: ExitQuorum,
		Means:   "An approval of the genesis does not count: its signature or its signer does not fit.",
		Changed: "Nothing.",
		Next:    "Sign the genesis again with a key that it lists (`ronbox registry sign`).",
	},
	{
		Reason: "invalid_sig", Title: "Invalid signature",
		Status: http.StatusUnprocessableEntity, Exit: ExitQuorum,
		Means:   "The signature does not verify for this payload and signer.",
		Changed: "Nothing.",
		Next:    "Sign the exact bytes of `ronbox registry proposals ID --payload` with the key of the signer.",
	},
	{
		Reason: "revoked_key", Title: "Key is not active",
		Status: http.StatusUnprocessableEntity, Exit: ExitQuorum,
		Means:   "The key of the signer is revoked or not yet active.",
		Changed: "Nothing.",
		Next:    "Sign with an active key. `ronbox registry signers show` lists them.",
	},
	{
		Reason: "quorum", Title: "Quorum not reached",
		Status: http.StatusUnprocessableEntity, Exit: ExitQuorum,
		Means:   "Too few signers have approved the proposal: details.have of details.need.",
		Changed: "Nothing.",
		Next:    "Have more of the signers approve it (`ronbox registry approve`), then commit again.",
	},
	{
		Reason: "clock_skew", Title: "Clock skew", Status: http.StatusUnprocessableEntity,
		Means:   "The time in the proposal or approval differs too much from the clock of the node.",
		Changed: "Nothing.",
		Next:    "Correct the clock of the machine that signs, or of the node, then sign again.",
	},
	{
		Reason: "not_found", Title: "Not found", Status: http.StatusNotFound, Exit: ExitNotFound,
		Means:   "There is no such version, proposal or item.",
		Changed: "Nothing.",
		Next:    "`ronbox registry versions` lists the versions, `ronbox registry proposals` the live proposals.",
	},
	{
		Reason: "not_found", Cause: "no_route", Title: "Not found", Status: http.StatusNotFound,
		Exit:    ExitNotFound,
		Means:   "There is no such route, or it is hidden from this caller.",
		Changed: "Nothing.",
		Next: "Check the URL. The admin routes are on the socket (--data-dir), and on TCP with " +
			"server.admin_on_tcp.",
		Call: "The admin routes are on the socket, and on TCP with server.admin_on_tcp.",
	},
	{
		Reason: "expired", Title: "Proposal has expired", Status: http.StatusGone, Exit: ExitStale,
		Means:   "The time limit of the proposal has passed.",
		Changed: "Nothing.",
		Next:    "Propose again.",
	},
	{
		Reason: "pruned", Title: "Version was pruned", Status: http.StatusGone, Exit: ExitNotFound,
		Means:   "Retention has removed this version. Its proofs stay valid.",
		Changed: "Nothing.",
		Next:    "Read a newer version, or an export or snapshot from before.",
	},
	{
		Reason: "duplicate_approval", Title: "Approved before",
		Status: http.StatusConflict, Exit: ExitDuplicate,
		Means:   "This signer has approved the proposal before.",
		Changed: "Nothing. The earlier approval counts.",
		Next:    "Nothing is needed. If details.identical is false, the earlier approval has other bytes.",
	},
	{
		Reason: "follower", Title: "This node follows another", Status: http.StatusConflict,
		Means: "The registry of this node is a copy of the log of another node, and takes no versions of its " +
			"own.",
		Changed: "Nothing.",
		Next:    "Send it to the node that is followed, with --url and a token of that node.",
	},
	{
		Reason: "conflict", Title: "Not in this state", Status: http.StatusConflict,
		Exit:    ExitStale,
		Means:   "The state of the proposal or of the log does not allow this.",
		Changed: "Nothing.",
		Next:    "`ronbox registry proposals` shows the state of the proposals, `ronbox registry head` the log.",
	},
	{
		Reason: "bad_source", Title: "Nothing to catch up from",
		Status: http.StatusUnprocessableEntity,
		Means: "The file to catch up from cannot be used: it is of another registry, has no newer versions, or " +
			"does not verify.",
		Changed: "Nothing.",
		Next:    "Name a newer snapshot or export of the same registry.",
	},
	{
		Reason: "pending_limit", Title: "Too many proposals", Status: http.StatusConflict,
		Means:   "Too many proposals wait for approvals or a commit.",
		Changed: "Nothing.",
		Next:    "Commit or withdraw some of them: `ronbox registry proposals` lists the live proposals.",
	},
	{
		Reason: "degraded", Cause: CauseNoGenesis, Title: "Not ready",
		Status: http.StatusServiceUnavailable, Exit: refusal.ExitFailed, Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The registry has no genesis.",
		Changed: "Nothing.",
		Next:    "Make one with `ronbox registry genesis` and `ronbox registry init`.",
	},
	{
		Reason: "degraded", Cause: CauseRollback, Title: "Not ready",
		Status: http.StatusServiceUnavailable, Exit: refusal.ExitFailed, Retry: true, Wait: refusal.WaitDegraded,
		Means:   "The database may be older than the log that this registry has published.",
		Changed: "Nothing.",
		Next: "`ronbox registry log highwater show` names what is missing; `ronbox registry catch-up` restores " +
			"it.",
	},
}
