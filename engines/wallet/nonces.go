package wallet

import (
	"hash/maphash"
	"slices"
	"sync/atomic"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
)

// nonces keep the jobs of an account in the order of their nonces while they are on their way to the ledger. A job is noted in the slots of
// its accounts before it is queued, and struck out when it is answered. In between, jobs whose nonces follow each other go into one burst
// together, and one that follows a job in other hands waits in the slot until that job is answered. It waits only for jobs that were noted
// before it, so no two wait for each other. One that comes before those it follows lies aside for a while.
//
// A reservation orders and never refuses. What cannot be reserved goes to the ledger all the same, which alone knows whether a nonce is good;
// so nothing has to be kept, and nothing is released on a guess, when the outcome of a call is not known.
//
// A slot lives while a job is noted or lies in it: there are never more than nonces of jobs in hand, each of which holds a place in the queue, in a
// burst, or in a slot, and room for its operations if it is a batch.
type nonces struct {
	seed   maphash.Seed
	shards []nonceShard
	ticket atomic.Uint64
	live   atomic.Int64 // slots
	early  atomic.Int64 // jobs that lie aside
	closed atomic.Bool  // no more do
}

type nonceShard struct {
	mu    *flow.Mutex // covers the map, and the members of its slots that say so
	slots map[string]*slot
}

// slot is one account's.
type slot struct {
	account string
	shard   *nonceShard
	owner   *burst // that has reserved; guarded by shard.mu, as is all below
	next    uint64 // first nonce after those that owner has reserved
	noted   []span
	waiting []*job
	early   []*job  // not noted, by nonce
	expect  uint64  // the account's next nonce is this or a higher one, and was this when the ledger spoke last; 0: not known
	few     [2]span // where the first ones are noted: most accounts have one job under way
}

// span are consecutive nonces of one job: from lo up to hi, without hi.
type span struct{ lo, hi, ticket uint64 }

// need is what a job wants of one account.
type need struct {
	account string
	lo, hi  uint64
	slot    *slot // once it is noted
}

// place is where a job finds itself to belong.
type place int

const (
	free     place = iota // behind nobody
	reserved              // in this burst, and no other job has the nonce
	loose                 // in this burst, and the ledger will say
	parked                // behind a job in other hands, whose answer wakes it
	early                 // ahead of those in sight, and lies aside
	crowded               // as many wait there as may
)

func newNonces(c *flow.Catalog, shards int) *nonces {
	n := &nonces{seed: maphash.MakeSeed(), shards: make([]nonceShard, shards)}
	for i := range n.shards {
		n.shards[i] = nonceShard{mu: flow.NewMutex(c, service, flow.RankCounters), slots: map[string]*slot{}}
	}
	return n
}

// note enters j into the slots of its accounts.
func (n *nonces) note(j *job) {
	j.ticket = n.ticket.Add(1)
	for i := range j.needs {
		d := &j.needs[i]
		h := &n.shards[maphash.String(n.seed, d.account)&uint64(len(n.shards)-1)]
		h.mu.Lock()
		s := h.slots[d.account]
		if s == nil {
			s = &slot{account: d.account, shard: h}
			s.noted = s.few[:0]
			h.slots[d.account] = s
			n.live.Add(1)
		}
		s.noted = append(s.noted, span{d.lo, d.hi, j.ticket})
		d.slot = s
		h.mu.Unlock()
	}
}

// strike takes j, whose outcome is out, nil if it has none, out of its slots. It returns the jobs that waited there and those that are not
// early any more: each is to look for its place again.
func (n *nonces) strike(j *job, out *ledger.Outcome) (woken []*job) {
	for i := range j.needs {
		s := j.needs[i].slot
		if s == nil {
			continue
		}
		j.needs[i].slot = nil
		s.shard.mu.Lock()
		s.forget(j)
		woken = append(append(woken, s.waiting...), n.learn(s, j, out)...)
		s.waiting = nil
		if len(s.noted) == 0 && len(s.early) == 0 {
			delete(s.shard.slots, s.account)
			n.live.Add(-1)
		}
		s.shard.mu.Unlock()
	}
	return woken
}

// forget takes the note of j out.
func (s *slot) forget(j *job) {
	s.noted = slices.DeleteFunc(s.noted, func(o span) bool { return o.ticket == j.ticket })
}

// wait parks j in the slot of d if a nonce that goes before is in other hands, and puts it aside if none is in sight that should be; woken are
// those that waited for it then. The jobs before it can only become fewer, so what was found free stays so.
func (n *nonces) wait(b *burst, j *job, d *need, set *settings) (p place, woken []*job) {
	s := d.slot
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	from := s.reached(b)
	if s.follows(d.lo, from, j.ticket, set.limits.Monotonic) {
		if s.full(set) {
			return crowded, nil
		}
		s.waiting = append(s.waiting, j)
		return parked, nil
	}
	if s.ahead(d.lo, from) {
		if woken, aside := n.lay(s, j, set); aside {
			return early, woken
		}
	}
	return free, nil
}

// take reserves the nonces of d for b, of a job that need not wait for any.
func (n *nonces) take(b *burst, d *need, skip bool) place {
	s := d.slot
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if s.ahead(d.lo, s.reached(b)) && !skip {
		return loose // and nothing follows it
	}
	if s.owner == nil {
		s.owner, s.next = b, d.lo
		b.slots = append(b.slots, s)
	}
	if s.owner != b {
		return loose
	}
	return s.reserve(d.lo, d.hi, skip)
}

// reached is the nonce up to which b has those before, 0 if it has none.
func (s *slot) reached(b *burst) uint64 {
	if s.owner == b {
		return s.next
	}
	return 0
}

// ahead says whether lo is known to be ahead of the account and of those that go before it in the burst, which has reached from.
func (s *slot) ahead(lo, from uint64) bool { return s.expect != 0 && lo > max(s.expect, from) }

// follows says whether a nonce that goes before lo, and is not below from, is noted by an earlier job.
func (s *slot) follows(lo, from, ticket uint64, skip bool) bool {
	return slices.ContainsFunc(s.noted, func(o span) bool {
		if o.ticket >= ticket || o.hi <= from || o.lo >= lo {
			return false
		}
		return skip || o.hi >= lo
	})
}

// reserve takes nonces: of all who try the same ones, one succeeds, since the shard's lock lets in one at a time. In strict order they must be
// the next; else they may skip some.
func (s *slot) reserve(lo, hi uint64, skip bool) place {
	if s.next != lo && !(skip && s.next < lo) {
		return loose
	}
	s.next = hi
	return reserved
}

// leave gives up what b has reserved. Its jobs are answered after that, which wakes those that wait for them.
func (b *burst) leave() {
	for _, s := range b.slots {
		s.shard.mu.Lock()
		s.owner = nil
		s.shard.mu.Unlock()
	}
	b.slots = nil
}
