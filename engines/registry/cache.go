package registry

import (
	"encoding/binary"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/registry/record"
)

// cacheBytes bounds the cache of materialised sets and encoded versions, beside what is kept for being recent.
const cacheBytes = 64 << 20

// cacheSetBuf is how many sets ristretto holds back before it drops them.
const cacheSetBuf = 32 * 1024

// cache keeps what can be made again from the log: item sets by the payload that they result from, and encoded version
// documents. A miss is normal: sets are lossy and late. Values are immutable.
type cache struct {
	r      *ristretto.Cache[[]byte, any]
	recent recent

	mu     sync.RWMutex // a leaf: held for reading around calls of r, which panic beside Close and race with Clear
	closed bool         // guarded by mu
}

func cacheSpec() flow.Spec {
	return flow.Spec{
		Service: service, Name: "version_cache", Kind: flow.KindQueue, Cap: cacheSetBuf, Policy: "drop new",
		Producers: []string{flow.HTTP, taskPipeline}, Doc: "set buffer inside the cache of old versions; a drop is a later miss",
	}
}

// newCache starts the cache's own goroutines; close ends them.
func newCache() (*cache, error) {
	r, err := ristretto.NewCache(&ristretto.Config[[]byte, any]{
		NumCounters: 10_000, MaxCost: cacheBytes, BufferItems: 64, IgnoreInternalCost: true,
	})
	if err != nil {
		return nil, fmt.Errorf("version cache: %w", err)
	}
	return &cache{r: r}, nil
}

// close may come while a caller that was left behind still asks: it then finds nothing and keeps nothing.
func (c *cache) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.r.Close()
}

// purge forgets everything. It keeps callers out meanwhile: ristretto clears beside nobody.
func (c *cache) purge() {
	c.recent.sets.Store(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		//lockwait: ristretto clears beside nobody, and its goroutine takes no lock of ours
		c.r.Clear()
	}
}

func (c *cache) get(key []byte) any {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return nil
	}
	v, _ := c.r.Get(key)
	return v
}

func (c *cache) set(key []byte, v any, cost int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if !c.closed {
		c.r.Set(key, v, cost)
	}
}

// cachedItems carries its key, because the cache keeps only a hash of it.
type cachedItems struct {
	payload b3.Digest
	items   record.Items
	cost    int64
}

func itemsKey(payload b3.Digest) []byte { return append([]byte("i"), payload[:]...) }

// items gives the set that a payload results in. A nil cache knows nothing.
func (c *cache) items(payload b3.Digest) (record.Items, bool) {
	if c == nil {
		return record.Items{}, false
	}
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
func (c *cache) putItems(p *record.Payload, items record.Items) {
	if c == nil {
		return
	}
	set := &cachedItems{payload: p.B3(), items: items, cost: entryCost + itemCost*int64(items.Len()) + int64(len(p.Bytes()))}
	c.recent.put(set)
	c.set(itemsKey(set.payload), set, set.cost)
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
	doc VersionDoc
}

func (c *cache) doc(k docKey) (VersionDoc, bool) {
	if c == nil {
		return VersionDoc{}, false
	}
	hit, ok := c.get(k.bytes()).(*cachedDoc)
	if !ok || hit.key != k {
		return VersionDoc{}, false
	}
	return hit.doc, true
}

func (c *cache) putDoc(k docKey, doc VersionDoc) {
	if c != nil {
		c.set(k.bytes(), &cachedDoc{key: k, doc: doc}, int64(len(doc.Body))+entryCost)
	}
}
