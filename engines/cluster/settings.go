package cluster

import (
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Bounds of raft. Its messages and its cache count entries; an entry is a group of at most 1 MiB or
// one bulk command of at most 4 MiB.
const (
	sentEntries   = 16
	cachedEntries = 32
	keptEntries   = 10240 // behind the last snapshot: a member further behind gets the file
	rpcsInFlight  = 1     // disables pipelining, which a stalled follower can wedge for good
	connsPerPeer  = 3
)

// raftConfig returns the configuration of raft.
func (n *Node) raftConfig() *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(n.deps.Self.ServerID())
	c.Logger = n.raftLog("raft")
	c.HeartbeatTimeout = n.heartbeat()
	c.ElectionTimeout = n.heartbeat()
	c.LeaderLeaseTimeout = n.heartbeat() / 2
	c.MaxAppendEntries = sentEntries
	c.TrailingLogs = keptEntries
	c.NoSnapshotRestoreOnStart = true // the file is the snapshot
	c.NoLegacyTelemetry = true
	c.ShutdownOnRemove = false
	n.tune(c)
	return c
}

// heartbeat returns the time without a message of the leader after which a voter stands.
func (n *Node) heartbeat() time.Duration { return n.deps.Config.Heartbeat.D() }

// rpcTimeout returns the time limit of a message. The largest takes some seconds on a slow network.
func (n *Node) rpcTimeout() time.Duration { return 5 * n.heartbeat() }

// raftLog returns the logger of a part of raft.
func (n *Node) raftLog(name string) hclog.Logger { return quiet{n.log.Named(name)} }

// quiet logs the failed contacts of raft at the level debug. Raft repeats them several times a
// second while a member is silent; the watchdog logs that once. The same goes for its complaint
// about the peer port, which accepts without error until the node has closed it.
type quiet struct{ hclog.Logger }

// debugged lists such lines.
var debugged = []string{
	"failed to accept connection",
	"failed to heartbeat to",
	"failed to appendEntries to",
	"failed to contact",
	"failed to make requestVote RPC",
	"Election timeout reached, restarting election",
}

// Error implements hclog.Logger.
func (q quiet) Error(msg string, args ...any) { q.emit(hclog.Error, msg, args) }

// Warn implements hclog.Logger.
func (q quiet) Warn(msg string, args ...any) { q.emit(hclog.Warn, msg, args) }

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
