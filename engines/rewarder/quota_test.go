package rewarder

import (
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
)

// The usage of a quota never falls below zero, and a recount does not override concurrent changes.
func TestUsageCounts(t *testing.T) {
	u := newQuota(flow.NewCatalog(nil, nil))
	a, b, c := b3.Sum([]byte("a")), b3.Sum([]byte("b")), b3.Sum([]byte("c"))
	of := func(n uint64) charge { return charge{owner{"t", "n"}, n} }
	u.set(a, of(5))
	u.set(a, of(7))
	u.set(b, of(1))
	u.begin()
	u.set(b, of(2))
	u.set(c, charge{})
	u.end(map[b3.Digest]charge{a: of(6), b: of(1), c: of(9)})
	if u.all != 8 || u.owners[owner{"t", "n"}] != 8 {
		t.Errorf("%d, %v", u.all, u.owners)
	}
	u.begin()
	u.end(nil)
	if u.all != 0 || len(u.owners) != 0 || len(u.uploads) != 0 {
		t.Errorf("%d, %v, %v", u.all, u.owners, u.uploads)
	}
}
