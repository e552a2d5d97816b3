package tables

import (
	"ronbox/engines/registry/logtree"
	"ronbox/store"
)

// TilesOf returns the tiles in the transaction of r.
func TilesOf(r store.Reader) logtree.Tiles {
	return func(at logtree.At) []byte {
		raw, _ := tiles.Get(r, at)
		return raw
	}
}

// forest extends the log tree within one command, which does not see its own writes.
type forest struct {
	r    store.Reader
	w    *store.Writes
	row  TreeRow
	made map[logtree.At][]byte // by this command
}

func newForest(r store.Reader, w *store.Writes) *forest {
	f := &forest{r: r, w: w, made: map[logtree.At][]byte{}}
	f.row, _ = MetaTree.Get(r, KeyTree)
	return f
}

func (f *forest) tile(at logtree.At) []byte {
	if raw := f.made[at]; raw != nil {
		return raw
	}
	return TilesOf(f.r)(at)
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
	MetaTree.Put(f.w, KeyTree, f.row)
	return err
}
