package ledger

import (
	"sync"
	"sync/atomic"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/idem"
)

// ticket stands for a command on its way. Its caller waits at the store; who comes after the caller has left asks here once the group of the
// command is over.
type ticket struct {
	mu     sync.Mutex // a leaf, with pending's: they cover a few fields
	out    *posted    // nil: nothing was done; guarded by mu
	ended  bool       // out says how it ended; guarded by mu
	forget func()     // takes the ticket off the table of pending ops, once it has got there; guarded by mu
}

// has notes what Apply made of the command, at its very end: what panics has nothing.
func (t *ticket) has(out *posted) {
	if t == nil {
		return
	}
	t.mu.Lock()
	if !t.ended {
		t.out = out
	}
	t.mu.Unlock()
}

// How a group ended for the commands in it.
const (
	groupSynced = iota
	groupEmpty  // nothing was merged: what was refused was judged on what is in the file
	groupUndone
)

// resolve ends the ticket, by the committer at the end of the group: its outcome stands, or it was taken back.
func (t *ticket) resolve(group int) {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	if t.out != nil && group != groupSynced && !(group == groupEmpty && t.out.batch.No == 0) {
		t.out = nil
	}
	t.ended = true
	forget := t.forget
	t.mu.Unlock()
	if forget != nil {
		forget()
	}
}

// outcome is how the ticket ended, nil if nothing was done; not over while that is open.
func (t *ticket) outcome() (out *posted, over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.ended {
		return nil, false
	}
	return t.out, true
}

// leave has forget run at the end of the ticket. It is false if that is over.
func (t *ticket) leave(forget func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return false
	}
	t.forget = forget
	return true
}

// pending are the ops whose callers have left while the committer had them, by key. They are few: an op gets here by a deadline that passed.
type pending struct {
	mu   sync.Mutex // a leaf
	byOp map[idem.Key]stray
	size atomic.Int64 // of byOp, for whoever asks before each call
}

func newPending() *pending { return &pending{byOp: map[idem.Key]stray{}} }

// stray is one op of a ticket.
type stray struct {
	t           *ticket
	index       int // of the op in the ticket's command
	fingerprint b3.Digest
}

// add enters the keyed ops of a ticket whose caller leaves.
func (p *pending) add(t *ticket, ops []action) {
	keys := make([]idem.Key, 0, len(ops))
	p.mu.Lock()
	for i := range ops {
		if a := &ops[i]; a.keyed {
			p.byOp[a.key] = stray{t, i, a.op.Fingerprint}
			keys = append(keys, a.key)
		}
	}
	p.size.Store(int64(len(p.byOp)))
	p.mu.Unlock()
	if !t.leave(func() { p.remove(t, keys) }) {
		p.remove(t, keys)
	}
}

func (p *pending) remove(t *ticket, keys []idem.Key) {
	p.mu.Lock()
	for _, k := range keys {
		if p.byOp[k].t == t {
			delete(p.byOp, k)
		}
	}
	p.size.Store(int64(len(p.byOp)))
	p.mu.Unlock()
}

// find is the ticket of the same op, if it is still on its way.
func (p *pending) find(a *action) (stray, bool) {
	if !a.keyed {
		return stray{}, false
	}
	p.mu.Lock()
	s, ok := p.byOp[a.key]
	p.mu.Unlock()
	return s, ok && s.fingerprint == a.op.Fingerprint
}

// sweep ends the tickets of a group that has ended without them: the store refused their commands before Apply. The committer calls it as it
// begins another group.
func (p *pending) sweep() {
	if p.size.Load() == 0 {
		return
	}
	p.mu.Lock()
	lost := make([]*ticket, 0, len(p.byOp))
	for _, s := range p.byOp {
		lost = append(lost, s.t)
	}
	p.mu.Unlock()
	for _, t := range lost {
		t.resolve(groupUndone)
	}
}
