package lookup

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// fenceShards is the number of locks of the cells, a power of two.
const fenceShards = 64

// sweepParts is the number of sweeps that visit all shards once. With a full cache, one sweep takes
// about a millisecond.
const sweepParts = 4

// fences count the writes of each key. A filler loads the cell of its key before the lookup and
// stores it in the entry. A write moves the cell after its sync and before its answer, so that no
// earlier entry is a hit afterwards.
//
// A cell has an end. Each filler and each entry extends it to the end of its own life, and the
// eviction of the entry ends the cell at once. Removing a cell also moves it, which outdates all
// references: an early removal costs a miss, but never causes a wrong answer. A write of a key
// without a cell outdates nothing and makes no cell.
type fences struct {
	seed   maphash.Seed
	shards [fenceShards]fenceShard
	part   int // next part to sweep; owned by the cache janitor
}

type fenceShard struct {
	mu    sync.Mutex       // a leaf
	cells map[string]*cell // guarded by mu
	made  uint64           // cells made so far; guarded by mu
}

// cell counts the writes of one key. It starts at a number that no other cell of the key has had.
type cell struct {
	writes atomic.Uint64
	end    atomic.Int64 // Unix ns; 0: ended
}

func newFences() *fences {
	f := &fences{seed: maphash.MakeSeed()}
	for i := range f.shards {
		f.shards[i].cells = map[string]*cell{}
	}
	return f
}

func (f *fences) shard(key string) *fenceShard {
	return &f.shards[maphash.String(f.seed, key)%fenceShards]
}

// bump outdates all entries of key and all running lookups of it.
func (f *fences) bump(key string) {
	s := f.shard(key)
	s.mu.Lock()
	c := s.cells[key]
	s.mu.Unlock()
	if c != nil {
		c.writes.Add(1)
	}
}

// Mark is the state of a cell at one moment.
type Mark struct {
	cell *cell
	At   uint64
}

// mark returns the current state of the cell of key, and makes the cell if needed. The cell lives
// at least until end, in Unix ns.
func (f *fences) mark(key string, end int64) Mark {
	s := f.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock() // keeps a sweep from moving the cell between look-up and load
	c := s.cells[key]
	if c == nil {
		c = &cell{}
		s.made++
		c.writes.Store(s.made << 32)
		s.cells[key] = c
	}
	m := Mark{c, c.writes.Load()}
	m.extend(end)
	return m
}

// extend extends the life of the cell to end, in Unix ns. A removed cell stays removed, and its
// marks do not hold.
func (m Mark) extend(end int64) {
	for {
		is := m.cell.end.Load()
		if is >= end || m.cell.end.CompareAndSwap(is, end) {
			return
		}
	}
}

// sweep removes the ended cells of one part of the shards; now is in Unix ns. sweepParts calls
// visit all shards.
func (f *fences) sweep(now int64) {
	part := f.part
	f.part = (part + 1) % sweepParts
	for i := part; i < fenceShards; i += sweepParts {
		f.shards[i].sweep(now)
	}
}

func (s *fenceShard) sweep(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.cells {
		if c.end.Load() <= now {
			delete(s.cells, key)
			c.writes.Add(1)
		}
	}
}

// holds reports whether the key was not written since the mark was taken.
func (m Mark) holds() bool { return m.cell.writes.Load() == m.At }
