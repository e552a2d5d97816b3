package ledger

import (
	"fmt"
	"testing"

	"ronbox/engines/ledger/tables"
)

// Rows stay within the budget of bytes, and of rows that were read once and rows that are used
// again, those that are used stay.
func TestBudgetKeepsWhatIsUsed(t *testing.T) {
	s := newStage(t)
	const budget = 1 << 20
	s.b.budget.Store(budget)
	const used = 500
	for round := range uint64(40) {
		for k := range uint64(used) {
			s.b.states.get(tables.StateKey{Account: k, Asset: 1}, func() tables.Balance { return tables.Balance{} })
		}
		for k := range uint64(1000) { // read once
			k += used + round*1000
			s.b.states.get(tables.StateKey{Account: k, Asset: 1}, func() tables.Balance { return tables.Balance{} })
			s.b.accounts.get(k, func() tables.Account { return tables.Account{} })
		}
		s.b.evict()
	}
	if n := s.b.inMemory(); n > budget+budget/8 || n < budget/2 {
		t.Errorf("%d bytes are in memory, the budget is %d", n, budget)
	}
	for k := range uint64(used) {
		if _, there := s.b.states.read(tables.StateKey{Account: k, Asset: 1}); !there {
			t.Fatalf("row %d, which is used, has left memory", k)
		}
	}
}

// Rows that wait to be written stay in memory whatever the budget, and beside them there is room
// for others.
func TestBudgetLeavesDirtyRows(t *testing.T) {
	s := newStage(t)
	s.b.budget.Store(1)
	l := s.b.states
	for k := range uint64(100) {
		key := tables.StateKey{Account: k + 1, Asset: 1}
		l.put(l.fresh(key), tables.Balance{Postings: k}, k+1)
	}
	l.keep()
	l.publish()
	for range 10 {
		s.b.evict()
	}
	if all, clean := l.rows(); all != 100 || clean != 0 {
		t.Errorf("%d rows, %d of them as in the file; want 100, 0", all, clean)
	}
}

// A name that is used again stays in the cache while others come and go, and its bytes are bounded.
func TestNamesThatAreUsedStay(t *testing.T) {
	c := newNameCache()
	const most = 64 << 10
	c.most.Store(most / layerShards / 2)
	name := func(i int) string { return fmt.Sprintf("account/%d", i) }
	for i := range 100_000 {
		c.add(name(i), uint64(i+1))
		if i >= 10 && c.get(name(i%10)) != uint64(i%10+1) {
			t.Fatalf("after %d names the cache has forgotten %q, which is used", i, name(i%10))
		}
	}
	shard := int64(nameOverhead + 32) // an entry beyond the bound of each generation
	if n := c.bytes.Load(); n > most+2*layerShards*shard {
		t.Errorf("%d bytes, the bound is %d", n, most)
	}
	if c.get("nobody") != 0 {
		t.Error("a name that nobody added is known")
	}
}
