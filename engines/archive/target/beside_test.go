package target_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"ronbox/engines/archive/target"
)

// A directory that goes with its last object while the target is listed has no objects.
func TestListBesideDelete(t *testing.T) {
	d, _ := opened(t)
	create(t, d, "a/x", "b/x", "b/y/x", "c/x")
	var all []string
	err := d.List(t.Context(), "", "", func(i target.Item) bool {
		all = append(all, i.Name)
		for _, name := range []string{"b/x", "b/y/x"} {
			if err := d.Delete(t.Context(), name); err != nil {
				t.Error(err)
			}
		}
		return true
	})
	if err != nil || !slices.Equal(all, []string{"a/x", "c/x", target.Mark}) {
		t.Errorf("%q, %v", all, err)
	}
}

// Objects are created in directories that go with their last objects.
func TestCreateBesideDelete(t *testing.T) {
	d, _ := opened(t)
	var wg sync.WaitGroup
	for i := range 2 {
		name := fmt.Sprintf("a/b/%d", i)
		from := file(t, name)
		wg.Go(func() {
			for range 500 {
				if err := d.Create(t.Context(), name, from); err != nil {
					t.Error(err)
				}
				if err := d.Delete(t.Context(), name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}
