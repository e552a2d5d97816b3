package idem

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"ronbox/store"
)

// sliceKeys is from how many keys on a slice ends, with its block; one of a filter has as many bytes.
const sliceKeys = 4096

// chunkWords is how many words of a filter a slice holds at most.
const chunkWords = sliceKeys * 24 / 8

// errSlice says that a slice does not come next: the run is whole, or the slice before it was never applied. Whoever seals begins anew.
var errSlice = errors.New("idem: slice does not come next")

// Slice is a part of a run, as a command carries it: plain data. A slice has keys, or a chunk of the filter, or the meta row.
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

// Last tells whether the run is whole with this slice.
func (s *Slice) Last() bool { return s.Meta != nil }

// Seal writes a slice, inside Apply. With the last one the run takes the place of its slot, once the group is synced.
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

// check refuses a slice that does not come next, or whose keys are not in order.
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
