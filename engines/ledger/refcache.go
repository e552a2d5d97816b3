package ledger

import (
	"sync"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// refCache remembers numbers that words stand for: refs of names that were read from the file, hashes. They never change, so an entry is never
// wrong. When a shard is full any entry makes room.
type refCache struct{ shards [layerShards]refShard }

type refShard struct {
	mu   sync.RWMutex // a leaf: it covers the maps
	refs map[string]uint64
}

// refCacheShard is how many words a shard keeps: 131,072 in each cache, some 10 MB.
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

// refOf is the ref of a name, 0 if nobody has it.
func (l *Local) refOf(r store.Reader, name string) uint64 {
	ref := l.refInMemory(name)
	if ref == 0 {
		ref, _ = tables.Ref(r, name)
	}
	return ref
}
