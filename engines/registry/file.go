package registry

import (
	"context"
	"errors"

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

// Errors of HeadIn.
var (
	errNoHead = errors.New("the registry has no version yet")
	errMoving = errors.New("a version of the registry is being committed")
)

// HeadIn returns HEAD as the transaction of r has it. r may be that of a command of another
// service, which so decides by the version that is in force when it is committed. HeadIn returns an
// error if there is no HEAD, if a version is committed in the same transaction, if the file is not
// the newest copy of its log or does not verify, or if the node follows another one that is not to
// be believed or has not signed for too long.
func (e *Engine) HeadIn(r store.Reader) (*HeadView, error) {
	head, _ := tables.MetaHead.Get(store.Foreign(r, service), tables.KeyHead)
	now := e.pub.State.Load()
	switch {
	case head.Version == 0 || now == nil:
		return nil, errNoHead
	case head != now.View.Head:
		return nil, errMoving
	case e.seal.Tripped() != nil:
		return nil, e.seal.Tripped().Err()
	case e.chainError.Load() != nil:
		return nil, &NotReadyError{Cause: CauseChainError}
	case e.follow != nil:
		if err := e.follow.OK(); err != nil {
			return nil, err
		}
	}
	return now.View, nil
}
