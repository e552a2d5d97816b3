package ledger

import (
	"sync"
	"sync/atomic"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/idem"
)

// pending are the ops whose callers have left while the committer had them, by key. They are few: an op gets here by a deadline that passed.
type pending struct {
	mu   sync.Mutex // a leaf
	byOp map[idem.Key]stray
	size atomic.Int64 // of byOp, for whoever asks before each call
}

func newPending() *pending { return &pending{byOp: map[idem.Key]stray{}} }

// stray is one op of a share.
type stray struct {
	s           *share
	index       int // of the op in the share
	fingerprint b3.Digest
}

// add enters the keyed ops of a share whose caller leaves.
func (p *pending) add(s *share) {
	keys := make([]idem.Key, 0, len(s.ops))
	p.mu.Lock()
	for i := range s.ops {
		if a := &s.ops[i]; a.keyed {
			p.byOp[a.key] = stray{s, i, a.op.Fingerprint}
			keys = append(keys, a.key)
		}
	}
	p.size.Store(int64(len(p.byOp)))
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
	p.size.Store(int64(len(p.byOp)))
	p.mu.Unlock()
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
