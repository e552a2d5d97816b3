package record

import (
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"
)

func proofItem(t fataler, n int) Item {
	it, err := ParseItem(fmt.Appendf(nil, `{"id":"i%05d","kind":"node","meta":{"n":%d}}`, n, n))
	if err != nil {
		t.Fatalf("item %d: %v", n, err)
	}
	return it
}

type fataler interface {
	Fatalf(format string, args ...any)
}

// Every id has a valid proof in a set of any size: present ids, and absent ones between, below and
// above them.
func TestItemProofs(t *testing.T) {
	sizes := []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 31, 32, 33, 100, 257}
	for _, n := range sizes {
		var all []Item
		for i := range n {
			all = append(all, proofItem(t, 2*i+1))
		}
		s, err := NewItems(all)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 2*n + 1 {
			id := fmt.Sprintf("i%05d", i)
			p, err := s.Prove(id)
			if err != nil {
				t.Fatal(err)
			}
			it, err := p.Verify(s.Root(), s.Len())
			if err != nil || (it != nil) != (i%2 == 1) {
				t.Fatalf("%d items, %s: %v, %v", n, id, it, err)
			}
		}
	}
	if _, err := (Items{}).Prove("No"); err == nil {
		t.Error("a proof of what is no id")
	}
}

// A changed proof is refused, and so is a proof of another set.
func TestChangedItemProofs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		var all []Item
		for i := range n {
			all = append(all, proofItem(t, 2*i+1))
		}
		s, err := NewItems(all)
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Prove(fmt.Sprintf("i%05d", rapid.IntRange(0, 2*n).Draw(t, "id")))
		if err != nil {
			t.Fatal(err)
		}
		ats := []*ItemAt{}
		for _, at := range []*ItemAt{p.Item, p.Left, p.Right} {
			if at != nil {
				ats = append(ats, at)
			}
		}
		at := rapid.SampledFrom(ats).Draw(t, "place")
		switch what := rapid.IntRange(0, 4).Draw(t, "what"); {
		case what == 0 && len(at.Hashes) > 0:
			at.Hashes[rapid.IntRange(0, len(at.Hashes)-1).Draw(t, "hash")][rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1
		case what == 1:
			at.Index++
		case what == 2:
			at.Item = proofItem(t, 4242)
		case what == 3:
			at.Hashes = append(at.Hashes, tlog.Hash{})
		default:
			p.Root = Items{}.Root()
		}
		if _, err := p.Verify(s.Root(), s.Len()); err == nil {
			t.Fatal("a changed proof is accepted")
		}
	})
}

// Neighbours that are not adjacent do not prove that an id is absent.
func TestNoProofOfAFalseAbsence(t *testing.T) {
	s, err := NewItems([]Item{proofItem(t, 1), proofItem(t, 2), proofItem(t, 3)})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []ItemProof{
		{ID: "i00002", Left: s.at(0), Right: s.at(2)}, {ID: "i00002", Left: s.at(0)}, {ID: "i00002", Right: s.at(2)}, {ID: "i00002"},
		{ID: "i00002", Left: s.at(1), Right: s.at(2)}, {ID: "i00002", Item: s.at(0)}, {ID: "i00002", Item: s.at(1), Left: s.at(0)},
	} {
		p.Count, p.Root = s.Len(), s.Root()
		if it, err := p.Verify(s.Root(), s.Len()); err == nil {
			t.Errorf("%+v is accepted as %v", p, it)
		}
	}
	empty := ItemProof{ID: "i00002", Root: s.Root()}
	if _, err := empty.Verify(s.Root(), 0); err == nil {
		t.Error("no items under the root of some")
	}
}
