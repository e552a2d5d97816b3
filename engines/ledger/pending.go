package ledger

import (
	"sync"
	"sync/atomic"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/idem"
)

// pending are the shares whose callers do not know how they ended: they left while the committer had them, or the store failed. They are few: one
// gets here by a deadline that passed.
type pending struct {
	mu   sync.Mutex // a leaf
	byOp map[idem.Key]stray
	size atomic.Int64 // shares, those without a key too; for whoever asks before each call
}

func newPending() *pending { return &pending{byOp: map[idem.Key]stray{}} }

// stray is one op of a share.
type stray struct {
	s           *share
	index       int // of the op in the share
	fingerprint b3.Digest
}

// add enters a share whose caller leaves.
func (p *pending) add(s *share) {
	keys := make([]idem.Key, 0, len(s.ops))
	p.size.Add(1)
	p.mu.Lock()
	for i := range s.ops {
		if a := &s.ops[i]; a.keyed {
			p.byOp[a.key] = stray{s, i, a.op.Fingerprint}
			keys = append(keys, a.key)
		}
	}
	p.mu.Unlock()
	if !s.leave(func() { p.remove(s, keys) }) {
		p.remove(s, keys)
	}
}

func (p *pending) remove(s *share, keys []idem.Key) {
	p.mu.Lock()
	for _, k := range keys {
		if p.byOp[k].s == s {
			delete(p.byOp, k)
		}
	}
	p.mu.Unlock()
	p.size.Add(-1)
}

// find is the share of the same op, if it is still on its way.
func (p *pending) find(a *action) (stray, bool) {
	if !a.keyed {
		return stray{}, false
	}
	p.mu.Lock()
	s, ok := p.byOp[a.key]
	p.mu.Unlock()
	return s, ok && s.fingerprint == a.op.Fingerprint
}
