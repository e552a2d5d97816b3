// Package cache keeps what can be made or read again, within a bound of bytes: ristretto, with a type, a life cycle and counts.
//
// # Invariants
//
//  1. A miss is normal: sets are lossy and late, and what is seldom asked for leaves first. Nothing is found past its time.
//  2. Get, Set and Purge may come at any time, before Open and beside or after Close too: they then find and keep nothing.
//  3. Close has joined ristretto's goroutines when it returns.
//
// # Tasks and queues
//
// none of its own: each cache declares the set buffer inside ristretto in the catalogue.
//
// # Lock order
//
// mu is a leaf. It is held for reading around calls of ristretto, which panic beside its Close and race with its Clear.
package cache

import (
	"fmt"
	"sync"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"ronbox/appliance/flow"
)

// setBuffer is how many sets ristretto holds back before it drops them.
const setBuffer = 32 * 1024

// Spec is what a cache is made of. Values are shared and must not be changed.
type Spec[K ristretto.Key, V any] struct {
	Service, Name string   // of the set buffer in the catalogue
	Producers     []string // tasks that set
	Doc           string
	Bytes         int64               // that it keeps
	Entry         int64               // bytes of one entry, about
	Newer         func(old, v V) bool // reports whether v may take the place of old; nil: always
	Hit, Miss     func(n int)         // count each Get; nil: nobody does
	// Exit is called with most values that are no longer kept, and at times with the zero value. It must not call the
	// cache, nor block.
	Exit func(v V)
}

// Cache is a bounded cache. New builds it, Open starts it; its methods may be called from any goroutine.
type Cache[K ristretto.Key, V any] struct {
	Spec Spec[K, V] // not to be changed once it is open

	mu sync.RWMutex
	r  *ristretto.Cache[K, V] // nil while it is not open; guarded by mu
}

// New declares the set buffer in c and returns a cache that is not open.
func New[K ristretto.Key, V any](c *flow.Catalog, s Spec[K, V]) *Cache[K, V] {
	c.Declare(flow.Spec{
		Service: s.Service, Name: s.Name, Kind: flow.KindQueue, Cap: setBuffer, Policy: "drop new", Producers: s.Producers,
		Doc: "set buffer inside the cache of " + s.Doc + "; a drop is a later miss",
	})
	return &Cache[K, V]{Spec: s}
}

// Open starts an empty cache, in the place of the one before, if there is one.
func (c *Cache[K, V]) Open() error {
	cfg := ristretto.Config[K, V]{
		NumCounters: max(10*c.Spec.Bytes/c.Spec.Entry, 1000), MaxCost: c.Spec.Bytes, BufferItems: 64, IgnoreInternalCost: true,
		OnExit: c.Spec.Exit,
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

// Close ends the cache. A caller that was left behind may still ask: it finds nothing and keeps nothing.
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

// Purge forgets everything. It keeps callers out meanwhile.
func (c *Cache[K, V]) Purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.r != nil {
		c.r.Clear() //lockwait: ristretto clears beside nobody, and its goroutine takes no lock of ours
	}
}

// Get returns the value of key, if it is there.
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

// Set keeps v, of cost bytes, until it is pushed out. It never waits.
func (c *Cache[K, V]) Set(key K, v V, cost int64) { c.SetFor(key, v, cost, 0) }

// SetFor is Set for at most ttl; 0 is without end, less than that nothing is kept.
func (c *Cache[K, V]) SetFor(key K, v V, cost int64, ttl time.Duration) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.r != nil {
		c.r.SetWithTTL(key, v, cost, ttl)
	}
}

// Del forgets key.
func (c *Cache[K, V]) Del(key K) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.r != nil {
		c.r.Del(key) //lockwait: ristretto's goroutine, which makes room for the deletion, takes no lock of ours
	}
}

// Settle waits until what was set is there, as far as it is kept at all. It is for tests.
func (c *Cache[K, V]) Settle() {
	c.mu.RLock()
	r := c.r
	c.mu.RUnlock()
	if r != nil {
		r.Wait()
	}
}
