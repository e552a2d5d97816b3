package views

import (
	"context"
	"fmt"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// reach is the range of versions that can be read.
type reach struct {
	head    uint64 // the newest version
	min     uint64 // the oldest version that retention has left
	covered uint64 // size of the latest checkpoint
}

// Stand makes PayloadBytes, EntryBytes and Tile answer from the file of a member that does not
// lead, which other nodes write. It reads how far the log goes and verifies nothing: the content of
// these reads was signed or hashed once. The caller repeats it after the file has changed, and
// calls Recover when the node leads, but never both at once. Reads may run meanwhile.
func (rd *Reader) Stand(ctx context.Context) error {
	var at reach
	var note []byte
	err := rd.View(ctx, func(r store.Reader) error {
		head, _ := tables.MetaHead.Get(r, tables.KeyHead)
		at.head = head.Version
		at.min, _ = tables.MetaNumber.Get(r, tables.KeyMin)
		note, _ = tables.MetaRaw.Get(r, tables.KeyCheckpoint)
		return nil
	})
	if err == nil && note != nil {
		var tree checkpoint.Tree
		tree, err = checkpoint.TreeOf(note)
		at.covered = tree.Size
	}
	if err != nil {
		return fmt.Errorf("read the copy of the registry: %w", err)
	}
	rd.copied.Store(&at)
	return nil
}

// reach returns how far reads of versions go: by the published HEAD or, until Recover has published
// one, by the copy of a member that does not lead.
func (rd *Reader) reach() reach {
	head := rd.pub.Head()
	if at := rd.copied.Load(); at != nil && at.head > head.Head.Version {
		return *at
	}
	return reach{head.Head.Version, head.MinVersion, rd.pub.Covered()}
}
