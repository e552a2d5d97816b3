package pmtiles

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"ronbox/engines/edge/tile"
)

// maxDepth is the largest number of leaves between the root and a tile.
const maxDepth = 3

// Leaf is a decoded leaf directory.
type Leaf struct{ entries directory }

// Leaves caches leaves of many archives by their positions.
type Leaves interface {
	Get(place string) (Leaf, bool)
	Set(place string, leaf Leaf, bytes int64)
}

// Options are the bounds and the shared parts of readers.
type Options struct {
	Serial  uint64 // unique among the archives that share Cache
	Cache   Leaves // nil caches nothing
	Slots   Slots  // for decoding leaves
	MaxTile int64  // bytes; a longer tile is skipped
}

// Reader reads one archive. It is safe for concurrent use.
type Reader struct {
	Header
	Options
	src  io.ReaderAt
	size uint64
	torn []string // sections that leave the file
	root directory
}

// Open reads the header and the root directory of an archive of size bytes.
func Open(src io.ReaderAt, size int64, o Options) (*Reader, error) {
	r := &Reader{Options: o, src: src, size: uint64(size)}
	b, err := r.read("header", Section{0, headerSize}, headerSize)
	if err != nil {
		return nil, err
	}
	if r.Header, r.torn, err = parseHeader(b, r.size); err != nil {
		return nil, err
	}
	if r.root, err = r.load("root directory", r.Root, maxInRoot); err != nil {
		return nil, err
	}
	if len(r.root) == 0 && (r.Addressed != 0 || r.Entries != 0 || r.Contents != 0) {
		return nil, unfit("root directory: empty, the header counts %d tiles", r.Addressed)
	}
	return r, nil
}

// read reads a part of at most most bytes.
func (r *Reader) read(name string, at Section, most uint64) ([]byte, error) {
	if at.Length > most || !(Section{Length: r.size}).holds(at.Offset, at.Length) {
		return nil, unfit("%s: %d bytes at %d, at most %d in a file of %d", name, at.Length, at.Offset, most, r.size)
	}
	b := make([]byte, at.Length)
	n, err := r.src.ReadAt(b, int64(at.Offset))
	switch {
	case n == len(b):
		return b, nil
	case errors.Is(err, io.EOF):
		return nil, unfit("%s: the file ends at %d, it had %d bytes", name, at.Offset+uint64(n), r.size)
	default:
		return nil, fmt.Errorf("%s at %d: %w", name, at.Offset, err)
	}
}

// load reads and decodes the directory at a position of the file, of at most most entries. If the
// header does not have its compression, its first bytes decide.
func (r *Reader) load(name string, at Section, most uint64) (d directory, err error) {
	b, err := r.read(name, at, maxDirectory)
	if err == nil {
		b, err = r.decode(b, maxDirectory)
	}
	if err == nil {
		d, err = parseDirectory(b, most, r.size-r.Tiles.Offset, r.size-r.Leaves.Offset)
	}
	if err != nil {
		return nil, fmt.Errorf("%s at %d: %w", name, at.Offset, err)
	}
	return d, nil
}

// decode decodes a directory or the metadata.
func (r *Reader) decode(b []byte, limit int) ([]byte, error) {
	coding := r.Internal
	if coding == tile.Unknown {
		coding = tile.CodingOf(b, tile.None, "")
	}
	out, err := coding.Decode(b, limit)
	if err != nil {
		return nil, unfit("%v", err)
	}
	return out, nil
}

// leaf returns the directory to which entry i of d points. limit is one more than the last id of d.
func (r *Reader) leaf(ctx context.Context, d directory, i int, limit uint64) (directory, error) {
	leaf, err := r.decoded(ctx, d[i])
	if err != nil {
		return nil, err
	}
	if err := leaf.inside(d.span(i, limit)); err != nil {
		return nil, fmt.Errorf("leaf directory at %d: %w", r.Leaves.Offset+d[i].offset, err)
	}
	return leaf, nil
}

// decoded returns a leaf from the cache, or decodes it in a slot.
func (r *Reader) decoded(ctx context.Context, e entry) (directory, error) {
	place := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.Serial), e.offset)
	known := func() (leaf Leaf, ok bool) {
		if r.Cache != nil {
			leaf, ok = r.Cache.Get(string(place))
		}
		return leaf, ok
	}
	if leaf, ok := known(); ok {
		return leaf.entries, nil
	}
	release, err := r.Slots.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if leaf, ok := known(); ok { // another caller decoded it during the wait
		return leaf.entries, nil
	}
	d, err := r.load("leaf directory", Section{r.Leaves.Offset + e.offset, uint64(e.length)}, maxEntries)
	if err == nil && r.Cache != nil {
		r.Cache.Set(string(place), Leaf{d}, int64(len(d))*entryBytes+256)
	}
	return d, err
}

// Tile returns a tile as it is stored, or nil if the archive has no such tile. z is at most 31, x
// and y are below 2^z. It calls room with the length of the tile before it reads it, and returns
// the error of room. It returns tile.ErrSkipped for a tile that is empty or too long.
func (r *Reader) Tile(ctx context.Context, z uint8, x, y uint32, room func(int64) error) ([]byte, error) {
	id, d, limit := TileID(z, x, y), r.root, uint64(maxID)
	for range maxDepth + 1 {
		i, ok := d.find(id)
		if !ok {
			return nil, nil
		}
		if d[i].run > 0 {
			return r.tile(d[i], room)
		}
		leaf, err := r.leaf(ctx, d, i, limit)
		if err != nil {
			return nil, err
		}
		_, limit = d.span(i, limit)
		d = leaf
	}
	return nil, unfit("tile %d/%d/%d: more than %d leaf directories deep", z, x, y, maxDepth)
}

// tile reads the tile of an entry.
func (r *Reader) tile(e entry, room func(int64) error) ([]byte, error) {
	length := int64(e.length)
	if length == 0 || length > r.MaxTile {
		return nil, tile.ErrSkipped
	}
	if err := room(length); err != nil {
		return nil, err
	}
	return r.read("tile", Section{r.Tiles.Offset + e.offset, uint64(e.length)}, uint64(r.MaxTile))
}

// ReadMetadata returns the metadata, a JSON object, or an empty slice.
func (r *Reader) ReadMetadata() ([]byte, error) {
	b, err := r.read("metadata", r.Metadata, maxMetadata)
	if err == nil && len(b) > 0 {
		b, err = r.decode(b, maxMetadata)
	}
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return b, nil
}
