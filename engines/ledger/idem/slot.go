package idem

import (
	"sync"
	"sync/atomic"
	"time"
)

// Cut says where a slot ends: after a span of the ledger's time, or a number of keys.
type Cut struct {
	Width time.Duration
	Max   int
}

// slotSpan is how many records a slot covers at most, with keys or inside batches: a boot reads what slots cover, about a second each.
const slotSpan = 1 << 20

// slot is a stretch of the journal whose keys are in memory. It is filled by the committer and read by anyone; once the set names one after
// it, it does not change any more.
type slot struct {
	shards []shard
	keys   atomic.Int64
	room   int // places that a table begins with: what the slot before it came to need

	first, last     uint64 // seqs it covers; owned by the committer until it is closed
	firstSeq        uint64 // of its first entry, likewise
	firstAt, lastAt int64  // times of its first and last entry, likewise
}

// shard is a part of a slot. Its lock covers one access of the table.
type shard struct {
	mu    sync.RWMutex
	table Table // guarded by mu
}

// newSlot begins with the entry firstSeq of the time at, after a slot of so many keys.
func newSlot(shards int, first, firstSeq uint64, at, before int64) *slot {
	room := int(before)/shards*3/2 + tableMin
	return &slot{shards: make([]shard, shards), room: room, first: first, firstSeq: firstSeq, firstAt: at}
}

func (s *shard) get(k Key) uint64 {
	s.mu.RLock()
	seq := s.table.Get(k)
	s.mu.RUnlock()
	return seq
}

// fill puts entries of one shard.
func (s *slot) fill(shard int, entries []Entry) {
	at, fresh := &s.shards[shard], 0
	at.mu.Lock()
	if at.table.Len() == 0 {
		at.table.grow(s.room)
	}
	for i := range entries {
		if at.table.Put(entries[i].Key, entries[i].Seq) {
			fresh++
		}
	}
	at.mu.Unlock()
	s.keys.Add(int64(fresh))
}

// full tells whether n entries, the first of the given seq and time, belong into a slot of their own.
func (s *slot) full(c Cut, n int, seq uint64, at int64) bool {
	return int(s.keys.Load())+n > c.Max || at-s.firstAt >= int64(c.Width) || seq-s.firstSeq >= slotSpan
}

// set is what readers see: slots and runs, the oldest first. It is immutable, but for the tables of its slots.
type set struct {
	slots []*slot // the last one is being filled
	runs  []*run
}

// lookup looks through the slots, the newest first.
func (s *set) lookup(k Key, shard int) uint64 {
	for i := len(s.slots) - 1; i >= 0; i-- {
		if seq := s.slots[i].shards[shard].get(k); seq != 0 {
			return seq
		}
	}
	return 0
}
