package ledger

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unsafe"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// nameCache holds the refs of names that were read from the file or from the layer of names. A ref
// never changes, so an entry is never wrong. Each shard has two generations of entries: what is
// used moves from the old one into the young one. If that is full, it becomes the old one, which
// is dropped.
type nameCache struct {
	seed   maphash.Seed
	most   atomic.Int64 // bytes that a generation of a shard may take
	shards [layerShards]nameShard
	bytes  atomic.Int64
}

type nameShard struct {
	mu         sync.RWMutex // a leaf: it covers the generations
	young, old names
}

// names are entries without pointers: where the ref and the name lie in text, by the hash of the
// name.
type names struct {
	at   map[uint64]uint32
	text []byte
}

// nameOverhead is what an entry takes beside its name, in bytes.
const nameOverhead = 48

func newNameCache() *nameCache { return &nameCache{seed: maphash.MakeSeed()} }

// size returns the memory of n.
func (n *names) size() int64 { return int64(len(n.text) + len(n.at)*nameOverhead) }

// get returns the ref of a name with a hash, 0 if n does not have it.
func (n *names) get(hash uint64, name string) uint64 {
	at, known := n.at[hash]
	if !known {
		return 0
	}
	entry := n.text[at:]
	end := 10 + int(binary.LittleEndian.Uint16(entry[8:]))
	if string(entry[10:end]) != name {
		return 0 // another name with the hash
	}
	return binary.LittleEndian.Uint64(entry)
}

// put adds an entry.
func (n *names) put(hash uint64, name string, ref uint64) {
	if n.at == nil {
		n.at = map[uint64]uint32{}
	}
	n.at[hash] = uint32(len(n.text))
	n.text = binary.LittleEndian.AppendUint64(n.text, ref)
	n.text = binary.LittleEndian.AppendUint16(n.text, uint16(len(name)))
	n.text = append(n.text, name...)
}

// get returns the ref of a name, 0 if the cache does not have it.
func (c *nameCache) get(name string) uint64 {
	hash := maphash.String(c.seed, name)
	s := &c.shards[hash%layerShards]
	s.mu.RLock()
	ref := s.young.get(hash, name)
	old := uint64(0)
	if ref == 0 {
		old = s.old.get(hash, name)
	}
	s.mu.RUnlock()
	if old != 0 {
		c.add(name, old)
	}
	return max(ref, old)
}

// add enters a name, which may be there.
func (c *nameCache) add(name string, ref uint64) {
	hash := maphash.String(c.seed, name)
	s := &c.shards[hash%layerShards]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.young.get(hash, name) != 0 {
		return
	}
	before := s.young.size() + s.old.size()
	if s.young.size() >= c.most.Load() {
		s.old, s.young = s.young, names{}
	}
	s.young.put(hash, name, ref)
	c.bytes.Add(s.young.size() + s.old.size() - before)
}

// refInMemory returns the ref of a name without reading the file, 0 if memory does not have it.
func (l *Local) refInMemory(name string) uint64 {
	if ref := l.names.get(name); ref != 0 {
		return ref
	}
	ref, _ := l.books.names.read(name)
	if ref != 0 {
		l.names.add(name, ref)
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
		l.names.add(name, ref)
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

// cellOverhead is what a cell takes beside itself, in bytes: its place in the map of a shard.
const cellOverhead = 40

// bytes returns the memory of n cells.
func (l *layer[K, V]) bytes(n int64) int64 {
	var c cell[K, V]
	return n * int64(unsafe.Sizeof(c)+cellOverhead)
}

// rows returns how many rows are in memory, and how many of them are as in their table.
func (l *layer[K, V]) rows() (all, clean int64) {
	all = l.size.Load()
	return all, max(all-l.pinned.Load(), 0)
}

// evictSteps bounds what evict looks at in one go.
const evictSteps = 64

// evict lets go of rows that are as in their table and were not used again since it last looked at
// them, while there are more than most of them. It runs between groups.
func (l *layer[K, V]) evict(most int64) {
	steps := evictSteps + 4*l.added
	l.added = 0
	most += l.pinned.Load()
	if l.size.Load() <= most {
		return
	}
	for ; steps > 0 && l.size.Load() > most; steps-- {
		if l.hand++; l.hand >= l.cells.Used() {
			l.hand = 0
		}
		c := l.cells.At(l.hand)
		if c.live && c.pub.since == 0 && c.used.Swap(0) == 0 && l.remove(c) {
			l.cells.Free(l.hand)
			l.size.Add(-1)
		}
	}
}

// remove takes a cell out of the map of its shard, unless it is listed there.
func (l *layer[K, V]) remove(c *cell[K, V]) bool {
	s := l.shard(c.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.listed {
		return false
	}
	l.lost = max(l.lost, c.pub.at)
	delete(s.cells, c.key)
	return true
}

// heapRows is how many rows that are as in the file a layer of names keeps. They are in the heap,
// and callers look for names in the cache of names first.
const heapRows = 65_536

// nameShare is the divisor of the budget that bounds the cache of names.
const nameShare = 4

// setBudget bounds the memory of rows and names, in bytes.
func (l *Local) setBudget(cfg Config) {
	most := max(cfg.CacheBytes.Bytes(), MinCache)
	l.names.most.Store(most / nameShare / layerShards / 2)
	l.books.budget.Store(most)
}

// Cache returns the memory of rows and names, and what they may take, in bytes.
func (l *Local) Cache() (bytes, most int64) { return l.books.inMemory(), l.books.budget.Load() }

// inMemory returns the memory of rows and names, in bytes.
func (b *books) inMemory() int64 {
	sum := b.named.Load()
	for _, l := range b.layers {
		all, _ := l.rows()
		sum += l.bytes(all)
	}
	return sum
}

// evict lets rows go that are as in the file, of each layer in proportion, if the memory is beyond
// its budget. Rows that their table lags behind must stay; of the others a quarter of the budget
// may stay, too.
func (b *books) evict() {
	budget, free := b.budget.Load(), int64(0)
	over := b.inMemory() - budget
	for _, l := range b.layers {
		_, clean := l.rows()
		free += l.bytes(clean)
	}
	keep := float64(max(free-over, min(free, budget/4))) / float64(max(free, 1))
	for _, l := range b.layers {
		_, clean := l.rows()
		most := min(clean, b.clean)
		if over > 0 {
			most = min(most, int64(keep*float64(clean)))
		}
		if l == layerOf(b.names) || l == layerOf(b.refs) {
			most = min(most, heapRows)
		}
		l.evict(most)
	}
}
