package idem

import (
	"encoding/binary"
	"math/bits"
)

// Key is a hashed idempotency key. Its bytes are uniform and nobody outside can choose them: they are not hashed again.
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

// Table is a set of entries in memory, 24 bytes a place and at most four fifths full. The zero Table is empty. It serves one goroutine, or
// many that only read.
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

// Put sets k, which replaces an older number of it, and tells whether k is new.
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

// Clear empties the table and keeps its room. The entries are those that were put: naming them spares the sweep of a table that a large
// group has left large.
func (t *Table) Clear(entries []Entry) {
	if t.n = 0; len(entries)*8 > len(t.rows) {
		clear(t.rows)
		return
	}
	for i := range entries {
		// From its home to the first free place: whoever frees one place of the way to an entry goes on to the entry itself.
		for at := t.home(&entries[i].Key); t.rows[at].Seq != 0; at = t.next(at) {
			t.rows[at] = Entry{}
		}
	}
}

// find is the place of k: where it is, or the free one where it would be.
func (t *Table) find(k *Key) int {
	at := t.home(k)
	for t.rows[at].Seq != 0 && t.rows[at].Key != *k {
		at = t.next(at)
	}
	return at
}

func (t *Table) home(k *Key) int {
	at, _ := bits.Mul64(k.tail(), uint64(len(t.rows)))
	return int(at)
}

func (t *Table) next(at int) int {
	if at++; at == len(t.rows) {
		return 0
	}
	return at
}

// grow makes room, in places, for what is there and more.
func (t *Table) grow(room int) {
	old := t.rows
	t.rows = make([]Entry, max(room, tableMin))
	for i := range old {
		if old[i].Seq == 0 {
			continue
		}
		at := t.home(&old[i].Key)
		for t.rows[at].Seq != 0 {
			at = t.next(at)
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
