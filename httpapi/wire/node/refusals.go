package node

import (
	"net/http"

	"ronbox/httpapi/refusal"
)

// ReasonSnapshotDir is the reason of a refusal to write into the folder of a snapshot.
const ReasonSnapshotDir = "snapshot_dir"

// Causes of conflicts with the clock of the node.
const (
	CauseNotAhead    = "not_ahead"
	CauseBeforeBuild = "before_build"
)

// Reasons of closings.
const (
	ReasonCloseRunning   = "close_running"
	ReasonCloseTooRecent = "close_too_recent"
	ReasonCloseNoRoom    = "close_no_room"
)

// Refusals has the rows of the node.
var Refusals = refusal.Table{
	{
		Reason: "conflict", Title: "Not in this state", Status: http.StatusConflict,
		Means:   "The request does not fit the current state of the node.",
		Changed: "Nothing.",
		Next:    "The message names the state. Read it, then decide again.",
	},
	{
		Reason: "conflict", Cause: CauseNotAhead, Title: "Not in this state",
		Status:  http.StatusConflict,
		Means:   "The clock of the machine is not ahead of the clock of the node.",
		Changed: "Nothing.",
		Next:    "There is nothing to accept. `ronbox clock status` shows the two clocks.",
	},
	{
		Reason: "conflict", Cause: CauseBeforeBuild, Title: "Not in this state",
		Status:  http.StatusConflict,
		Means:   "The clock of the machine is before the time at which this release was built.",
		Changed: "Nothing.",
		Next:    "Set the clock of the machine, for instance with a time daemon.",
	},
	{
		Reason: "archive_off", Title: "No archive", Status: http.StatusConflict,
		Means:   "The node has no archive: archive.target is empty, or its local files could not be read.",
		Changed: "Nothing.",
		Next: "Set archive.target and archive.recipients, for which `ronbox archive keygen` makes a key, and restart " +
			"the node.",
	},
	{
		Reason: "archive_busy", Title: "Capture has stopped", Status: http.StatusConflict,
		Means:   "The archive has no space on the local disk. It begins anew, with a base, once everything was sent.",
		Changed: "Nothing.",
		Next:    "`ronbox archive status` shows the progress. Ask again later.",
	},
	{
		Reason: "archive_target", Title: "The target refuses", Status: http.StatusBadGateway,
		Means: "The target of the archive answers, and does not take the base: it was emptied, is not the one that " +
			"was used before, is full, or denies it. The message has its answer.",
		Changed: "The base is sent once the target takes it.",
		Next:    "Mount the target, make room in it, or correct its rights. `ronbox archive check` tries it.",
	},
	{
		Reason: "archive_local", Title: "The archive cannot write its files", Status: http.StatusInternalServerError,
		Means:   "The snapshot of a base could not be written into the folder archive of the data directory.",
		Changed: "Nothing.",
		Next:    "The message names the file and the error. Correct it, then ask again.",
	},
	{
		Reason: ReasonCloseRunning, Title: "A closing is under way", Status: http.StatusConflict,
		Means:   "A period of the ledger is being closed.",
		Changed: "Nothing.",
		Next:    "`ronbox ledger close --status` shows it, `ronbox ledger close --cancel` ends it.",
	},
	{
		Reason: ReasonCloseTooRecent, Title: "Nothing is old enough", Status: http.StatusConflict, Exit: 20,
		Means: "No record can be closed: none is that old, its idempotency key still counts, or the clock " +
			"may be wrong.",
		Changed: "Nothing.",
		Next: "Give a later time, or wait: details.reason says for what. `ronbox clock status` shows the clock, " +
			"wallet.idempotency_ttl is how long keys count.",
	},
	{
		Reason: ReasonCloseNoRoom, Title: "No room for the closing", Status: http.StatusInsufficientStorage,
		Exit:    refusal.ExitFailed,
		Means:   "The disk has no room for the file of the period, or the database none for the state after it.",
		Changed: "Nothing.",
		Next:    "Name a folder on another disk with `ronbox ledger close --out-dir`, make room, or raise store.max_bytes.",
	},
	{
		Reason: "reload_refused", Title: "Configuration refused",
		Status:  http.StatusUnprocessableEntity,
		Means:   "The new configuration has a fault, or needs a restart. The old one stays in force.",
		Changed: "Nothing.",
		Next:    "Correct the named keys (`ronbox config diff running` shows the changes), then reload again.",
	},
	{
		Reason: ReasonSnapshotDir, Title: "The folder cannot be written",
		Status: http.StatusBadRequest,
		Means: "The node cannot write the folder of the snapshot. The details name the folder, the user of the " +
			"node, and its unit of systemd.",
		Changed: "Nothing.",
		Next: "Name another folder, or let that user write it. For a unit add ReadWritePaths=FOLDER with " +
			"`systemctl edit`, then restart it.",
	},
}
