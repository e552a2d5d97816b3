package ledger

import (
	"context"
	"sync"
	"sync/atomic"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/idem"
)

// ticket stands for a command on its way. Its caller waits at the store; who comes after the caller has left waits here.
type ticket struct {
	done chan struct{} // closed once out says how it ended
	out  *posted       // nil: nothing was done; owned by the committer until done

	mu     sync.Mutex // a leaf, with pending's: they cover a few fields
	ended  bool       // guarded by mu
	forget func()     // takes the ticket off the table of pending ops, once it has got there; guarded by mu
}

func newTicket() *ticket { return &ticket{done: make(chan struct{})} }

// has notes what Apply made of the command.
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

// resolve ends the ticket, by the committer at the end of the group: its outcome stands, or it was taken back.
func (t *ticket) resolve(stands bool) {
	if !stands {
		t.out = nil
	}
	t.end()
}

// fail ends a ticket whose command came to nothing.
func (t *ticket) fail() { t.end() }

func (t *ticket) end() {
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		return
	}
	t.ended = true
	forget := t.forget
	t.mu.Unlock()
	close(t.done)
	if forget != nil {
		forget()
	}
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
	here atomic.Int64 // callers that wait at a ticket
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

// wait is over once the ticket has ended, or with the cause of ctx.
func (p *pending) wait(ctx context.Context, t *ticket) error {
	p.here.Add(1)
	defer p.here.Add(-1)
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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
		t.fail()
	}
}
