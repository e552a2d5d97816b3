package lookup

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/cache"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
)

// Entry is a cached answer. It is shared and immutable except for its atomic fields.
type Entry struct {
	Key   string // full key: the cache compares hashes only
	Fence Mark

	Filled int64             // Unix ns, as are fresh and stale
	fresh  int64             // end of the time as a hit
	stale  int64             // end of the time as a stale answer; never past a signed expiry
	Found  bool              // false: the entry is a "not found"
	Heard  bool              // from a peer; false: from this node's file
	from   []*peers.Peer     // the peers that gave the answer; nil: this node's file
	Silent *name.SilentError // of a "not found": peers did not answer; nil: all answered

	Manifest  b3.Digest // of a name
	Seq       uint64
	Updated   int64           // Unix ms
	Record    []byte          // signed record of a name from a peer; nil: from this node's file
	Seen      []Sighting      // of a name from peers: the last record of each signer, including record
	Conflict  b3.Digest       // of a name: the manifest of another signer, if it differs
	Providers []name.Provider // of a content id
	ETag      string

	hits     atomic.Uint32
	replaced atomic.Bool // another entry replaced it
	disputed atomic.Bool // a conflict with this entry was counted
}

// Sighting is the last record of a name by one signer.
type Sighting struct {
	Signer   [32]byte
	Seq      uint64
	Manifest b3.Digest
	Until    int64 // its signed expiry, Unix ms
}

// Answers is the cache of answers, with the fences of their keys. Its methods are safe for
// concurrent use. It is open between Open and Close.
type Answers struct {
	*cache.Cache[string, *Entry]
	fences       *fences
	now          func() time.Time
	hits, misses func(int)
}

// NewAnswers declares the cache, of a size in bytes.
func NewAnswers(c *flow.Catalog, reg *obs.Metrics, now func() time.Time, size int64) *Answers {
	return &Answers{
		fences: newFences(),
		now:    now,
		hits:   reg.Counter("index_cache_hits_total", service),
		misses: reg.Counter("index_cache_misses_total", service),
		Cache: cache.New(c, cache.Spec[string, *Entry]{
			Service:   service,
			Name:      "answer_cache",
			Producers: []string{flow.HTTP, worker},
			Doc:       "answers",
			Bytes:     size,
			Entry:     1 << 10,
			Exit:      dropped,
		}),
	}
}

// Outdate outdates all entries of key and all running lookups of it.
func (a *Answers) Outdate(key string) { a.fences.bump(key) }

// Mark returns the fence with which a lookup of key begins. It lives at least until end, in Unix
// ns.
func (a *Answers) Mark(key string, end int64) Mark { return a.fences.mark(key, end) }

// Missing returns the error of a "not found" entry.
func (n *Entry) Missing() error {
	if n.Silent != nil {
		return n.Silent
	}
	return name.ErrNotFound
}

// cost returns the size of an entry in the cache, in bytes, rounded up to whole KiB.
func (n *Entry) cost() int64 {
	size := 256 + len(n.Key) + len(n.Record) + len(n.ETag) + 80*len(n.Seen)
	for i := range n.Providers {
		size += 128 + len(n.Providers[i].Record)
		for _, a := range n.Providers[i].Addrs {
			size += 16 + len(a)
		}
	}
	return int64(size+1023) / 1024 * 1024
}

// Hit returns the entry of key if it is fresh at now. With local it returns no answer from a peer:
// two nodes could otherwise keep alive between them an answer that its origin has removed.
func (a *Answers) Hit(key string, local bool, now time.Time) (*Entry, bool) {
	n, ok := a.Get(key)
	if !ok || n.Key != key || now.UnixNano() >= n.fresh || !n.Fence.holds() || local && n.Found && n.Heard {
		a.misses(1)
		return nil, false
	}
	a.hits(1)
	n.hits.Add(1)
	return n, true
}

// Past returns the entry of key if it may be served while peers fail: it was found, the key was not
// written since, and its stale time and signed expiry have not passed.
func (a *Answers) Past(key string, now time.Time) (*Entry, bool) {
	n, ok := a.Get(key)
	if !ok || n.Key != key || !n.Found || now.UnixNano() >= n.stale || !n.Fence.holds() {
		return nil, false
	}
	return n, true
}

// Keep caches an answer for about ttl as a hit, and for staleFor after that. Both end at the signed
// expiry until, in Unix ms; 0 means no expiry. The entry that it replaces is outdated, even if a
// slow filler puts it back later. Keep reports whether the answer is cached.
func (a *Answers) Keep(n *Entry, ttl, staleFor time.Duration, until int64) bool {
	if !n.Fence.holds() {
		return false
	}
	if old, ok := a.Get(n.Key); ok && old.Key == n.Key {
		old.replaced.Store(true)
		if old.Found && !n.Found { // the answer was removed: holders of the old entry must not serve it again
			if !n.Fence.cell.writes.CompareAndSwap(n.Fence.At, n.Fence.At+1) {
				return false
			}
			n.Fence.At++
		}
	}
	now := a.now()
	n.Filled = now.UnixNano()
	n.fresh = now.Add(ttl + time.Duration(rand.Int64N(int64(ttl)/5+1)) - ttl/10).UnixNano()
	if n.stale = n.fresh; n.Found {
		n.stale += int64(staleFor)
	}
	if until > 0 {
		end := time.UnixMilli(until).UnixNano()
		n.fresh, n.stale = min(n.fresh, end), min(n.stale, end)
	}
	if n.stale <= n.Filled {
		return false
	}
	a.Set(n.Key, n, n.cost())
	n.Fence.extend(n.stale) // after Set, since dropped may end the cell for the replaced entry
	return true
}

// dropped ends the cell of an evicted entry unless another entry has replaced it.
func dropped(n *Entry) {
	if n != nil && !n.replaced.Load() {
		n.Fence.cell.end.Store(0)
	}
}

// hotHits is the number of hits of one entry that make its key hot.
const hotHits = 5

// Sweep evicts entries that are over at now, in Unix ns, and counts them. It returns the others,
// and those of them with many hits, the hottest first. It also removes ended fences.
func (a *Answers) Sweep(tracked []*Entry, now int64) (left, hot []*Entry, evicted int) {
	left = slices.DeleteFunc(tracked, func(n *Entry) bool {
		switch over := now >= n.stale || !n.Fence.holds(); {
		case n.replaced.Load():
			return true
		case over:
			a.Del(n.Key)
			evicted++
			return true
		case now < n.fresh && n.hits.Load() >= hotHits:
			hot = append(hot, n)
		}
		return false
	})
	slices.SortFunc(hot, func(a, b *Entry) int {
		return cmp.Or(cmp.Compare(b.hits.Load(), a.hits.Load()), cmp.Compare(a.Key, b.Key))
	})
	a.fences.sweep(now)
	return left, hot, evicted
}

// HeardBeside reports whether a peer outside the list gave the answer.
func (n *Entry) HeardBeside(list []*peers.Peer) bool {
	return slices.ContainsFunc(n.from, func(p *peers.Peer) bool { return !slices.Contains(list, p) })
}

// Outlives reports whether the entry is still usable at now: it is a name, or one of its providers
// has not expired.
func (n *Entry) Outlives(now time.Time) bool {
	return n.Providers == nil || len(name.Rank(n.Providers, "", 1, now.UnixMilli())) > 0
}
