package process

import (
	"errors"
	"io/fs"
	"net"
	"syscall"

	"ronbox/appliance/peer"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines/cluster/member"
	"ronbox/httpapi/front"
	"ronbox/store"
)

// Exit codes of Run.
const (
	ExitClean      = 0  // stopped, everything drained
	ExitAborted    = 10 // stopped, some task had to be aborted
	ExitNotRenewed = 11 // the node could not begin its next life
	ExitCorrupt    = 65 // the data cannot be trusted
	ExitInternal   = 70 // a bug: the committer died
	ExitStorage    = 74 // a sync failed; the next boot reads the disk
	ExitLocked     = 75 // another process has the file
	ExitDenied     = 77 // permissions
	ExitConfig     = 78 // configuration or schema
)

// Errors that end a start or an offline operation, beside those of the packages that it uses.
var (
	ErrNoDatabase = errors.New("no database")
	ErrNoCopy     = errors.New("this node is a member of a cluster, and has no database")
	ErrUnfinished = errors.New("an init of this directory was interrupted") // it was killed
	ErrForgets    = errors.New("amnesia.enabled is set: nothing of the node is on a disk")
	ErrSwap       = errors.New("memory may be swapped out to a disk")
	ErrNotOpen    = errors.New("the database is not open")
	errListen     = errors.New("cannot listen") // matches every listenError
)

// CannotListen marks err as an error of opening an address or the socket.
func CannotListen(err error) error { return listenError{err} }

type listenError struct{ error }

func (e listenError) Unwrap() error { return e.error }

func (e listenError) Is(target error) bool { return target == errListen }

// Outcome is the exit code of a failed start, and the advice to the operator.
type Outcome struct {
	Code int
	Next string
}

// OutcomeOf returns the outcome of the first row that matches err.
func OutcomeOf(err error) Outcome {
	if name, ok := errors.AsType[*net.DNSError](err); ok && !name.IsNotFound {
		return Outcome{ExitInternal, "start again once names can be resolved, or use an address"}
	}
	if taken, ok := errors.AsType[portTaken](err); ok {
		return Outcome{ExitLocked, taken.by.Advice}
	}
	for _, row := range outcomes() {
		if errors.Is(err, row.is) {
			return row.Outcome
		}
	}
	return Outcome{ExitInternal, "start again; if it happens again, report a bug with these log lines"}
}

type outcomeRow struct {
	is error
	Outcome
}

func outcomes() []outcomeRow {
	const (
		own      = "run as the user that owns the data directory, and let that user write there"
		room     = "make room on the disk or raise store.max_bytes, then start again"
		disk     = "check the disk, then start again: acknowledged writes are on it"
		readOnly = "the file system is mounted read-only: see in dmesg whether the disk failed, and mount it for " +
			"writing; a unit of systemd may write only below the paths in ReadWritePaths"
		address = "correct server.bind or uds.path"
	)
	return []outcomeRow{
		{store.ErrLocked, Outcome{ExitLocked, "stop that process, or use another data directory"}},
		{
			syscall.EADDRINUSE,
			Outcome{
				ExitLocked,
				"stop the process that listens there, or set server.bind (RONBOX_SERVER__BIND) or cluster.bind, " +
					"whichever is named, to a free port",
			},
		},
		{store.ErrCorrupt, Outcome{ExitCorrupt, "keep the file, and restore a snapshot with `ronbox db restore`"}},
		{
			tokens.ErrExposed,
			Outcome{ExitDenied, "chmod 600 it; if someone has read it, move it away: a new one invalidates all tokens"},
		},
		{
			front.ErrCertificate,
			Outcome{
				ExitConfig,
				"correct tls.cert_path and tls.key_path; only the node may be able to read the key",
			},
		},
		{
			front.ErrPlaintext,
			Outcome{
				ExitConfig,
				"set tls.enabled with a certificate, or bind 127.0.0.1 behind a proxy, or set server.plaintext = true",
			},
		},
		{syscall.EROFS, Outcome{ExitStorage, readOnly}},
		{fs.ErrPermission, Outcome{ExitDenied, own}},
		{store.ErrSchema, Outcome{ExitConfig, "use the release that wrote the file, or a newer one"}},
		{
			store.ErrClustered,
			Outcome{
				ExitConfig,
				"make it a node alone with the release that wrote the file: `ronbox cluster leave --last`",
			},
		},
		{store.ErrNetwork, Outcome{ExitConfig, "move the data directory to a local disk"}},
		{ErrNoCopy, Outcome{ExitConfig, "fetch it from the leader with `ronbox cluster rejoin --wipe`"}},
		{ErrNoDatabase, Outcome{ExitConfig, "make a node with `ronbox init`, or correct --data-dir"}},
		{member.ErrUnfinished, Outcome{ExitConfig, "run the command that is named again"}},
		{member.ErrToken, Outcome{ExitConfig, "empty the data directory, and join again with a new token"}},
		{store.ErrDiverged, Outcome{ExitCorrupt, "run `ronbox cluster rejoin --wipe`, then start it again"}},
		{peer.ErrExposed, Outcome{ExitDenied, "chmod 600 it; if someone has read it, wipe the node and join again"}},
		{ErrUnfinished, Outcome{ExitConfig, "run the same `ronbox init` again: it starts over"}},
		{
			tokens.ErrSecret,
			Outcome{ExitConfig, "restore node.key from its backup, or move it away: a new one invalidates all tokens"},
		},
		{
			ErrSwap,
			Outcome{
				ExitConfig,
				"swapoff -a, or MemorySwapMax=0 or LimitMEMLOCK=infinity in the unit, or set amnesia.allow_swap",
			},
		},
		{
			ErrForgets,
			Outcome{ExitConfig, "start it with `ronbox serve` without init; create tokens over its socket"},
		},
		{errListen, Outcome{ExitConfig, address}},
		{syscall.ENOTDIR, Outcome{ExitConfig, "correct --data-dir"}},
		{store.ErrDied, Outcome{ExitInternal, disk}},
		{store.ErrPoisoned, Outcome{ExitStorage, disk}},
		{store.ErrFull, Outcome{ExitStorage, room}},
		{syscall.ENOSPC, Outcome{ExitStorage, room}},
		{syscall.EDQUOT, Outcome{ExitStorage, room}},
		{syscall.EIO, Outcome{ExitStorage, disk}},
	}
}
