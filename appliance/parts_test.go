package appliance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"ronbox/appliance/config"
)

// Whichever part fails, those before it are undone in reverse order, and nothing is put in force.
func TestPartsAllOrNothing(t *testing.T) {
	const n = 4
	for bad := range n + 1 {
		var did []string
		var parts []part
		for i := range n {
			note := func(what string) func() { return func() { did = append(did, fmt.Sprint(what, i)) } }
			parts = append(parts, part{fmt.Sprint("part", i), func(context.Context, *config.Config) (swap, undo func(), err error) {
				if i == bad {
					return nil, nil, errors.New("no")
				}
				return note("swap"), note("undo"), nil
			}})
		}
		swap, err := prepareAll(t.Context(), parts, config.Default())
		var want []string
		if bad == n {
			swap()
			want = []string{"swap0", "swap1", "swap2", "swap3"}
		} else {
			for i := bad - 1; i >= 0; i-- {
				want = append(want, fmt.Sprint("undo", i))
			}
		}
		if !slices.Equal(did, want) {
			t.Errorf("with part %d failing: %v, want %v", bad, did, want)
		}
		var p *prepareError
		if failed := errors.As(err, &p); failed != (bad < n) || failed && p.part != fmt.Sprint("part", bad) {
			t.Errorf("with part %d failing: %v", bad, err)
		}
	}
}

// What was prepared when the node began to drain is undone: nothing is put in force in a node that closes its sockets.
func TestPartsOfADrainingNode(t *testing.T) {
	ctx, drain := context.WithCancel(t.Context())
	undone := 0
	parts := []part{{"last", func(context.Context, *config.Config) (swap, undo func(), err error) {
		drain()
		return func() {}, func() { undone++ }, nil
	}}}
	if _, err := prepareAll(ctx, parts, config.Default()); !errors.Is(err, context.Canceled) || undone != 1 {
		t.Errorf("%v, undone %d times", err, undone)
	}
}
