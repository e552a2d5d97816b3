package registry

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"ronbox/engines/registry/record"
)

// testSets are payloads of one item each, with the sets that they result in.
func testSets(t *testing.T, n int) (ps []*record.Payload, sets []record.Items) {
	t.Helper()
	base := record.Base{Origin: testOrigin, Version: 1, PayloadB3: digest("base"), Signers: newSigners(1, 1).set()}
	for i := range n {
		p, items, err := record.Complete(delta(2, fmt.Sprintf("i%d", i)), base, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		ps, sets = append(ps, p), append(sets, items)
	}
	return ps, sets
}

// The sets made last are there for the commits to come, however popular the older ones are.
func TestRecentSetsAreKept(t *testing.T) {
	ps, sets := testSets(t, 3*maxRecent)
	var r recent
	for i, p := range ps {
		r.put(&cachedItems{payload: p.B3(), items: sets[i], cost: 1})
		for back := range min(i+1, maxRecent) {
			if hit := r.get(ps[i-back].B3()); hit == nil || hit.items.Root() != sets[i-back].Root() {
				t.Fatalf("after %d, the one %d before is gone", i, back)
			}
		}
		if i >= maxRecent && r.get(ps[i-maxRecent].B3()) != nil {
			t.Fatalf("after %d, more than %d are kept", i, maxRecent)
		}
	}
	last := len(ps) - 1
	r.put(&cachedItems{payload: ps[last].B3(), items: sets[last], cost: 1})
	if r.get(ps[last-maxRecent+1].B3()) == nil {
		t.Error("one put twice took two places")
	}
	r.put(&cachedItems{payload: ps[0].B3(), items: sets[0], cost: recentBytes})
	if r.get(ps[0].B3()) == nil || r.get(ps[last].B3()) != nil {
		t.Error("the bound of bytes does not hold")
	}
	r.put(&cachedItems{payload: ps[1].B3(), items: sets[1], cost: recentBytes + 1})
	if r.get(ps[1].B3()) != nil {
		t.Error("a set above the bound is kept")
	}
}

func TestRecentSetsAreShared(t *testing.T) {
	ps, sets := testSets(t, 4)
	var r recent
	var wg sync.WaitGroup
	for i, p := range ps {
		wg.Go(func() {
			for range 1000 {
				r.put(&cachedItems{payload: p.B3(), items: sets[i], cost: 1})
				if hit := r.get(p.B3()); hit == nil || hit.items.Root() != sets[i].Root() {
					t.Error("what was put is gone")
				}
			}
		})
	}
	wg.Wait()
}
