package server

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

var (
	errNoDatabase = errors.New("no database")
	errNoCopy     = errors.New("this node is a member of a cluster, and has no database")
	errListen     = errors.New("cannot listen") // matches every listenError
)

// listenError is an error of opening an address or the socket.
type listenError struct{ error }

func (e listenError) Unwrap() error { return e.error }

func (e listenError) Is(target error) bool { return target == errListen }

// outcome is the exit code of a failed start and the advice to the operator.
type outcome struct {
	code int
	next string
}

// classify returns the outcome of err on this node. A member gets its data from the others.
func (n *Node) classify(err error) outcome {
	v := classify(err)
	if n.member != nil && v.code == ExitCorrupt {
		v.next = "run `ronbox cluster rejoin --wipe`, then start it again; if no other member has the data, " +
			"keep the directory and see `ronbox cluster recover --help`"
	}
	return v
}

// classify returns the outcome of the first row that matches err.
func classify(err error) outcome {
	for _, s := range services() {
		if s.outcome != nil {
			if out, own := s.outcome(err); own {
				return out
			}
		}
	}
	if name, ok := errors.AsType[*net.DNSError](err); ok && !name.IsNotFound {
		return outcome{ExitInternal, "start again once names can be resolved, or use an address"}
	}
	if taken, ok := errors.AsType[portTaken](err); ok {
		return outcome{ExitLocked, taken.by.advice}
	}
	for _, row := range outcomes() {
		if errors.Is(err, row.is) {
			return row.outcome
		}
	}
	return outcome{ExitInternal, "start again; if it happens again, report a bug with these log lines"}
}

type outcomeRow struct {
	is error
	outcome
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
		{store.ErrLocked, outcome{ExitLocked, "stop that process, or use another data directory"}},
		{
			syscall.EADDRINUSE,
			outcome{
				ExitLocked,
				"stop the process that listens there, or set server.bind (RONBOX_SERVER__BIND) or cluster.bind, " +
					"whichever is named, to a free port",
			},
		},
		{store.ErrCorrupt, outcome{ExitCorrupt, "keep the file, and restore a snapshot with `ronbox db restore`"}},
		{
			tokens.ErrExposed,
			outcome{ExitDenied, "chmod 600 it; if someone has read it, move it away: a new one invalidates all tokens"},
		},
		{
			front.ErrCertificate,
			outcome{
				ExitConfig,
				"correct tls.cert_path and tls.key_path; only the node may be able to read the key",
			},
		},
		{
			front.ErrPlaintext,
			outcome{
				ExitConfig,
				"set tls.enabled with a certificate, or bind 127.0.0.1 behind a proxy, or set server.plaintext = true",
			},
		},
		{syscall.EROFS, outcome{ExitStorage, readOnly}},
		{fs.ErrPermission, outcome{ExitDenied, own}},
		{store.ErrSchema, outcome{ExitConfig, "use the release that wrote the file, or a newer one"}},
		{
			store.ErrClustered,
			outcome{
				ExitConfig,
				"make it a node alone with the release that wrote the file: `ronbox cluster leave --last`",
			},
		},
		{store.ErrNetwork, outcome{ExitConfig, "move the data directory to a local disk"}},
		{errNoCopy, outcome{ExitConfig, "fetch it from the leader with `ronbox cluster rejoin --wipe`"}},
		{errNoDatabase, outcome{ExitConfig, "make a node with `ronbox init`, or correct --data-dir"}},
		{member.ErrUnfinished, outcome{ExitConfig, "run the command that is named again"}},
		{member.ErrToken, outcome{ExitConfig, "empty the data directory, and join again with a new token"}},
		{store.ErrDiverged, outcome{ExitCorrupt, "run `ronbox cluster rejoin --wipe`, then start it again"}},
		{peer.ErrExposed, outcome{ExitDenied, "chmod 600 it; if someone has read it, wipe the node and join again"}},
		{errUnfinished, outcome{ExitConfig, "run the same `ronbox init` again: it starts over"}},
		{
			tokens.ErrSecret,
			outcome{ExitConfig, "restore node.key from its backup, or move it away: a new one invalidates all tokens"},
		},
		{
			errSwap,
			outcome{
				ExitConfig,
				"swapoff -a, or MemorySwapMax=0 or LimitMEMLOCK=infinity in the unit, or set amnesia.allow_swap",
			},
		},
		{
			errForgets,
			outcome{ExitConfig, "start it with `ronbox serve` without init; create tokens over its socket"},
		},
		{errListen, outcome{ExitConfig, address}},
		{syscall.ENOTDIR, outcome{ExitConfig, "correct --data-dir"}},
		{store.ErrDied, outcome{ExitInternal, disk}},
		{store.ErrPoisoned, outcome{ExitStorage, disk}},
		{store.ErrFull, outcome{ExitStorage, room}},
		{syscall.ENOSPC, outcome{ExitStorage, room}},
		{syscall.EDQUOT, outcome{ExitStorage, room}},
		{syscall.EIO, outcome{ExitStorage, disk}},
	}
}
