package lverify

import (
	"testing"

	"ronbox/engines/ledger/tables"
)

// InSlices limits the number of rows per command, so that a test with few rows runs many commands.
func (o Options) InSlices(rows int) Options {
	o.rows = rows
	return o
}

// TestEndsTellPostingsApart compares a row with others that have more postings by a power of two,
// under many keys.
func TestEndsTellPostingsApart(t *testing.T) {
	k := tables.StateKey{Account: 3, Asset: 1}
	for range 4096 {
		e := newEnds()
		e.row(k, &tables.Balance{Postings: 1})
		for bit := range 64 {
			other := ends{seed: e.seed}
			if other.row(k, &tables.Balance{Postings: 1 ^ 1<<bit}); other.images == e.images {
				t.Fatalf("postings 1 and %d have one sum", uint64(1)^1<<bit)
			}
		}
	}
}
