package index

import (
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"weak"
)

// fenceShards is how many locks the cells of all keys share, a power of two.
const fenceShards = 64

// fences count the writes of each key. A filler loads the cell of its key before it looks anything up, and stores
// it in the entry. A write moves the cell after its sync and before its answer, so that no earlier entry is a hit.
//
// A cell lives as long as a filler or an entry refers to it; the garbage collector counts them. A write of a key
// without a cell outdates nothing and makes none.
type fences struct {
	seed   maphash.Seed
	shards [fenceShards]fenceShard
}

type fenceShard struct {
	mu    sync.Mutex
	cells map[string]weak.Pointer[cell] // guarded by mu
}

// cell counts the writes of one key. The key is in it so that the cell is no tiny object: those share a block of
// memory, and are collected late or never.
type cell struct {
	writes atomic.Uint64
	key    string
}

func newFences() *fences {
	f := &fences{seed: maphash.MakeSeed()}
	for i := range f.shards {
		f.shards[i].cells = map[string]weak.Pointer[cell]{}
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
	c := s.cells[key].Value()
	s.mu.Unlock()
	if c != nil {
		c.writes.Add(1)
	}
}

// mark is the state of a cell at one moment. It keeps the cell alive.
type mark struct {
	cell *cell
	at   uint64
}

// mark returns the current state of the cell of key, which it makes if there is none.
func (f *fences) mark(key string) mark {
	c := f.shard(key).cell(key)
	return mark{c, c.writes.Load()}
}

func (s *fenceShard) cell(key string) *cell {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.cells[key].Value(); c != nil {
		return c
	}
	c := &cell{key: key}
	s.cells[key] = weak.Make(c)
	runtime.AddCleanup(c, s.forget, key)
	return c
}

// forget removes the cell of key once nothing refers to it.
func (s *fenceShard) forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cells[key].Value() == nil {
		delete(s.cells, key)
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
