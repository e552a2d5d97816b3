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

// cache keeps what can be read from the ledger again. A miss is normal: sets are lossy and late. Values are immutable.
type cache[V any] struct {
	r *ristretto.Cache[string, V]

	mu     sync.RWMutex // a leaf: held for reading around calls of r, which panic beside Close and race with Clear
	closed bool         // guarded by mu
}

// newCache starts the cache's own goroutines; close ends them. newer says whether a value may take the place of another one; nil: always.
func newCache[V any](bytes, entry int64, newer func(old, v V) bool) (*cache[V], error) {
	r, err := ristretto.NewCache(&ristretto.Config[string, V]{
		NumCounters: max(10*bytes/entry, 1000), MaxCost: bytes, BufferItems: 64, IgnoreInternalCost: true, ShouldUpdate: newer,
	})
	if err != nil {
		return nil, fmt.Errorf("wallet cache: %w", err)
	}
	return &cache[V]{r: r}, nil
}

// close may come while a caller that was left behind still asks: it then finds nothing and keeps nothing.
func (c *cache[V]) close() {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	if !closed {
		c.r.Close()
	}
}

// purge forgets everything. It keeps callers out meanwhile: ristretto clears beside nobody.
func (c *cache[V]) purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.r.Clear()
	}
}

func (c *cache[V]) get(key string) (v V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return v, false
	}
	return c.r.Get(key)
}

func (c *cache[V]) set(key string, v V, cost int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if !c.closed {
		c.r.Set(key, v, cost)
	}
}
