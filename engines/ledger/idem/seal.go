package idem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/store"
)

// sliceKeys is from how many keys on a slice ends, with its block; one of a filter has as many
// bytes.
const sliceKeys = 4096

// chunkWords is how many words of a filter a slice holds at most.
const chunkWords = sliceKeys * 24 / 8

// errSlice is returned for a slice out of order: the run is complete, or the slice before was not
// applied. The caller starts again with a new Sealer.
var errSlice = errors.New("idem: slice does not come next")

// Slice is a part of a run, as a command carries it: plain data. A slice has keys, or a chunk of
// the filter, or the meta row.
type Slice struct {
	First  uint64    // names the run
	Part   uint32    // from 0 on
	Block  uint32    // number of the first block, from 0 on
	Blocks [][]Entry // in order, and their keys too
	Chunk  uint32    // number of the filter's chunk, from 0 on
	Filter []byte
	Meta   *Meta
}

// Size is about how many bytes the slice takes.
func (s *Slice) Size() int {
	n := len(s.Filter) + 128
	for _, b := range s.Blocks {
		n += entrySize*len(b) + 64
	}
	return n
}

// Last reports whether the slice completes the run.
func (s *Slice) Last() bool { return s.Meta != nil }

// Seal writes a slice, inside Apply. With the last one the run takes the place of its slot, once
// the group is synced.
func (x *Index) Seal(r store.Reader, w *store.Writes, s *Slice) error {
	b := bucketOf(s.First)
	if err := s.check(r, b); err != nil {
		return err
	}
	if s.Part == 0 {
		w.Drop(b)
	}
	for i, entries := range s.Blocks {
		key, row := encodeBlock(s.Block+uint32(i), entries)
		w.Put(b, key, row)
	}
	if len(s.Filter) > 0 {
		w.Put(b, behind(tagFilter, s.Chunk), bytes.Clone(s.Filter))
	}
	if s.Meta == nil {
		w.Put(b, behind(tagPart), binary.LittleEndian.AppendUint32(nil, s.Part+1))
		return nil
	}
	whole := readRun(r, b, *s.Meta)
	w.Delete(b, behind(tagPart))
	w.Put(b, behind(tagMeta), s.Meta.encode())
	w.Then(func() { x.group.sealed = append(x.group.sealed, whole) })
	return nil
}

// check refuses a slice out of order, or with keys out of order.
func (s *Slice) check(r store.Reader, b *store.Bucket) error {
	if _, whole := readMeta(r, b); whole {
		return fmt.Errorf("%w: run %d is whole", errSlice, s.First)
	}
	if next := readPart(r, b); s.Part != 0 && s.Part != next {
		return fmt.Errorf("%w: it is number %d of run %d, and number %d is to come", errSlice, s.Part, s.First, next)
	}
	for _, entries := range s.Blocks {
		for i := 1; i < len(entries); i++ {
			if bytes.Compare(entries[i-1].Key[:], entries[i].Key[:]) >= 0 {
				return fmt.Errorf("idem: slice %d of run %d is not in order", s.Part, s.First)
			}
		}
	}
	if s.Meta != nil && (s.Meta.First != s.First || s.Part == 0) {
		return fmt.Errorf("idem: the last slice of run %d tells of run %d", s.First, s.Meta.First)
	}
	if s.Meta != nil {
		return s.Meta.check()
	}
	return nil
}

// Sealer cuts closed slots into slices, the oldest slot first. It serves one task. Every slice must
// be committed before the next call of Next. After an error or an unknown outcome a new Sealer
// starts its slot again.
type Sealer struct {
	x      *Index
	slot   *slot // nil: no slot is under way
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
		First: s.slot.first, Last: s.slot.last, FirstAt: s.slot.firstAt, LastAt: s.slot.lastAt.Load(),
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
