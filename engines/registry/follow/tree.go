package follow

import (
	"context"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// leaves extends the tree of the file in memory.
type leaves struct {
	stored logtree.Tiles
	made   map[logtree.At][]byte
	size   uint64
}

// newLeaves returns an empty tree.
func newLeaves() *leaves {
	return &leaves{stored: func(logtree.At) []byte { return nil }, made: map[logtree.At][]byte{}}
}

// leavesHere returns the tree of the file, which has size leaves.
func (f *Run) leavesHere(ctx context.Context, size uint64) *leaves {
	stored := func(at logtree.At) (raw []byte) {
		_ = f.deps.Reader.View(ctx, func(r store.Reader) error { // a tile that is missing is found by its reader
			raw = tables.TilesOf(r)(at)
			return nil
		})
		return raw
	}
	return &leaves{stored: stored, made: map[logtree.At][]byte{}, size: size}
}

func (l *leaves) tile(at logtree.At) []byte {
	if raw := l.made[at]; raw != nil {
		return raw
	}
	return l.stored(at)
}

func (l *leaves) add(entry []byte) error { return l.addHash(logtree.Leaf(entry)) }

func (l *leaves) addHash(leaf tlog.Hash) error {
	err := logtree.Append(l.tile, l.size, leaf, func(at logtree.At, raw []byte) { l.made[at] = raw })
	l.size++
	return err
}

// addTile adds the hashes of the next tile, of which only the last may be partial.
func (l *leaves) addTile(raw []byte) error {
	last := len(raw) - tlog.HashSize
	l.made[logtree.At{N: l.size / logtree.Width}] = raw[:last:last]
	l.size += uint64(last / tlog.HashSize)
	return l.addHash(tlog.Hash(raw[last:]))
}

// leaf returns the hash of a version.
func (l *leaves) leaf(version uint64) tlog.Hash {
	at := (version - 1) % logtree.Width * tlog.HashSize
	return tlog.Hash(l.tile(logtree.At{N: (version - 1) / logtree.Width})[at:][:tlog.HashSize])
}

// before returns the tiles of the first size leaves.
func (l *leaves) before(size uint64) (out []tables.Tile) {
	for level, n := uint8(0), size; n > 0; level, n = level+1, n/logtree.Width {
		for i := uint64(0); i*logtree.Width < n; i++ {
			at := logtree.At{Level: level, N: i}
			out = append(out, tables.Tile{At: at, Raw: l.tile(at)[:min(logtree.Width,
				n-i*logtree.Width)*tlog.HashSize]})
		}
	}
	return out
}
