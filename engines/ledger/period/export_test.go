package period

import (
	"context"

	"ronbox/store"
)

// BuildRests is Build with so many accounts in one pass over the records, and calls rest between two
// views.
func BuildRests(ctx context.Context, s *store.Store, pass uint64, rest func()) error {
	b := &builder{store: s, rest: func(context.Context) { rest() }, pass: pass}
	return b.build(ctx)
}

// Writable adds to the error of a folder what lets the node write there.
var Writable = writable
