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
	out := Slice{First: s.slot.first, Part: s.part}
	s.part++
	if out.Rows = s.rows(); len(out.Rows) > 0 {
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
	*s = Sealer{x: s.x, slot: slots[0], filter: newFilter(int(slots[0].keys.Load())), sum: b3.New()}
	return true
}

// rows are the next keys in order, none at the end. Shards split the keys in order, so each is sorted alone.
func (s *Sealer) rows() []Entry {
	out := make([]Entry, 0, sliceKeys)
	for len(out) < sliceKeys {
		if len(s.rest) == 0 && !s.sortShard() {
			break
		}
		n := min(sliceKeys-len(out), len(s.rest))
		out, s.rest = append(out, s.rest[:n]...), s.rest[n:]
	}
	for i := range out {
		s.filter.add(&out[i].Key)
	}
	return out
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
