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
	ReasonCloseRunning     = "close_running"
	ReasonCloseTooRecent   = "close_too_recent"
	ReasonCloseNoRoom      = "close_no_room"
	ReasonCloseFileDiffers = "close_file_differs"
)

// ReasonArchiveTarget is the reason of an archive that does not answer or refuses.
const ReasonArchiveTarget = "archive_target"

// Causes of ReasonCloseTooRecent.
const (
	CauseAge   = "age"   // records are too young for the time that was given
	CauseKeys  = "keys"  // idempotency keys lead to them
	CauseClock = "clock" // their age is not known
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
		Reason: ReasonArchiveTarget, Title: "The target refuses", Status: http.StatusBadGateway,
		Means: "The target of the archive does not answer, or does not take a base or the file of a closed period: " +
			"it was emptied, is not the one that was used before, is full, or denies it. The message has its answer.",
		Changed: "Nothing. A base is sent once the target takes it.",
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
		Means:   "No record can be closed: none that is open is that old.",
		Changed: "Nothing.",
		Next:    "Wait, or give a later time.",
		Call:    "Wait, or give a later time.",
	},
	{
		Reason: ReasonCloseTooRecent, Cause: CauseAge, Title: "Nothing is old enough", Status: http.StatusConflict,
		Exit:    20,
		Means:   "No record can be closed: those that are open are younger than that.",
		Changed: "Nothing.",
		Next:    "`ronbox ledger close --before {before}` closes all that can be closed now.",
		Call:    "details.before is the latest time that closes more.",
	},
	{
		Reason: ReasonCloseTooRecent, Cause: CauseKeys, Title: "Nothing is old enough", Status: http.StatusConflict,
		Exit:    20,
		Means:   "No record can be closed: idempotency keys still lead to the oldest ones.",
		Changed: "Nothing.",
		Next: "Wait: a key counts for wallet.idempotency_ttl, the newest ones until later payments have keys. Until " +
			"then no time after {before} closes more.",
		Call: "Wait: a key counts for wallet.idempotency_ttl, the newest ones until later payments have keys. Until " +
			"then no time after details.before closes more.",
	},
	{
		Reason: ReasonCloseTooRecent, Cause: CauseClock, Title: "Nothing is old enough", Status: http.StatusConflict,
		Exit:    20,
		Means:   "No record can be closed: the clock of the node may be wrong, and what is old by it may be new.",
		Changed: "Nothing.",
		Next:    "`ronbox clock status` shows the clock, and what ends the doubt.",
	},
	{
		Reason: ReasonCloseFileDiffers, Title: "There is another file", Status: http.StatusConflict,
		Means: "The folder has a file of that name with other content: of another node, or of another history of " +
			"this one. It stays as it is.",
		Changed: "Nothing.",
		Next: "Name another folder with `ronbox ledger close --out-dir` or ledger.periods_dir, or move {path} away " +
			"if nothing needs it.",
		Call: "Name another folder in out_dir, or move the file away if nothing needs it: details.path.",
	},
	{
		Reason: ReasonCloseNoRoom, Title: "No room for the closing", Status: http.StatusInsufficientStorage,
		Exit: refusal.ExitFailed, Wait: refusal.WaitDegraded,
		Means:   "The disk has no room for the file of the period, or the database none for the state after it.",
		Changed: "Nothing.",
		Next: "Name a folder on another disk with `ronbox ledger close --out-dir`, make room, or raise " +
			"store.max_bytes.",
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
