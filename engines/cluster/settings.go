package cluster

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Bounds of raft. Its cache counts entries; an entry is a group of at most 1 MiB, or one bulk
// command of at most 4 MiB.
const (
	sentEntries   = 16
	sentBytes     = 1 << 20 // of entries in one message, unless one alone is larger
	cachedEntries = 32
	keptEntries   = 10240 // behind the last snapshot: a member further behind gets the file
	rpcsInFlight  = 1     // disables pipelining, which a stalled follower can wedge for good
	connsPerPeer  = 3

	truncateEvery = 5 * time.Second // at most twice that

	// Bytes of the files of the log, 16 segments. The log may be larger until the next truncation.
	// A third is some minutes of the fastest writes, in which another member can fetch the file.
	// Without a bound, keptEntries of the largest groups would take 10 GiB.
	mostLog = 1 << 30
)

// raftConfig returns the configuration of raft.
func (n *Node) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.deps.Self.ServerID())
	c.Logger = n.raftLog("raft")
	c.HeartbeatTimeout = n.heartbeat()
	c.ElectionTimeout = n.heartbeat()
	c.LeaderLeaseTimeout = n.heartbeat()
	c.MaxAppendEntries = sentEntries
	c.TrailingLogs = keptEntries
	c.SnapshotInterval = truncateEvery
	c.NoSnapshotRestoreOnStart = true // the file is the snapshot
	c.NoLegacyTelemetry = true
	c.ShutdownOnRemove = false
	n.tune(c)
	return c
}

// boundLog makes raft keep fewer entries while the files of the log are larger than its bound. Raft
// never truncates beyond the place of the file.
func (n *Node) boundLog() {
	entries, size, err := n.logSize()
	if err != nil {
		n.log.Debug("log_size", "error", err)
		return
	}
	c := bounded(n.usual, entries, size, n.mostLog)
	was := n.raft.ReloadableConfig()
	if c == was {
		return
	}
	if was == n.usual {
		n.log.Info("log_bounded", "bytes", size, "entries", entries, "keep", c.TrailingLogs)
	}
	if err := n.raft.ReloadConfig(c); err != nil {
		n.log.Error("log_bounded", "error", err)
	}
}

// bounded returns the configuration of raft for a log of the given entries and bytes. Above the
// bound raft keeps what fills a third of it by the mean of the entries, but not less than one
// message. The segments at both ends, which are removed whole, then fit into the rest.
func bounded(usual raft.ReloadableConfig, entries uint64, size, most int64) raft.ReloadableConfig {
	if size > most {
		kept := uint64(float64(entries) * float64(most) / float64(3*size))
		usual.TrailingLogs = min(usual.TrailingLogs, max(kept, sentEntries))
		usual.SnapshotThreshold = min(usual.SnapshotThreshold, sentEntries)
	}
	return usual
}

// logSize returns the number of entries in the log, and the size of its files.
func (n *Node) logSize() (entries uint64, size int64, err error) {
	files, err := os.ReadDir(n.deps.Dir)
	if err != nil {
		return 0, 0, err
	}
	for _, f := range files {
		info, err := f.Info()
		switch {
		case err == nil:
			size += info.Size()
		case !errors.Is(err, fs.ErrNotExist): // else the log has removed it
			return 0, 0, err
		}
	}
	// not through the latch, which ends the goroutine that meets an error
	first, err := n.latch.wal.FirstIndex()
	if err != nil || first == 0 {
		return 0, size, err
	}
	last, err := n.latch.wal.LastIndex()
	return last - first + 1, size, err
}

// heartbeat returns the time without a message of the leader after which a voter stands.
func (n *Node) heartbeat() time.Duration { return n.deps.Config.Heartbeat.D() }

// rpcTimeout returns the time limit of a message. The largest takes some seconds on a slow network.
func (n *Node) rpcTimeout() time.Duration { return 5 * n.heartbeat() }

// raftLog returns the logger of a part of raft.
func (n *Node) raftLog(name string) hclog.Logger { return quiet{n.log.Named(name)} }

// quiet logs at the level debug what raft repeats: its truncations, and several times a second its
// failed contacts with a silent member, which the watchdog logs once. A truncation fails until the
// next group of a leader has moved its place; errors of the log and the store are logged elsewhere.
// quiet does the same with the complaint about the peer port, which accepts without error until the
// node has closed it.
type quiet struct{ hclog.Logger }

// debugged lists such lines.
var debugged = []string{
	"failed to accept connection",
	"failed to heartbeat to",
	"failed to appendEntries to",
	"failed to contact",
	"failed to take snapshot",
	"failed to make requestVote RPC",
	"Election timeout reached, restarting election",
	"starting snapshot up to",
	"compacting logs",
	"no logs to truncate",
	"snapshot complete up to",
}

// Error implements hclog.Logger.
func (q quiet) Error(msg string, args ...any) { q.emit(hclog.Error, msg, args) }

// Warn implements hclog.Logger.
func (q quiet) Warn(msg string, args ...any) { q.emit(hclog.Warn, msg, args) }

// Info implements hclog.Logger.
func (q quiet) Info(msg string, args ...any) { q.emit(hclog.Info, msg, args) }

func (q quiet) emit(level hclog.Level, msg string, args []any) {
	if slices.Contains(debugged, msg) {
		level = hclog.Debug
	}
	q.Log(level, msg, args...)
}

// monotonic adds IsMonotonic to raft's cache of the log.
type monotonic struct{ *raft.LogCache }

// IsMonotonic reports that the log has no gaps, so that raft empties it after a snapshot.
func (monotonic) IsMonotonic() bool { return true }
