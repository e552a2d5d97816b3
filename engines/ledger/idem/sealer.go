package idem

import (
	"bytes"
	"slices"

	"ronbox/appliance/b3"
)

// Sealer cuts closed slots into slices, the oldest slot first. It serves one task. Every slice must be committed before the next one is
// asked for; after an error, or when it is not known whether one was, a new Sealer begins its slot anew.
type Sealer struct {
	x      *Index
	slot   *slot // nil: none is begun
	part   uint32
	shard  int     // the next one to be sorted
	rest   []Entry // sorted, not yet in a slice
	block  uint32  // the next one to be sliced
	blocks uint32  // of the run
	filter filter
	sum    *b3.Hasher
	word   int // of the filter, the next one to be sliced
	chunk  uint32
}

// Sealer is one that has not begun.
func (x *Index) Sealer() *Sealer { return &Sealer{x: x} }

// Closed is how many slots wait to be sealed.
func (x *Index) Closed() int { return max(0, len(x.set.Load().slots)-1) }

// Next is the next slice; not ok if no slot is closed.
func (s *Sealer) Next() (Slice, bool) {
	if s.slot == nil && !s.begin() {
		return Slice{}, false
	}
	out := Slice{First: s.slot.first, Part: s.part, Block: s.block}
	s.part++
	if s.block < s.blocks {
		out.Blocks = s.next()
		return out, true
	}
	if words := len(s.filter.words); s.word < words {
		to := min(s.word+chunkWords, words)
		out.Chunk, out.Filter = s.chunk, s.filter.bytes(s.word, to)
		_, _ = s.sum.Write(out.Filter) // never fails
		s.word, s.chunk = to, s.chunk+1
		return out, true
	}
	out.Meta = &Meta{
		First: s.slot.first, Last: s.slot.last, FirstAt: s.slot.firstAt, LastAt: s.slot.lastAt,
		Keys: uint64(s.slot.keys.Load()), Words: uint64(len(s.filter.words)), Filter: s.sum.Sum32(),
	}
	*s = Sealer{x: s.x}
	return out, true
}

func (s *Sealer) begin() bool {
	slots := s.x.set.Load().slots
	if len(slots) < 2 {
		return false
	}
	keys := slots[0].keys.Load()
	*s = Sealer{x: s.x, slot: slots[0], blocks: blocks(uint64(keys)), filter: newFilter(int(keys)), sum: b3.New()}
	return true
}

// next are the blocks of the next slice. Shards split the keys in order, so each is sorted alone.
func (s *Sealer) next() (out [][]Entry) {
	for n := 0; n < sliceKeys && s.block < s.blocks; s.block++ {
		entries := s.take(make([]Entry, 0, 2*blockKeys))
		out, n = append(out, entries), n+len(entries)
	}
	return out
}

// take adds the keys of the block at hand to dst.
func (s *Sealer) take(dst []Entry) []Entry {
	for len(s.rest) > 0 || s.sortShard() {
		n := 0
		for n < len(s.rest) && blockOf(&s.rest[n].Key, s.blocks) == s.block {
			s.filter.add(&s.rest[n].Key)
			n++
		}
		if dst, s.rest = append(dst, s.rest[:n]...), s.rest[n:]; len(s.rest) > 0 {
			break
		}
	}
	return dst
}

// sortShard takes the next shard that has keys; false after the last one.
func (s *Sealer) sortShard() bool {
	for s.shard < len(s.slot.shards) {
		at := &s.slot.shards[s.shard]
		s.shard++
		at.mu.RLock()
		rows := at.table.appendTo(make([]Entry, 0, at.table.Len()))
		at.mu.RUnlock()
		if len(rows) > 0 {
			slices.SortFunc(rows, func(a, b Entry) int { return bytes.Compare(a.Key[:], b.Key[:]) })
			s.rest = rows
			return true
		}
	}
	return false
}
