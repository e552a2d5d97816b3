package index

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// fenceShards is how many locks the cells of all keys share, a power of two.
const fenceShards = 64

// sweepParts is how many sweeps visit all shards once: a sweep of a full cache takes about a millisecond.
const sweepParts = 4

// fences count the writes of each key. A filler loads the cell of its key before it looks anything up, and stores
// it in the entry. A write moves the cell after its sync and before its answer, so that no earlier entry is a hit.
//
// A cell has an end, which each filler and each entry moves as far as it may last itself, and which comes at once when
// the cache drops the entry. Removing a cell moves it, so what still refers to it is outdated: a removal too early
// costs a miss, never a wrong answer. A write of a key without a cell outdates nothing and makes none.
type fences struct {
	seed   maphash.Seed
	shards [fenceShards]fenceShard
	part   int // the next to be swept; owned by the cache janitor
}

type fenceShard struct {
	mu    sync.Mutex
	cells map[string]*cell // guarded by mu
	made  uint64           // cells so far; guarded by mu
}

// cell counts the writes of one key, up from a number that no other cell of the key has had.
type cell struct {
	writes atomic.Uint64
	end    atomic.Int64 // Unix ns; 0: at once
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

// bump outdates every entry of key, and every lookup under way.
func (f *fences) bump(key string) {
	s := f.shard(key)
	s.mu.Lock()
	c := s.cells[key]
	s.mu.Unlock()
	if c != nil {
		c.writes.Add(1)
	}
}

// mark is the state of a cell at one moment.
type mark struct {
	cell *cell
	at   uint64
}

// mark returns the current state of the cell of key, which it makes if there is none. The cell is there until end,
// Unix ns.
func (f *fences) mark(key string, end int64) mark {
	s := f.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock() // a sweep moves no cell between its look-up and its load
	c := s.cells[key]
	if c == nil {
		c = &cell{}
		s.made++
		c.writes.Store(s.made << 32)
		s.cells[key] = c
	}
	m := mark{c, c.writes.Load()}
	m.extend(end)
	return m
}

// extend keeps the cell until end, Unix ns. One that was removed stays so, and the mark does not hold.
func (m mark) extend(end int64) {
	for {
		is := m.cell.end.Load()
		if is >= end || m.cell.end.CompareAndSwap(is, end) {
			return
		}
	}
}

// sweep removes the cells whose end has come at now, Unix ns, from a part of the shards. sweepParts calls visit all.
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

// holds reports whether the key was not written since.
func (m mark) holds() bool { return m.cell.writes.Load() == m.at }

// len returns the number of cells.
func (f *fences) len() (n int) {
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		n += len(s.cells)
		s.mu.Unlock()
	}
	return n
}
