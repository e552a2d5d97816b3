package views

import (
	"fmt"
	"testing"

	"ronbox/engines/registry/record"
)

// A fold of many deltas equals the deltas applied in sequence.
func TestFold(t *testing.T) {
	it := func(id string, n int) record.Item {
		item, err := record.ParseItem(fmt.Appendf(nil, `{"id":%q,"kind":"service","meta":{"n":%d}}`, id, n))
		if err != nil {
			t.Fatal(err)
		}
		return item
	}
	base, err := record.NewItems([]record.Item{it("a", 1), it("b", 1)})
	if err != nil {
		t.Fatal(err)
	}
	steps := []*record.Payload{
		{Version: 2, Mode: record.ModeDelta, Put: []record.Item{it("c", 1)}, Remove: []string{"a"}},
		{Version: 3, Mode: record.ModeDelta, Put: []record.Item{it("a", 2)}, Remove: []string{"c"}},
		{Version: 4, Mode: record.ModeDelta, Put: []record.Item{it("b", 2)}},
		{Version: 5, Mode: record.ModeDelta, Remove: []string{"b"}},
	}
	f, want := newFold(1, base), base
	for _, p := range steps {
		f.apply(p)
		if want, err = want.Apply(p.Put, p.Remove); err != nil {
			t.Fatal(err)
		}
		got, err := f.items()
		if err != nil || got.Root() != want.Root() || f.version != p.Version {
			t.Errorf("after version %d: %v", p.Version, err)
		}
	}
	f.apply(&record.Payload{Version: 6, Mode: record.ModeFull, Put: []record.Item{it("z", 1)}})
	if got, err := f.items(); err != nil || got.Len() != 1 {
		t.Errorf("after a full set: %d items, %v", got.Len(), err)
	}
}
