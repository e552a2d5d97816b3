package registry

import (
	"context"

	"ronbox/engines/registry/export"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// HeadView is HEAD with all values that follow from it. It is immutable.
type HeadView = tables.HeadView

// Errors of the commands.
type (
	GuardError  = tables.GuardError
	FollowFault = tables.FollowFault
)

// Buckets returns the buckets of the registry.
func Buckets() []*store.Bucket { return tables.Buckets() }

// NewSource returns the log in the transaction of r, with its tree. It is valid until the
// transaction ends.
func NewSource(r store.Reader) export.Source { return tables.NewSource(r) }

// Verify checks the whole registry in the transaction of r; see [tables.Verify].
func Verify(ctx context.Context, r store.Reader, o rverify.Options) (rverify.Report, error) {
	return tables.Verify(ctx, r, o)
}

// Check returns Verify as a step of the check of a file. It stores the report in out.
func Check(ctx context.Context, o rverify.Options, out **rverify.Report) store.Check {
	return tables.Check(ctx, o, out)
}
