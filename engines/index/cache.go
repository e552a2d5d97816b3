package index

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
)

// entry is a cached answer. It is shared and immutable except for its atomic fields.
type entry struct {
	key   string // full key: the cache compares hashes only
	fence mark

	filled int64             // Unix ns, as are fresh and stale
	fresh  int64             // end of the time as a hit
	stale  int64             // end of the time as a stale answer; never past a signed expiry
	found  bool              // false: the entry is a "not found"
	heard  bool              // from a peer; false: from this node's file
	from   []*peers.Peer     // the peers that gave the answer; nil: this node's file
	silent *name.SilentError // of a "not found": peers did not answer; nil: all answered

	manifest  b3.Digest // of a name
	seq       uint64
	updated   int64           // Unix ms
	record    []byte          // signed record of a name from a peer; nil: from this node's file
	seen      []sighting      // of a name from peers: the last record of each signer, including record
	conflict  b3.Digest       // of a name: the manifest of another signer, if it differs
	providers []name.Provider // of a content id
	etag      string

	hits     atomic.Uint32
	replaced atomic.Bool // another entry replaced it
	disputed atomic.Bool // a conflict with this entry was counted
}

// sighting is the last record of a name by one signer.
type sighting struct {
	signer   [32]byte
	seq      uint64
	manifest b3.Digest
	until    int64 // its signed expiry, Unix ms
}

// missing returns the error of a "not found" entry.
func (n *entry) missing() error {
	if n.silent != nil {
		return n.silent
	}
	return name.ErrNotFound
}

// cost returns the size of an entry in the cache, in bytes, rounded up to whole KiB.
func (n *entry) cost() int64 {
	size := 256 + len(n.key) + len(n.record) + len(n.etag) + 80*len(n.seen)
	for i := range n.providers {
		size += 128 + len(n.providers[i].Record)
		for _, a := range n.providers[i].Addrs {
			size += 16 + len(a)
		}
	}
	return int64(size+1023) / 1024 * 1024
}

// hit returns the entry of key if it is fresh at now. With local it returns no answer from a peer:
// two nodes could otherwise keep alive between them an answer that its origin has removed.
func (e *Engine) hit(key string, local bool, now time.Time) (*entry, bool) {
	n, ok := e.cache.Get(key)
	if !ok || n.key != key || now.UnixNano() >= n.fresh || !n.fence.holds() || local && n.found && n.heard {
		e.m.misses(1)
		return nil, false
	}
	e.m.hits(1)
	n.hits.Add(1)
	return n, true
}

// past returns the entry of key if it may be served while peers fail: it was found, the key was not
// written since, and its stale time and signed expiry have not passed.
func (e *Engine) past(key string, now time.Time) (*entry, bool) {
	n, ok := e.cache.Get(key)
	if !ok || n.key != key || !n.found || now.UnixNano() >= n.stale || !n.fence.holds() {
		return nil, false
	}
	return n, true
}

// keep caches an answer for about ttl as a hit, and for the stale time after that. Both end at the
// signed expiry until, in Unix ms; 0 means no expiry. The entry that it replaces is outdated, even
// if a slow filler puts it back later.
func (e *Engine) keep(s *settings, n *entry, ttl time.Duration, until int64) {
	if !n.fence.holds() {
		return
	}
	if old, ok := e.cache.Get(n.key); ok && old.key == n.key {
		old.replaced.Store(true)
		if old.found && !n.found { // the answer was removed: holders of the old entry must not serve it again
			if !n.fence.cell.writes.CompareAndSwap(n.fence.at, n.fence.at+1) {
				return
			}
			n.fence.at++
		}
	}
	now := e.now()
	n.filled = now.UnixNano()
	n.fresh = now.Add(ttl + time.Duration(rand.Int64N(int64(ttl)/5+1)) - ttl/10).UnixNano()
	if n.stale = n.fresh; n.found {
		n.stale += int64(s.staleFor)
	}
	if until > 0 {
		end := time.UnixMilli(until).UnixNano()
		n.fresh, n.stale = min(n.fresh, end), min(n.stale, end)
	}
	if n.stale <= n.filled {
		return
	}
	e.cache.Set(n.key, n, n.cost())
	n.fence.extend(n.stale) // after Set, since dropped may end the cell for the replaced entry
	_ = e.fills.TrySend(n)  // if it is full, the entry stays until it is evicted
}

// dropped ends the cell of an evicted entry unless another entry has replaced it.
func dropped(n *entry) {
	if n != nil && !n.replaced.Load() {
		n.fence.cell.end.Store(0)
	}
}
