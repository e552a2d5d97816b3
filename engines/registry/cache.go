package registry

import (
	"encoding/binary"
	"sync/atomic"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/cache"
	"ronbox/engines/registry/record"
)

// cacheBytes bounds the cache of materialised sets and encoded versions, beside what is kept for being recent.
const (
	cacheBytes = 64 << 20
	cacheEntry = 64 << 10 // of one, about
)

// versionCache keeps what can be made again from the log: item sets by the payload that they result from, and encoded version
// documents. A miss is normal. Values are immutable.
type versionCache struct {
	kept   *cache.Cache[[]byte, any]
	recent recent
}

func newVersionCache(c *flow.Catalog) *versionCache {
	return &versionCache{kept: cache.New(c, cache.Spec[[]byte, any]{
		Service: service, Name: "version_cache", Producers: []string{flow.HTTP, taskPipeline}, Doc: "old versions", Bytes: cacheBytes, Entry: cacheEntry,
	})}
}

// purge forgets everything.
func (c *versionCache) purge() {
	c.recent.sets.Store(nil)
	c.kept.Purge()
}

func (c *versionCache) get(key []byte) any {
	v, _ := c.kept.Get(key)
	return v
}

// cachedItems carries its key, because the cache keeps only a hash of it.
type cachedItems struct {
	payload b3.Digest
	items   record.Items
	cost    int64
}

func itemsKey(payload b3.Digest) []byte { return append([]byte("i"), payload[:]...) }

// items gives the set that a payload results in.
func (c *versionCache) items(payload b3.Digest) (record.Items, bool) {
	if hit := c.recent.get(payload); hit != nil {
		return hit.items, true
	}
	hit, ok := c.get(itemsKey(payload)).(*cachedItems)
	if !ok || hit.payload != payload {
		return record.Items{}, false
	}
	return hit.items, true
}

// putItems keeps the set that p results in.
func (c *versionCache) putItems(p *record.Payload, items record.Items) {
	set := &cachedItems{payload: p.B3(), items: items, cost: entryCost + itemCost*int64(items.Len()) + int64(len(p.Bytes()))}
	c.recent.put(set)
	c.kept.Set(itemsKey(set.payload), set, set.cost)
}

// What a cached set costs is what it does not share with the set below it: a pointer and the hashes over each item, and
// the items that its payload brought.
const (
	itemCost  = 8 + 2*32
	entryCost = 256
)

// Bounds of what is kept for being recent: two stacks, of large sets fewer.
const (
	maxRecent   = 16
	recentBytes = 32 << 20
)

// recent holds the sets made last, the latest first. The commits to come ask for them, once each, while the cache prefers
// what was asked for often.
type recent struct {
	sets atomic.Pointer[[]*cachedItems] // the slice is never changed
}

func (r *recent) get(payload b3.Digest) *cachedItems {
	sets, _ := r.load()
	for _, set := range sets {
		if set.payload == payload {
			return set
		}
	}
	return nil
}

func (r *recent) load() (sets []*cachedItems, at *[]*cachedItems) {
	if at = r.sets.Load(); at != nil {
		sets = *at
	}
	return sets, at
}

func (r *recent) put(set *cachedItems) {
	for {
		sets, at := r.load()
		next, left := make([]*cachedItems, 0, maxRecent), int64(recentBytes)
		for _, s := range append([]*cachedItems{set}, sets...) {
			if s != set && s.payload == set.payload {
				continue
			}
			if left -= s.cost; left < 0 || len(next) == maxRecent {
				break
			}
			next = append(next, s)
		}
		if r.sets.CompareAndSwap(at, &next) {
			return
		}
	}
}

type docKey struct {
	version   uint64
	withItems bool
}

func (k docKey) bytes() []byte {
	b := binary.BigEndian.AppendUint64([]byte("d"), k.version)
	if k.withItems {
		return append(b, 1)
	}
	return append(b, 0)
}

type cachedDoc struct {
	key docKey
	doc Document
}

func (c *versionCache) doc(k docKey) (Document, bool) {
	hit, ok := c.get(k.bytes()).(*cachedDoc)
	if !ok || hit.key != k {
		return Document{}, false
	}
	return hit.doc, true
}

func (c *versionCache) putDoc(k docKey, doc Document) {
	c.kept.Set(k.bytes(), &cachedDoc{key: k, doc: doc}, int64(len(doc.JSON))+entryCost)
}
