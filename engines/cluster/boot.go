package cluster

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"

	"ronbox/store"
)

// Keys of the stable store. keyTerm is raft's.
var (
	keyServer = []byte("ronbox/server")
	keyTerm   = []byte("CurrentTerm")
)

// rejoin is the repair of a log that does not fit the file.
const rejoin = "run `ronbox cluster rejoin --wipe`"

// openLog opens the log in Dir, which is created if missing.
func (n *Node) openLog() (wal, error) {
	if err := os.MkdirAll(n.deps.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	var w *raftwal.WAL
	err := guarded(func() (err error) {
		w, err = raftwal.Open(n.deps.Dir, raftwal.WithLogger(n.raftLog("wal")), raftwal.WithSegmentSize(n.segment))
		return err
	})
	if errors.Is(err, raftwal.ErrCorrupt) {
		return nil, misfit("the raft log is damaged: " + err.Error())
	}
	if err != nil {
		return nil, fmt.Errorf("open the raft log: %w", err)
	}
	return w, nil
}

// guarded runs fn, which reads the log, and converts a memory fault or a panic of bbolt, which
// holds the vote, to an error.
func guarded(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = misfit(fmt.Sprint("the raft log is damaged: ", v))
		}
	}()
	return fn()
}

// misfit returns an error for a log that must not be used with the file.
func misfit(why string) error {
	return fmt.Errorf("%w: %s; %s", store.ErrCorrupt, why, rejoin)
}

// logState describes the log, the term and the owner that Dir holds.
type logState struct {
	first  uint64 // 0: empty
	last   uint64
	at     uint64 // term of the entry at the place of the file; 0: the log does not have it
	term   uint64 // current term
	server string // "" if none is recorded
}

// applyBootRules compares the log with the file and with the identity. It never changes the file
// or the vote.
func (n *Node) applyBootRules(a store.Applied) error {
	var s logState
	err := guarded(func() (err error) {
		s, err = n.readLogState(a.Index)
		return err
	})
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	wipe, err := judgeLog(s, a, n.deps.Self.ServerID())
	if err != nil {
		return err
	}
	if s.server == "" {
		err = n.latch.Set(keyServer, []byte(n.deps.Self.ServerID()))
	}
	if err == nil && wipe {
		n.log.Warn("log_wiped", "first", s.first, "last", s.last, "applied", a.Index, "origin", a.Origin)
		err = n.latch.DeleteRange(s.first, s.last)
	}
	if err == nil && s.term < a.Term {
		err = n.latch.SetUint64(keyTerm, a.Term)
	}
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// readLogState reads what judgeLog compares.
func (n *Node) readLogState(applied uint64) (s logState, err error) {
	l := n.latch
	if s.first, err = l.FirstIndex(); err != nil {
		return s, err
	}
	if s.last, err = l.LastIndex(); err != nil {
		return s, err
	}
	if s.first > 0 && s.first <= applied && applied <= s.last {
		var e raft.Log
		if err = l.GetLog(applied, &e); err != nil {
			return s, err
		}
		s.at = e.Term
	}
	if s.term, err = l.GetUint64(keyTerm); err != nil {
		return s, err
	}
	server, err := l.Get(keyServer)
	s.server = string(server)
	return s, err
}

// judgeLog reports whether the entries of the log must be removed before raft starts. They are, if
// the place of the file was written by init or install and the log does not lead to it. Any other
// log that does not lead to the place of the file may have forgotten an entry or a vote that this
// node has acknowledged.
func judgeLog(s logState, a store.Applied, self string) (wipe bool, err error) {
	placed := a.Origin == originInit || a.Origin == originInstall
	short := s.last < a.Index
	gap := s.first > a.Index+1
	differs := s.at != 0 && s.at != a.Term
	switch {
	case a.Index == 0:
		return false, misfit("the file has no place in a log")
	case s.server != "" && s.server != self:
		return false, misfit(fmt.Sprintf("the raft log is that of node %s, this is %s", s.server, self))
	case gap:
		return false, misfit(fmt.Sprintf("the raft log begins at %d, the file ends at %d", s.first, a.Index))
	case placed:
		return s.first > 0 && (short || differs), nil
	case short:
		return false, misfit(fmt.Sprintf("the raft log ends at %d, the file at %d", s.last, a.Index))
	case differs:
		return false, misfit(fmt.Sprintf("entry %d of the raft log has term %d, the file %d", a.Index, s.at, a.Term))
	case s.server == "" || s.term < a.Term:
		return false, misfit(fmt.Sprintf("the vote ends at term %d, the file at %d", s.term, a.Term))
	}
	return false, nil
}

// Origins of a place that no group has written.
const (
	originInit    = "init"
	originInstall = "install"
)
