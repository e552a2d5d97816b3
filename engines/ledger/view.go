package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

var (
	errStale    = errors.New("ledger: a row is neither in memory nor in the file")
	errNoHeader = errors.New("it is not there")
)

// staleTries bounds the attempts of a read.
const staleTries = 4

// view runs fn in a read transaction, again if a row went from memory into the file while fn looked
// for it. fn may run more than once. A row that does not decode puts the ledger into safe mode.
func (l *Local) view(ctx context.Context, fn func(store.Reader) error) error {
	var err error
	for range staleTries {
		if err = l.store.View(ctx, fn); !errors.Is(err, errStale) {
			break
		}
	}
	if errors.Is(err, errStale) { // every time: it is not there
		err = fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	if errors.Is(err, store.ErrCorrupt) {
		l.enterSafeMode(err)
	}
	return err
}

// nameOf is the name of an account that a record refers to.
func (l *Local) nameOf(r store.Reader, ref uint64) (string, error) {
	if name, _ := l.books.refs.read(ref); name != "" {
		return name, nil
	}
	name, known := tables.Name(r, ref)
	if !known {
		return "", errStale
	}
	return name, nil
}

// refCache remembers the refs of names that were read from the file. They never change, so an entry
// is never wrong. When a shard is full any entry makes room.
type refCache struct{ shards [layerShards]refShard }

type refShard struct {
	mu   sync.RWMutex // a leaf: it covers the maps
	refs map[string]uint64
}

// refCacheShard is how many names a shard keeps: 131,072 in all, some 10 MB.
const refCacheShard = 2048

func newRefCache() *refCache {
	c := &refCache{}
	for i := range c.shards {
		c.shards[i].refs = map[string]uint64{}
	}
	return c
}

func (c *refCache) shard(name string) *refShard {
	return &c.shards[mix(spreadString(name))%layerShards]
}

func (c *refCache) get(name string) uint64 {
	s := c.shard(name)
	s.mu.RLock()
	ref := s.refs[name]
	s.mu.RUnlock()
	return ref
}

func (c *refCache) add(name string, ref uint64) {
	s := c.shard(name)
	s.mu.Lock()
	if len(s.refs) >= refCacheShard {
		for any := range s.refs {
			delete(s.refs, any)
			break
		}
	}
	s.refs[name] = ref
	s.mu.Unlock()
}

// refInMemory is the ref of a name without a look at the file; 0 is not known here.
func (l *Local) refInMemory(name string) uint64 {
	if ref := l.refs.get(name); ref != 0 {
		return ref
	}
	ref, _ := l.books.names.read(name)
	if ref != 0 {
		l.refs.add(name, ref)
	}
	return ref
}

// refOf returns the ref of a name, 0 if the name is unknown.
func (l *Local) refOf(r store.Reader, name string) uint64 {
	ref := l.refInMemory(name)
	if ref == 0 {
		ref, _ = tables.Ref(r, name)
	}
	return ref
}
