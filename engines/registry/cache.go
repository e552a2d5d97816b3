package registry

import (
	"encoding/binary"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/cache"
	"ronbox/engines/registry/record"
)

// cacheBytes bounds the cache of materialised sets and encoded versions.
const (
	cacheBytes = 64 << 20
	cacheEntry = 64 << 10 // of one, about
)

// versionCache keeps what can be made again from the log: item sets by the payload that they result from, and encoded version
// documents. A miss is normal. Values are immutable, and carry their key, because the cache keeps only a hash of it.
type versionCache struct{ *cache.Cache[[]byte, any] }

func newVersionCache(c *flow.Catalog) versionCache {
	return versionCache{cache.New(c, cache.Spec[[]byte, any]{
		Service: service, Name: "version_cache", Producers: []string{flow.HTTP, taskPipeline}, Doc: "old versions", Bytes: cacheBytes, Entry: cacheEntry,
	})}
}

func (c versionCache) get(key []byte) any {
	v, _ := c.Get(key)
	return v
}

type cachedItems struct {
	payload b3.Digest
	items   record.Items
}

func itemsKey(payload b3.Digest) []byte { return append([]byte("i"), payload[:]...) }

// items gives the set that a payload results in.
func (c versionCache) items(payload b3.Digest) (record.Items, bool) {
	if hit, ok := c.get(itemsKey(payload)).(cachedItems); ok && hit.payload == payload {
		return hit.items, true
	}
	return record.Items{}, false
}

// putItems keeps the set that p results in.
func (c versionCache) putItems(p *record.Payload, items record.Items) {
	c.Set(itemsKey(p.B3()), cachedItems{p.B3(), items}, entryCost+itemCost*int64(items.Len())+int64(len(p.Bytes())))
}

// What a cached set costs is what it does not share with the set below it: a pointer and the hashes over each item, and
// the items that its payload brought.
const (
	itemCost  = 8 + 2*32
	entryCost = 256
)

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

func (c versionCache) doc(k docKey) (Document, bool) {
	hit, ok := c.get(k.bytes()).(cachedDoc)
	return hit.doc, ok && hit.key == k
}

func (c versionCache) putDoc(k docKey, doc Document) {
	c.Set(k.bytes(), cachedDoc{k, doc}, int64(len(doc.JSON))+entryCost)
}
