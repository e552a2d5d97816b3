package idem

import (
	"encoding/binary"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Cut says where a slot ends: after a span of the ledger's time, or a number of keys.
type Cut struct {
	Width time.Duration
	Max   int
}

// slotSpan is how many records a slot covers at most, with keys or inside batches: a boot reads
// what slots cover, about a second each.
const slotSpan = 1 << 20

// slot holds the keys of a stretch of the journal in memory. The committer fills it, any goroutine
// reads it. It is immutable once the set has a later slot.
type slot struct {
	shards []shard
	keys   atomic.Int64
	room   int // initial places of a table, by the size of the slot before

	first    uint64       // seq from which it covers them
	firstSeq uint64       // of its first entry
	firstAt  int64        // time of its first entry
	last     uint64       // seq of its last entry; owned by the committer until the slot is closed
	lastAt   atomic.Int64 // time of its last entry
}

// shard is a part of a slot. Its lock covers one access of the table.
type shard struct {
	mu    sync.RWMutex // a leaf
	table Table        // guarded by mu
}

// newSlot begins with the entry firstSeq of the time at, after a slot of so many keys.
func newSlot(shards int, first, firstSeq uint64, at, before int64) *slot {
	room := int(before)/shards*3/2 + tableMin
	return &slot{shards: make([]shard, shards), room: room, first: first, firstSeq: firstSeq, firstAt: at}
}

// put puts an entry into its shard.
func (s *slot) put(shard int, e *Entry) {
	at := &s.shards[shard]
	at.mu.Lock()
	if at.table.n == 0 {
		at.table.grow(s.room)
	}
	fresh := at.table.Put(e.Key, e.Seq)
	at.mu.Unlock()
	if fresh {
		s.keys.Add(1)
	}
}

// full reports whether n more entries, the first with the given seq and time, need a new slot.
func (s *slot) full(c Cut, n int, seq uint64, at int64) bool {
	return int(s.keys.Load())+n > c.Max || at-s.firstAt >= int64(c.Width) || seq-s.firstSeq >= slotSpan
}

// set is what readers see: slots and runs, the oldest first. It is immutable, but for the tables of
// its slots.
type set struct {
	slots []*slot // the last one is being filled
	runs  []*run
}

// lookup looks through the slots, the newest first.
func (s *set) lookup(k Key, shard int) uint64 {
	for i := len(s.slots) - 1; i >= 0; i-- {
		at := &s.slots[i].shards[shard]
		at.mu.RLock()
		seq := at.table.Get(k)
		at.mu.RUnlock()
		if seq != 0 {
			return seq
		}
	}
	return 0
}

// Key is a hashed idempotency key. Its bytes are uniform and nobody outside can choose them: they
// are not hashed again.
type Key [16]byte

// head is the part of a key that orders it: it picks the shard.
func (k *Key) head() uint64 { return binary.BigEndian.Uint64(k[:8]) }

// tail is the other half: it picks the place in a table.
func (k *Key) tail() uint64 { return binary.LittleEndian.Uint64(k[8:]) }

// Entry is a key and the sequence number of its record, which is never 0.
type Entry struct {
	Key Key
	Seq uint64
}

// Table is a set of entries in memory, 24 bytes a place and at most four fifths full. The zero
// Table is empty. It serves one goroutine, or many that only read.
type Table struct {
	rows []Entry // Seq 0: a free place
	n    int
}

// tableMin is the room of a table's first entry, in places.
const tableMin = 16

// Len is the number of entries.
func (t *Table) Len() int { return t.n }

// Get is the sequence number of k, 0 if it is not there.
func (t *Table) Get(k Key) uint64 {
	if t.n == 0 {
		return 0
	}
	return t.rows[t.find(&k)].Seq
}

// Put sets the seq of k, unless its seq is greater already, and reports whether k is new.
func (t *Table) Put(k Key, seq uint64) bool {
	if (t.n+1)*5 > len(t.rows)*4 {
		t.grow(len(t.rows) + len(t.rows)/2)
	}
	at := &t.rows[t.find(&k)]
	fresh := at.Seq == 0
	if fresh {
		t.n++
	}
	*at = Entry{k, max(seq, at.Seq)}
	return fresh
}

// Clear empties the table and keeps its room. The entries are those that were put: naming them
// spares the sweep of a table that a large group has left large.
func (t *Table) Clear(entries []Entry) {
	if t.n = 0; len(entries)*8 > len(t.rows) {
		clear(t.rows)
		return
	}
	for i := range entries {
		// Clear from the home of the entry to the first free place: an entry is cleared together
		// with the places on the way to it.
		for at := t.home(&entries[i].Key); t.rows[at].Seq != 0; at = (at + 1) % len(t.rows) {
			t.rows[at] = Entry{}
		}
	}
}

// find is the place of k: where it is, or the free one where it would be.
func (t *Table) find(k *Key) int {
	at := t.home(k)
	for t.rows[at].Seq != 0 && t.rows[at].Key != *k {
		if at++; at == len(t.rows) {
			at = 0
		}
	}
	return at
}

func (t *Table) home(k *Key) int {
	at, _ := bits.Mul64(k.tail(), uint64(len(t.rows)))
	return int(at)
}

// grow makes the table at least room places large.
func (t *Table) grow(room int) {
	old := t.rows
	t.rows = make([]Entry, max(room, tableMin))
	for i := range old {
		if old[i].Seq == 0 {
			continue
		}
		at := t.home(&old[i].Key)
		for t.rows[at].Seq != 0 {
			at = (at + 1) % len(t.rows)
		}
		t.rows[at] = old[i]
	}
}

// appendTo adds the entries to dst, in no order.
func (t *Table) appendTo(dst []Entry) []Entry {
	for i := range t.rows {
		if t.rows[i].Seq != 0 {
			dst = append(dst, t.rows[i])
		}
	}
	return dst
}
