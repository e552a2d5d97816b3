package appliance

import (
	"errors"
	"io/fs"
	"net"
	"syscall"

	"ronbox/engines/registry"
	"ronbox/store"
)

// Exit codes of Run.
const (
	ExitClean    = 0  // stopped, everything drained
	ExitAborted  = 10 // stopped, some task had to be aborted
	ExitCorrupt  = 65 // the data cannot be trusted
	ExitInternal = 70 // a bug: the committer died
	ExitStorage  = 74 // a sync failed; the next boot reads what is on disk
	ExitLocked   = 75 // another process has the file
	ExitDenied   = 77 // permissions
	ExitConfig   = 78 // configuration or schema
)

var (
	errNoDatabase = errors.New("no database")
	errSecret     = errors.New("node secret is not usable")
	errExposed    = errors.New("others may read it")
	errListen     = errors.New("cannot listen") // what a listenError is
)

// listenError marks what kept an address or the socket from being opened.
type listenError struct{ error }

func (e listenError) Unwrap() error { return e.error }

func (e listenError) Is(target error) bool { return target == errListen }

// ExitCode is the code that `serve` and `init` end with on err.
func ExitCode(err error) int { return judge(err).code }

// verdict is what keeps a node from starting: the exit code, and what the operator can do about it.
type verdict struct {
	code int
	next string
}

// judge sorts err by the first row that it is.
func judge(err error) verdict {
	if _, other := errors.AsType[*registry.GenesisMismatchError](err); other {
		return verdict{ExitConfig, "name the log that this file holds, or give the data directory of the log that is named"}
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok && !name.IsNotFound {
		return verdict{ExitInternal, "start again once names can be looked up, or give an address"}
	}
	for _, row := range verdicts() {
		if errors.Is(err, row.is) {
			return row.verdict
		}
	}
	return verdict{ExitInternal, "start again; if it happens again it is a bug, to be reported with these lines"}
}

type verdictRow struct {
	is error
	verdict
}

func verdicts() []verdictRow {
	const (
		own     = "run as the user that owns the data directory, and let that user write there"
		room    = "make room on the disk or raise store.max_bytes, then start again"
		disk    = "check the disk, then start again: what was acknowledged is on it"
		address = "correct server.bind or uds.path"
	)
	return []verdictRow{
		{store.ErrLocked, verdict{ExitLocked, "stop that process, or leave the data directory to it"}},
		{syscall.EADDRINUSE, verdict{ExitLocked, "stop the process that listens there, or set server.bind (RONBOX_SERVER__BIND) to a free port"}},
		{store.ErrCorrupt, verdict{ExitCorrupt, "keep the file, and restore a snapshot with `ronbox db restore`"}},
		{errExposed, verdict{ExitDenied, "chmod 600 it; if someone has read it, move it away: a new one voids all tokens"}},
		{fs.ErrPermission, verdict{ExitDenied, own}},
		{syscall.EROFS, verdict{ExitDenied, own}},
		{store.ErrSchema, verdict{ExitConfig, "use the release that wrote the file, or a newer one"}},
		{store.ErrNetwork, verdict{ExitConfig, "move the data directory to a local disk"}},
		{errNoDatabase, verdict{ExitConfig, "make a node with `ronbox init`, or correct --data-dir"}},
		{errUnfinished, verdict{ExitConfig, "run `ronbox init` as before: it begins anew"}},
		{errSecret, verdict{ExitConfig, "put node.key back from its backup, or move it away: a new one voids all tokens"}},
		{errSwap, verdict{ExitConfig, "swapoff -a, or MemorySwapMax=0 or LimitMEMLOCK=infinity in the unit, or set amnesia.allow_swap"}},
		{errForgets, verdict{ExitConfig, "start it with `ronbox serve`, it needs no init; mint over its socket while it runs"}},
		{errListen, verdict{ExitConfig, address}},
		{syscall.ENOTDIR, verdict{ExitConfig, "correct --data-dir"}},
		{store.ErrDied, verdict{ExitInternal, disk}},
		{store.ErrPoisoned, verdict{ExitStorage, disk}},
		{store.ErrFull, verdict{ExitStorage, room}},
		{syscall.ENOSPC, verdict{ExitStorage, room}},
		{syscall.EDQUOT, verdict{ExitStorage, room}},
		{syscall.EIO, verdict{ExitStorage, disk}},
	}
}
