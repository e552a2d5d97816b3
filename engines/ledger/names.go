package ledger

import (
	"context"
	"fmt"
	"hash/maphash"
	"sync"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// refCache holds the refs of names that were read from the file or from the layer of names. A ref
// never changes, so an entry is never wrong. If a shard is full, any entry makes room.
type refCache struct {
	seed   maphash.Seed
	shards [layerShards]refShard
}

type refShard struct {
	mu   sync.RWMutex // a leaf: it covers the map
	refs map[string]uint64
}

// refCacheShard is how many names a shard keeps: 131,072 in all, some 10 MB.
const refCacheShard = 2048

func newRefCache() *refCache {
	c := &refCache{seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].refs = map[string]uint64{}
	}
	return c
}

func (c *refCache) shard(name string) *refShard {
	return &c.shards[maphash.String(c.seed, name)%layerShards]
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

// refInMemory returns the ref of a name without reading the file, 0 if memory does not have it.
func (l *Local) refInMemory(name string) uint64 {
	s := l.refs.shard(name)
	s.mu.RLock()
	ref := s.refs[name]
	s.mu.RUnlock()
	if ref != 0 {
		return ref
	}
	ref, _ = l.books.names.read(name)
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

// errAbsent is returned in safe mode instead of an answer that something does not exist.
var errAbsent = fmt.Errorf("%w: %w: what is not found may have been lost", ErrSafeMode, store.ErrCorrupt)

// lookUp returns the ref of an account, 0 if the name is unknown. In safe mode an unknown name is
// an error: its row may have been lost.
func (l *Local) lookUp(ctx context.Context, name string) (ref uint64, err error) {
	if ref = l.refInMemory(name); ref != 0 {
		return ref, nil
	}
	err = l.view(ctx, func(r store.Reader) error {
		ref = l.refOf(r, name)
		return nil
	})
	switch {
	case ref != 0:
		l.refs.add(name, ref)
	case err == nil && l.SafeMode() != "":
		err = errAbsent
	}
	return ref, l.readError(err)
}

// nameOf returns the name of an account that a record refers to.
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
