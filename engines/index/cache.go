package index

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
)

// entry is a cached answer. It is shared and not changed, but for its counts.
type entry struct {
	key   string // in full: the cache tells keys apart by a hash
	fence mark

	filled int64 // Unix ns, as are the next two
	fresh  int64 // until when it is a hit
	stale  int64 // until when it may be served while peers fail: never past a signed expiry
	found  bool  // false: nobody knew the key
	heard  bool  // from a peer; false: of this node's file

	manifest  b3.Digest // of a name
	seq       uint64
	updated   int64      // Unix ms
	record    []byte     // signed, of a name that a peer gave; nil: it is in this node's file
	seen      []sighting // of a name that peers gave: the last record of each signer, that of record among them
	conflict  b3.Digest  // of a name: what another signer's record says; zero: the same, or there is none
	providers []Provider // of a content id
	etag      string

	hits     atomic.Uint32
	replaced atomic.Bool // another entry has its place
}

// sighting is the last record of a name by one signer.
type sighting struct {
	signer   [32]byte
	seq      uint64
	manifest b3.Digest
	until    int64 // its signed expiry, Unix ms
}

// cidText is the key of the providers of cid.
func cidText(cid b3.Digest) string { return "p" + string(cid[:]) }

// cost is what an entry takes of the cache, in bytes and whole KiB.
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

// hit is the entry of key that answers at now. Another node gets none that was heard: two that told each other would keep alive between them what
// its own node has taken back.
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

// past is the entry of key that may stand in while peers fail: it was found, was not written since, and no expiry that was signed is over.
func (e *Engine) past(key string, now time.Time) (*entry, bool) {
	n, ok := e.cache.Get(key)
	if !ok || n.key != key || !n.found || now.UnixNano() >= n.stale || !n.fence.holds() {
		return nil, false
	}
	return n, true
}

// keep puts an answer into the cache: for about ttl as a hit, and for the stale time behind it, both up to the signed expiry until, Unix ms; 0
// is no expiry. The entry it replaces is outdated, also where a slow filler would put it back.
func (e *Engine) keep(s *settings, n *entry, ttl time.Duration, until int64) {
	if !n.fence.holds() {
		return
	}
	if old, ok := e.cache.Get(n.key); ok && old.key == n.key {
		old.replaced.Store(true)
		if old.found && !n.found { // the answer was taken back: nothing that still holds it may serve it again
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
	e.cache.SetFor(n.key, n, n.cost(), time.Duration(n.stale-n.filled))
	n.fence.extend(n.stale) // not before: dropped may end the cell for the entry that stood there
	_ = e.fills.TrySend(n)  // full: the cache alone drops it in time
}

// dropped ends the cell of an entry that the cache has let go, unless another entry has its place.
func dropped(n *entry) {
	if n != nil && !n.replaced.Load() {
		n.fence.cell.end.Store(0)
	}
}
