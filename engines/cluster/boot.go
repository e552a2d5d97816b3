package cluster

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"

	"ronbox/appliance/host"
	"ronbox/store"
)

// Keys of the stable store. keyTerm is raft's.
var (
	keyServer = []byte("ronbox/server")
	keyLog    = []byte("ronbox/log") // id that the file is bound to
	keyTerm   = []byte("CurrentTerm")
)

// rejoin is the repair of a log that does not fit the file.
const rejoin = "run `ronbox cluster rejoin --wipe`"

// openLog opens the log in Dir, which is created if missing. The name of Dir is durable before the
// file is bound to the log: a file whose log was lost is refused.
func (n *Node) openLog() (wal, error) {
	if err := errors.Join(os.MkdirAll(n.deps.Dir, 0o700), host.SyncDir(n.dataDir())); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	var w *raftwal.WAL
	err := guarded(func() (err error) {
		if err = mendTail(n.deps.Dir, n.store.Applied().Index); err == nil {
			w, err = raftwal.Open(n.deps.Dir, raftwal.WithLogger(n.raftLog("wal")), raftwal.WithSegmentSize(n.segment))
		}
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
	id     []byte // nil if none is recorded
}

// applyBootRules compares the log with the file and with the identity, and binds the file to the
// log before this node acknowledges anything. It changes no other row of the file, nor a vote.
func (n *Node) applyBootRules(ctx context.Context, a store.Applied) error {
	var s logState
	err := guarded(func() (err error) {
		s, err = n.readLogState(a.Index)
		return err
	})
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	bound := n.deps.Membership.Log
	wipe, err := judgeLog(s, a, bound, n.deps.Self.ServerID())
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
	if err == nil && bound == nil {
		err = n.bindLog(ctx)
	}
	if err != nil {
		return fmt.Errorf("cluster: %w", err)
	}
	return nil
}

// bindLog gives the log a new id, which the file records next. If the node stops in between, the
// next boot does it again: the file is not bound yet.
func (n *Node) bindLog(ctx context.Context) error {
	id := make([]byte, 16)
	if _, err := rand.Read(id); err != nil {
		return err
	}
	if err := n.latch.Set(keyLog, id); err != nil {
		return err
	}
	return n.store.BindLog(ctx, id)
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
	if err != nil {
		return s, err
	}
	s.server = string(server)
	s.id, err = l.Get(keyLog)
	return s, err
}

// judgeLog reports whether the entries of the log must be removed before raft starts. A log that
// does not lead to the place of the file may have forgotten an entry or a vote that this node has
// acknowledged. bound is the id of the log to which the file is bound; nil: none. The file is bound
// in the first boot after init, recovery or install, before raft starts.
//
//	place of the file    bound to     log                       result
//	init or install      none         leads to the place        used
//	                                  empty, short or another   emptied: it is older than the place
//	                     its id       leads to the place        used
//	                                  empty                     used: nothing was stored since
//	                                  short or another          refused: it was put back
//	                     another id   any                       refused: it was wiped or put back
//	a group or an entry  its id       leads to the place        used
//	                                  any other                 refused
//	                     another id   any                       refused
//
// An earlier copy of the log to which the file is bound is refused only if it does not lead to the
// place of the file, or is behind it in its term.
func judgeLog(s logState, a store.Applied, bound []byte, self string) (wipe bool, err error) {
	placed := a.Origin == originInit || a.Origin == originInstall
	unused := placed && s.first == 0
	short := s.last < a.Index && !unused
	gap := s.first > a.Index+1
	differs := s.at != 0 && s.at != a.Term
	switch {
	case a.Index == 0:
		return false, misfit("the file has no place in a log")
	case s.server != "" && s.server != self:
		return false, misfit(fmt.Sprintf("the raft log is that of node %s, this is %s", s.server, self))
	case gap:
		return false, misfit(fmt.Sprintf("the raft log begins at %d, the file ends at %d", s.first, a.Index))
	case bound != nil && !bytes.Equal(s.id, bound):
		return false, misfit("the raft log is not the one that the file goes on with: it was removed or put back")
	case placed && bound == nil:
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
