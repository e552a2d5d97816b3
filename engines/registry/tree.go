package registry

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines/registry/logtree"
	"ronbox/store"
)

// treeRow is reg/meta tree: how many entries the tiles cover, and the stored bytes of those entries and payloads. A log that
// is older than its tiles lags behind HEAD until GrowTree has caught up.
type treeRow struct {
	Size  uint64 `cbor:"1,keyasint"`
	Bytes int64  `cbor:"2,keyasint"`
}

func tileKeys() store.Key[logtree.At] {
	return sized(9,
		func(dst []byte, at logtree.At) []byte {
			return binary.BigEndian.AppendUint64(append(dst, at.Level), at.N)
		},
		func(b []byte) logtree.At { return logtree.At{Level: b[0], N: binary.BigEndian.Uint64(b[1:])} })
}

// tilesOf reads tiles within r's transaction.
func tilesOf(r store.Reader) logtree.Tiles {
	return func(at logtree.At) []byte {
		raw, _ := tiles.Get(r, at)
		return raw
	}
}

// forest grows the log tree within one command, which does not see its own writes.
type forest struct {
	r    store.Reader
	w    *store.Writes
	row  treeRow
	made map[logtree.At][]byte // by this command
}

func newForest(r store.Reader, w *store.Writes) *forest {
	f := &forest{r: r, w: w, made: map[logtree.At][]byte{}}
	f.row, _ = metaTree.Get(r, keyTree)
	return f
}

func (f *forest) tile(at logtree.At) []byte {
	if raw := f.made[at]; raw != nil {
		return raw
	}
	return tilesOf(f.r)(at)
}

func (f *forest) put(at logtree.At, raw []byte) {
	f.made[at] = raw
	tiles.Put(f.w, at, raw)
}

// grow adds the entry of the next version.
func (f *forest) grow(entry, packed []byte) error {
	err := logtree.Append(f.tile, f.row.Size, logtree.Leaf(entry), f.put)
	f.row.Size++
	f.row.Bytes += int64(len(entry) + len(packed))
	metaTree.Put(f.w, keyTree, f.row)
	return err
}

// growAtOnce is how many entries one GrowTree covers.
const growAtOnce = 512

// GrowTree covers entries that were committed before the log had a tree, oldest first.
type GrowTree struct {
	From uint64 `cbor:"1,keyasint"` // size of the tree before
}

// Kind names the command in journals.
func (GrowTree) Kind() string { return "registry.grow_tree/1" }

// Apply answers the tree after it.
func (c GrowTree) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (treeRow, error) {
	f := newForest(r, w)
	if f.row.Size != c.From {
		return f.row, &GuardError{Op: -1, Guard: "tree"}
	}
	head, _ := metaHead.Get(r, keyHead)
	for v := c.From + 1; v <= min(head.Version, c.From+growAtOnce); v++ {
		entry, known := entries.Get(r, v)
		packed, has := payloads.Get(r, v)
		if !known || !has {
			return f.row, fmt.Errorf("version %d is missing: %w", v, store.ErrCorrupt)
		}
		if err := f.grow(entry, packed); err != nil {
			return f.row, err
		}
	}
	return f.row, nil
}

// growTree covers what the tree does not cover yet; a new log never lags.
func (e *Engine) growTree(ctx context.Context) error {
	for at := e.tree.Load(); at.Size < e.Head().Head.Version; at = e.tree.Load() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		_, err := store.Commit(ctx, e.store, store.Bulk, GrowTree{From: at.Size}, func(row treeRow) { e.tree.Store(&row) })
		if err != nil {
			return fmt.Errorf("grow the log tree from %d: %w", at.Size, err)
		}
	}
	return nil
}

// root reads the root of the tree at a size that HEAD has reached.
func (e *Engine) root(ctx context.Context, size uint64) (root tlog.Hash, err error) {
	err = e.withTree(ctx, func(t logtree.Reader) error {
		root, err = t.Root(size)
		return err
	})
	return root, err
}

// withTree lends the tree as one read transaction sees it.
func (e *Engine) withTree(ctx context.Context, fn func(logtree.Reader) error) error {
	return e.view(ctx, func(r store.Reader) error { return fn(logtree.Reader{Tiles: tilesOf(r)}) })
}
