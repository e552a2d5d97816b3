package wallet

import (
	"fmt"
	"sync"

	"github.com/dgraph-io/ristretto/v2"

	"ronbox/appliance/flow"
)

// cacheSetBuf is how many sets ristretto holds back before it drops them.
const cacheSetBuf = 32 * 1024

// cacheSpec declares the set buffer inside a cache.
func cacheSpec(name, doc string) flow.Spec {
	return flow.Spec{
		Service: service, Name: name, Kind: flow.KindQueue, Cap: cacheSetBuf, Policy: "drop new", Producers: []string{flow.HTTP}, Doc: doc,
	}
}

// cache keeps what can be read from the ledger again. A miss is normal: sets are lossy and late. Values are immutable. Before open and after
// close it finds nothing and keeps nothing.
type cache[K ristretto.Key, V any] struct {
	bytes int64               // that it keeps
	entry int64               // bytes of one, about
	newer func(old, v V) bool // whether a value may take the place of another one; nil: always

	mu sync.RWMutex           // a leaf: held for reading around calls of r, which panic beside Close and race with Clear
	r  *ristretto.Cache[K, V] // nil before open and after close; guarded by mu
}

// open starts the cache's own goroutines; close ends them.
func (c *cache[K, V]) open() error {
	r, err := ristretto.NewCache(&ristretto.Config[K, V]{
		NumCounters: max(10*c.bytes/c.entry, 1000), MaxCost: c.bytes, BufferItems: 64, IgnoreInternalCost: true, ShouldUpdate: c.newer,
	})
	if err != nil {
		return fmt.Errorf("wallet cache: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.r = r
	return nil
}

// close may come while a caller that was left behind still asks.
func (c *cache[K, V]) close() {
	c.mu.Lock()
	r := c.r
	c.r = nil
	c.mu.Unlock()
	if r != nil {
		r.Close()
	}
}

// purge forgets everything. It keeps callers out meanwhile: ristretto clears beside nobody.
func (c *cache[K, V]) purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.r != nil {
		c.r.Clear() //lockwait: ristretto clears beside nobody, and its goroutine takes no lock of ours
	}
}

func (c *cache[K, V]) get(key K) (v V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.r == nil {
		return v, false
	}
	return c.r.Get(key)
}

func (c *cache[K, V]) set(key K, v V, cost int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.r != nil {
		c.r.Set(key, v, cost)
	}
}
