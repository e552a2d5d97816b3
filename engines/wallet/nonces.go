package wallet

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// nonces keep the jobs of an account in the order of their nonces while they are on their way to the ledger: one burst at a time has an
// account's slot, jobs with the nonces that follow go into the same burst or wait in the slot. A slot lives while a burst has it, so there
// are never more slots than accounts of jobs in the hands of workers: workers × worker_burst, and batch_inflight_ops of batches.
//
// A reservation orders and never refuses. What cannot be reserved goes to the ledger all the same, which alone knows whether a nonce is good;
// so nothing has to be kept, and nothing is released on a guess, when the outcome of a call is not known.
type nonces struct {
	seed   maphash.Seed
	shards []nonceShard
	live   atomic.Int64 // slots
}

type nonceShard struct {
	mu    sync.Mutex // a leaf: covers the map and the members of its slots that say so
	slots map[string]*slot
}

// slot is one account's.
type slot struct {
	account string
	shard   *nonceShard
	next    atomic.Uint64 // first nonce after those reserved
	owner   *burst        // guarded by shard.mu
	tail    uint64        // first nonce after those that wait; guarded by shard.mu
	waiting []*job        // guarded by shard.mu
}

// place is where a nonce has found its job to belong.
type place int

const (
	reserved place = iota // in this burst, and no other job has the nonce
	loose                 // in this burst, and the ledger will say
	parked                // behind another burst, which wakes it
	crowded               // as many wait there as may
)

func newNonces(shards int) *nonces {
	n := &nonces{seed: maphash.MakeSeed(), shards: make([]nonceShard, shards)}
	for i := range n.shards {
		n.shards[i].slots = map[string]*slot{}
	}
	return n
}

func (n *nonces) shard(account string) *nonceShard {
	return &n.shards[maphash.String(n.seed, account)&uint64(len(n.shards)-1)]
}

// enter finds the place of j, which uses nonce on account: in b, if b has the account's slot or nobody has; else behind the burst that has
// it, if its nonce follows one that is reserved or waits there.
func (n *nonces) enter(b *burst, j *job, account string, nonce uint64, set *settings) place {
	h := n.shard(account)
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.slots[account]
	if s == nil {
		s = &slot{account: account, shard: h, owner: b}
		s.next.Store(nonce)
		h.slots[account] = s
		n.live.Add(1)
		b.slots = append(b.slots, s)
	}
	if s.owner == b {
		return s.reserve(nonce, set.limits.Monotonic)
	}
	next := s.next.Load()
	s.tail = max(s.tail, next)
	switch {
	case nonce < next, nonce > s.tail && !set.limits.Monotonic:
		return loose // used up, or ahead of all that is in sight
	case len(s.waiting) >= set.NoncePipeline:
		return crowded
	}
	s.waiting = append(s.waiting, j)
	s.tail = max(s.tail, j.after(account, nonce))
	return parked
}

// reserve takes a nonce: of all who try the same one, one succeeds. In strict order it must be the next; else it may skip some.
func (s *slot) reserve(nonce uint64, skip bool) place {
	if s.next.CompareAndSwap(nonce, nonce+1) {
		return reserved
	}
	for n := s.next.Load(); skip && n < nonce; n = s.next.Load() {
		if s.next.CompareAndSwap(n, nonce+1) {
			return reserved
		}
	}
	return loose
}

// leave gives up b's slots and returns the jobs that waited in them.
func (n *nonces) leave(b *burst) (woken []*job) {
	for _, s := range b.slots {
		s.shard.mu.Lock()
		woken = append(woken, s.waiting...)
		delete(s.shard.slots, s.account)
		s.shard.mu.Unlock()
	}
	n.live.Add(-int64(len(b.slots)))
	b.slots = nil
	return woken
}
