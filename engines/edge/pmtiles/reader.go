package pmtiles

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
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

// Reader reads one archive. It is safe for concurrent use.
type Reader struct {
	Header
	src     io.ReaderAt
	size    uint64
	archive uint64
	leaves  Leaves
	slots   Slots // for decoding leaves
	root    directory
}

// Open reads the header and the root directory of an archive of size bytes. It decodes leaves in
// slots and caches them in leaves under serial, which must be unique among archives. If leaves is
// nil, nothing is cached.
func Open(src io.ReaderAt, size int64, archive uint64, leaves Leaves, slots Slots) (*Reader, error) {
	r := &Reader{src: src, size: uint64(size), archive: archive, leaves: leaves, slots: slots}
	b, err := r.read("header", Section{0, headerSize}, headerSize)
	if err != nil {
		return nil, err
	}
	if r.Header, err = parseHeader(b, r.size); err != nil {
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

// load reads and decodes the directory at a position of the file, of at most most entries.
func (r *Reader) load(name string, at Section, most uint64) (d directory, err error) {
	b, err := r.read(name, at, maxDirectory)
	if err == nil {
		b, err = r.Internal.Decode(b, maxDirectory)
	}
	if err == nil {
		d, err = parseDirectory(b, most, r.Tiles, r.Leaves)
	}
	if err != nil {
		return nil, fmt.Errorf("%s at %d: %w", name, at.Offset, err)
	}
	return d, nil
}

// leaf returns the directory to which entry i of d points. limit is one more than the last id of d.
func (r *Reader) leaf(ctx context.Context, d directory, i int, limit uint64) (directory, error) {
	leaf, err := r.decoded(ctx, d[i])
	if err != nil {
		return nil, err
	}
	first, behind := d.span(i, limit)
	if n := len(leaf); n == 0 || leaf[0].id < first || leaf[n-1].id+uint64(max(leaf[n-1].run, 1)) > behind {
		return nil, unfit("leaf directory at %d: its ids are not inside %d to %d", r.Leaves.Offset+d[i].offset, first,
			behind)
	}
	return leaf, nil
}

// decoded returns a leaf from the cache, or decodes it in a slot.
func (r *Reader) decoded(ctx context.Context, e entry) (directory, error) {
	place := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, r.archive), e.offset)
	known := func() (leaf Leaf, ok bool) {
		if r.leaves != nil {
			leaf, ok = r.leaves.Get(string(place))
		}
		return leaf, ok
	}
	if leaf, ok := known(); ok {
		return leaf.entries, nil
	}
	release, err := r.slots.Take(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if leaf, ok := known(); ok { // another caller decoded it during the wait
		return leaf.entries, nil
	}
	d, err := r.load("leaf directory", Section{r.Leaves.Offset + e.offset, uint64(e.length)}, maxEntries)
	if err == nil && r.leaves != nil {
		r.leaves.Set(string(place), Leaf{d}, int64(len(d))*entryBytes+256)
	}
	return d, err
}

// Tile returns a tile as it is stored, or nil if the archive has no such tile. z is at most 31, x
// and y are below 2^z.
func (r *Reader) Tile(ctx context.Context, z uint8, x, y uint32) ([]byte, error) {
	id, d, limit := TileID(z, x, y), r.root, uint64(maxID)
	for range maxDepth + 1 {
		i, ok := d.find(id)
		if !ok {
			return nil, nil
		}
		if d[i].run > 0 {
			return r.read("tile", Section{r.Tiles.Offset + d[i].offset, uint64(d[i].length)}, maxTile)
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

// ReadMetadata returns the metadata, a JSON object, or an empty slice.
func (r *Reader) ReadMetadata() ([]byte, error) {
	b, err := r.read("metadata", r.Metadata, maxMetadata)
	if err == nil && len(b) > 0 {
		b, err = r.Internal.Decode(b, maxMetadata)
	}
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return b, nil
}

// Verify walks all directories and compares them with the header. It calls fault for each defect
// and continues, and returns the number of addressed tiles. It checks ctx before each directory.
// The error is the cause of ctx or a read error.
func (r *Reader) Verify(ctx context.Context, fault func(string)) (tiles uint64, err error) {
	w := walker{r: r, fault: fault}
	if err := w.directory(ctx, r.root, "root directory", maxID, 0); err != nil {
		return 0, err
	}
	for i, of := range []string{"addressed tiles", "tile entries", "tile contents"} {
		header := [...]uint64{r.Addressed, r.Entries, r.Contents}[i]
		found := [...]uint64{w.addressed, w.entries, w.contents}[i]
		if header != 0 && header != found && !w.broken && (i < 2 || r.Clustered && !w.mixed) {
			fault(fmt.Sprintf("header: %d %s, the directories have %d", header, of, found))
		}
	}
	return w.addressed, nil
}

// walker visits directories depth first. The ids of a leaf lie in the span of its entry, and spans
// of a directory do not overlap. So a leaf is visited twice only in a cycle, which maxDepth ends.
type walker struct {
	r                            *Reader
	fault                        func(string)
	broken                       bool // a part was not visited, so the counts are incomplete
	addressed, entries, contents uint64
	end                          uint64 // of the tile data seen so far in a clustered archive
	mixed                        bool   // the archive claims to be clustered but is not
}

func (w *walker) directory(ctx context.Context, d directory, name string, limit uint64, depth int) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, e := range d {
		if e.run > 0 {
			w.run(e)
			continue
		}
		at := w.r.Leaves.Offset + e.offset
		leaf, err := directory(nil), unfit("leaf directory at %d: more than %d deep", at, maxDepth)
		if depth < maxDepth {
			leaf, err = w.r.leaf(ctx, d, i, limit)
		}
		if err == nil {
			_, behind := d.span(i, limit)
			err = w.directory(ctx, leaf, fmt.Sprintf("leaf directory at %d", at), behind, depth+1)
		}
		if errors.Is(err, ErrUnfit) {
			w.broken = true
			w.fault(fmt.Sprintf("%s: entry %d: %v", name, i, err))
		} else if err != nil {
			return err
		}
	}
	return nil
}

// run counts one entry. In a clustered archive its data follows all previous data, or was seen
// before.
func (w *walker) run(e entry) {
	w.entries++
	w.addressed += uint64(e.run)
	switch {
	case !w.r.Clustered || w.mixed || e.offset < w.end:
	case e.offset == w.end:
		w.end += uint64(e.length)
		w.contents++
	default:
		w.mixed = true
		w.fault(
			fmt.Sprintf("tile id %d: its data at %d is not next to what ends at %d, but the header says clustered",
				e.id, e.offset, w.end),
		)
	}
}

// Slots bounds concurrent decoding and its memory. All archives together have a slot per core, and
// one archive has at most half of them, so that another archive finds a free one.
type Slots struct{ own, all chan struct{} }

// NewSlots returns the slots of all archives. Share returns the part of one archive.
func NewSlots() Slots {
	//rawchan: a semaphore, not a queue
	return Slots{all: make(chan struct{}, runtime.GOMAXPROCS(0))}
}

// Share returns the slots of one archive.
func (s Slots) Share() Slots {
	//rawchan: a semaphore, not a queue
	s.own = make(chan struct{}, max(1, cap(s.all)/2))
	return s
}

// Take waits for a slot until ctx ends. The caller must call release, unless Take returns an error,
// which is the cause of ctx.
func (s Slots) Take(ctx context.Context) (release func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case s.own <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	select {
	case s.all <- struct{}{}:
		return func() { <-s.all; <-s.own }, nil
	case <-ctx.Done():
		<-s.own
		return nil, context.Cause(ctx)
	}
}
