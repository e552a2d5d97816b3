// Package cache keeps values that can be computed or read again, within a bound in bytes. It wraps
// ristretto and adds types, a life cycle and counts.
//
// # Invariants
//
//  1. A miss is normal: sets may be dropped or delayed, and rarely used entries are evicted first.
//     Entries have no time to live. Users that need one store it in the value and compare it when
//     they read: ristretto's own visits each 5 s of wall time that have passed, 350 million of them
//     after a boot in 1970 whose clock is then corrected.
//  2. Get, Set and Purge may be called at any time, including before Open and during or after
//     Close. A closed cache returns and keeps nothing.
//  3. The goroutines of ristretto have ended when Close returns.
//
// # Tasks and queues
//
// None of its own. Each cache declares the set buffer of ristretto in the catalogue.
//
// # Lock order
//
// cache_meta, declared for the service of each cache. It is held for reading during calls of
// ristretto, which panic if its Close runs and race with its Clear.
package cache

import (
	"fmt"

	"github.com/dgraph-io/ristretto/v2"

	"ronbox/appliance/flow"
)

// neverClean is the interval at which ristretto removes expired entries, in seconds. No entry
// expires.
const neverClean = 100 * 365 * 24 * 3600

// setBuffer is the number of sets that ristretto buffers before it drops more.
const setBuffer = 32 * 1024

// Spec configures a cache. Values are shared and must not be modified.
type Spec[K ristretto.Key, V any] struct {
	Service, Name string   // of the set buffer in the catalogue
	Producers     []string // tasks that call Set
	Doc           string
	Bytes         int64               // bound of the cache
	Entry         int64               // approximate bytes of one entry
	Newer         func(old, v V) bool // reports whether v may replace old; nil: always
	Hit, Miss     func(n int)         // count each Get; may be nil
	// Exit is called with most values that are evicted, and sometimes with the zero value. It must
	// neither call the cache nor block.
	Exit func(v V)
}

// Cache is a bounded cache. Its methods may be called from any goroutine.
type Cache[K ristretto.Key, V any] struct {
	Spec Spec[K, V] // must not change after Open

	mu *flow.RWMutex
	r  *ristretto.Cache[K, V] // nil while closed; guarded by mu
}

// New declares the set buffer and the lock in c and returns a closed cache.
func New[K ristretto.Key, V any](c *flow.Catalog, s Spec[K, V]) *Cache[K, V] {
	c.Declare(flow.Spec{
		Service:   s.Service,
		Name:      s.Name,
		Kind:      flow.KindQueue,
		Cap:       setBuffer,
		Policy:    "drop new",
		Producers: s.Producers,
		Doc:       "set buffer inside the cache of " + s.Doc + "; a drop is a later miss",
	})
	return &Cache[K, V]{Spec: s, mu: flow.NewRWMutex(c, s.Service, flow.RankCacheMeta)}
}

// Open opens an empty cache. It replaces one that is open.
func (c *Cache[K, V]) Open() error {
	cfg := ristretto.Config[K, V]{
		NumCounters:            max(10*c.Spec.Bytes/c.Spec.Entry, 1000),
		MaxCost:                c.Spec.Bytes,
		BufferItems:            64,
		IgnoreInternalCost:     true,
		OnExit:                 c.Spec.Exit,
		TtlTickerDurationInSec: neverClean,
	}
	if newer := c.Spec.Newer; newer != nil {
		cfg.ShouldUpdate = func(v, old V) bool { return newer(old, v) }
	}
	r, err := ristretto.NewCache(&cfg)
	if err != nil {
		return fmt.Errorf("cache %s: %w", c.Spec.Name, err)
	}
	c.replace(r)
	return nil
}

// Close closes the cache. Later calls find and keep nothing.
func (c *Cache[K, V]) Close() { c.replace(nil) }

func (c *Cache[K, V]) replace(r *ristretto.Cache[K, V]) {
	c.mu.Lock()
	old := c.r
	c.r = r
	c.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

// Purge removes all entries. Other calls block meanwhile.
func (c *Cache[K, V]) Purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.r != nil {
		c.r.Clear() //lockwait: no other call runs, and ristretto's goroutine takes no lock of ours
	}
}

// Get returns the value of key, if it is cached.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	v, ok := c.get(key)
	switch {
	case ok && c.Spec.Hit != nil:
		c.Spec.Hit(1)
	case !ok && c.Spec.Miss != nil:
		c.Spec.Miss(1)
	}
	return v, ok
}

func (c *Cache[K, V]) get(key K) (v V, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.r == nil {
		return v, false
	}
	return c.r.Get(key)
}

// Set caches v, of cost bytes, until it is evicted. It never waits.
func (c *Cache[K, V]) Set(key K, v V, cost int64) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.r != nil {
		c.r.Set(key, v, cost)
	}
}

// Del removes key.
func (c *Cache[K, V]) Del(key K) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.r != nil {
		c.r.Del(key) //lockwait: ristretto's goroutine, which makes room in its buffer, takes no lock of ours
	}
}

// Settle waits until earlier sets have taken effect. It is for tests.
func (c *Cache[K, V]) Settle() {
	c.mu.RLock()
	r := c.r
	c.mu.RUnlock()
	if r != nil {
		r.Wait()
	}
}
