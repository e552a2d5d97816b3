package period

import (
	"context"

	"ronbox/store"
)

// BuildRests is Build with so many accounts in one pass over the records, and calls rest between two
// views.
func BuildRests(ctx context.Context, s *store.Store, pass uint64, rest func()) error {
	return build(ctx, s, func(context.Context) { rest() }, pass)
}
