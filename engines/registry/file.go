package registry

import (
	"errors"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Buckets returns the buckets of the registry.
func Buckets() []*store.Bucket { return tables.Buckets() }

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
func (e *Engine) HeadIn(r store.Reader) (*tables.HeadView, error) {
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
		return nil, &document.NotReadyError{Cause: document.CauseChainError}
	case e.follow != nil:
		if err := e.follow.OK(); err != nil {
			return nil, err
		}
	}
	return now.View, nil
}
