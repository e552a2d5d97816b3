package logtree

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

const (
	// Height is the height of a tile.
	Height = 8
	// Width is the number of hashes of a full tile.
	Width = 1 << Height
	// maxLevel is the highest level of tiles: eight of them hold 2^64 leaves.
	maxLevel = 7
)

// ErrTile is returned when a tile is missing or shorter than the tree needs.
var ErrTile = errors.New("tile of the log tree is missing or cut")

// At names a tile: its level, 0 for the leaves, and its place in that level.
type At struct {
	Level uint8
	N     uint64
}

// Tiles returns the stored bytes of a tile, nil if it does not exist.
type Tiles func(At) []byte

// Leaf returns the hash of an entry.
func Leaf(entry []byte) tlog.Hash { return tlog.RecordHash(entry) }

// Append adds a leaf after the first size leaves. It calls put with each tile that changes, the
// lowest first.
func Append(tiles Tiles, size uint64, leaf tlog.Hash, put func(At, []byte)) error {
	hash := leaf
	for level, n := uint8(0), size; ; level, n = level+1, n/Width {
		at := At{Level: level, N: n / Width}
		have := tiles(at)
		if uint64(len(have)) < n%Width*tlog.HashSize {
			return fmt.Errorf("%w: level %d, tile %d has %d bytes", ErrTile, at.Level, at.N, len(have))
		}
		tile := append(append(make([]byte, 0, len(have)+tlog.HashSize), have[:n%Width*tlog.HashSize]...), hash[:]...)
		put(at, tile)
		if n%Width != Width-1 {
			return nil
		}
		hash = top(tile)
	}
}

// top returns the hash of a full tile.
func top(tile []byte) tlog.Hash {
	level := make([]tlog.Hash, Width)
	for i := range level {
		copy(level[i][:], tile[i*tlog.HashSize:])
	}
	for len(level) > 1 {
		for i := range len(level) / 2 {
			level[i] = tlog.NodeHash(level[2*i], level[2*i+1])
		}
		level = level[:len(level)/2]
	}
	return level[0]
}

// Reader reads hashes of the tree from its tiles; it is a tlog.HashReader.
type Reader struct{ Tiles Tiles }

// ReadHashes returns the hashes at places in the order of the stored hashes of tlog.
func (r Reader) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		t := tlog.TileForIndex(Height, x)
		data := r.Tiles(At{Level: uint8(t.L), N: uint64(t.N)})
		if len(data) < t.W*tlog.HashSize {
			return nil, fmt.Errorf("%w: level %d, tile %d", ErrTile, t.L, t.N)
		}
		var err error
		if out[i], err = tlog.HashFromTile(t, data[:t.W*tlog.HashSize], x); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Root returns the root of the tree over the first size leaves. For size 0 it is the hash of the
// empty string.
func (r Reader) Root(size uint64) (tlog.Hash, error) {
	return tlog.TreeHash(int64(size), r)
}

// Inclusion proves the leaf at index in the tree of size leaves.
func (r Reader) Inclusion(size, index uint64) (tlog.RecordProof, error) {
	return tlog.ProveRecord(int64(size), int64(index), r)
}

// Consistency proves that the tree of from leaves is a prefix of that of to.
func (r Reader) Consistency(from, to uint64) (tlog.TreeProof, error) {
	if from == 0 || from == to {
		return tlog.TreeProof{}, nil // from the empty tree, or from the same tree
	}
	return tlog.ProveTree(int64(to), int64(from), r)
}

// Extends checks that the tree of to leaves under newRoot begins with the one of from leaves under
// oldRoot, as far as the tiles prove it.
func (r Reader) Extends(from uint64, oldRoot tlog.Hash, to uint64, newRoot tlog.Hash) error {
	switch {
	case from > to:
		return fmt.Errorf("a tree of %d entries cannot extend one of %d", to, from)
	case from == 0:
		return nil
	case from == to:
		if oldRoot != newRoot {
			return fmt.Errorf("two roots for %d entries: %s and %s", to, oldRoot, newRoot)
		}
		return nil
	}
	proof, err := r.Consistency(from, to)
	if err != nil {
		return err
	}
	return tlog.CheckTree(proof, int64(to), newRoot, int64(from), oldRoot)
}

// Path returns the path of a tile in the tlog-tiles layout, such as "tile/0/x001/234.p/5". entries
// selects tiles of entries instead of hashes.
func Path(at At, width int, entries bool) string {
	t := tlog.Tile{H: Height, L: int(at.Level), N: int64(at.N), W: width}
	if entries {
		t.L = -1
	}
	// tlog writes the height, which the layout leaves out.
	path := t.Path()[len("tile/8/"):]
	if entries {
		path = "entries" + path[len("data"):]
	}
	return "tile/" + path
}

// ParsePath parses a path that Path returns.
func ParsePath(path string) (at At, width int, entries bool, err error) {
	bad := fmt.Errorf("%.120q is not the path of a tile", path)
	rest, is := strings.CutPrefix(path, "tile/")
	of, entries := strings.CutPrefix(rest, "entries/")
	if entries {
		rest = "data/" + of
	}
	t, err := tlog.ParseTilePath("tile/8/" + rest)
	if !is || err != nil || t.L > maxLevel {
		return at, 0, false, bad
	}
	if !entries {
		at.Level = uint8(t.L)
	}
	at.N = uint64(t.N)
	if Path(at, t.W, entries) != path {
		return at, 0, false, bad
	}
	return at, t.W, entries, nil
}
