package idem

import (
	"testing"
	"time"
)

// A slot is full exactly at its width, its number of keys, or 1 Mi records.
func TestSlotIsFull(t *testing.T) {
	const first, at, keys = 7, 1000, 5
	for name, tt := range map[string]struct {
		more int
		seq  uint64
		at   int64
		full bool
	}{
		"nothing is over":     {1, first, at, false},
		"as many keys":        {5, first, at, false},
		"a key too many":      {6, first, at, true},
		"just within":         {1, first, at + 49, false},
		"its time is over":    {1, first, at + 50, true},
		"the last record":     {1, first + 1<<20 - 1, at, false},
		"a record too many":   {1, first + 1<<20, at, true},
		"all of it":           {9, first + 1<<21, at + 99, true},
		"a clock that stands": {0, first, at, false},
	} {
		s := newSlot(1, 1, first, at, 0)
		for i := range uint64(keys) {
			s.put(0, &Entry{keyOf(i), i + 1})
		}
		if got := s.full(Cut{Width: 50, Max: 10}, tt.more, tt.seq, tt.at); got != tt.full {
			t.Errorf("%s: full is %v", name, got)
		}
	}
}

// A slot with as many keys as the one before it never grows its table.
func TestSlotHasRoom(t *testing.T) {
	const keys, shards = 2000, 4
	x := New(shards, Cut{Width: time.Hour, Max: keys})
	var rooms [shards]int
	for seq := uint64(1); seq <= 2*keys; seq++ {
		x.Insert(keyOf(seq), seq, int64(seq))
		x.Committed()
		if seq <= keys {
			continue
		}
		s := x.set.Load().slots[1]
		for i := range s.shards {
			if rows := len(s.shards[i].table.rows); rooms[i] == 0 {
				rooms[i] = rows
			} else if rows != rooms[i] {
				t.Fatalf("shard %d grew from %d to %d places with the key %d", i, rooms[i], rows, seq-keys)
			}
		}
	}
	for i, rows := range rooms {
		if each := float64(rows) / (keys / shards); each < 1.25 || each > 2 {
			t.Errorf("shard %d has %d places for some %d keys", i, rows, keys/shards)
		}
	}
}
