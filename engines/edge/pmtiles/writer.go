package pmtiles

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/klauspost/compress/gzip"

	"ronbox/engines/edge/tile"
)

// Wanted selects tiles of an archive.
type Wanted struct {
	Spans  []Span     // sorted
	Most   int        // entries of directories
	Bounds [4]float64 // west, south, east, north in degrees; west above east crosses the antimeridian
}

// Read reads sections of an archive and calls each with the bytes of one after the other, which
// are valid during the call.
type Read func(ctx context.Context, sections []Section, each func([]byte) error) error

// ManyError is returned for a selection of too many tiles. Those of the levels up to Zoom are few
// enough; -1: those of no level.
type ManyError struct{ Zoom int }

func (e *ManyError) Error() string {
	return fmt.Sprintf("too many tiles: those of the levels up to %d are few enough", e.Zoom)
}

// ErrNoTiles is returned for a selection without a tile.
var ErrNoTiles = errors.New("the archive has none of these tiles")

// Part is an archive that has some tiles of another one, without their bytes.
type Part struct {
	Head   []byte    // header, directories and metadata
	Ranges []Section // of the other archive: the tiles that follow Head, in this order
	Size   int64     // of the whole, in bytes
	Tiles  uint64    // addressed

	MinZoom, MaxZoom uint8 // of the tiles
}

// Part selects tiles. It reads the leaves that have wanted tiles, and the metadata, with read. It
// returns ErrNoTiles, a *ManyError, an error that matches ErrUnfit, or one of read.
func (r *Reader) Part(ctx context.Context, w Wanted, read Read) (*Part, error) {
	s := selection{r: r, w: w, read: read}
	all, err := s.entries(ctx)
	if err != nil {
		return nil, err
	}
	last := all[len(all)-1]
	h := r.Header
	h.MinZoom, h.MaxZoom = zoomOf(all[0].id), zoomOf(last.id+uint64(last.run)-1)
	h.Bounds, h.Center = within(h, w.Bounds)
	h.Addressed, h.Entries, h.Internal = 0, uint64(len(all)), tile.Gzip
	for _, e := range all {
		h.Addressed += uint64(e.run)
	}
	ranges := r.arrange(all, &h)
	meta, err := s.metadata(ctx)
	if err != nil {
		return nil, err
	}
	head := head(h, all, meta)
	return &Part{
		Head:    head,
		Ranges:  ranges,
		Size:    int64(len(head)) + int64(h.Tiles.Length),
		Tiles:   h.Addressed,
		MinZoom: h.MinZoom,
		MaxZoom: h.MaxZoom,
	}, nil
}

// selection collects the entries of wanted tiles.
type selection struct {
	r    *Reader
	w    Wanted
	read Read
	all  []entry // their offsets are those of r
	got  uint64  // bytes of leaves that were read
}

// entries returns the entries of all wanted tiles, by id. It reads one level of leaves after the
// other.
func (s *selection) entries(ctx context.Context) ([]entry, error) {
	leaves := []leafAt{}
	err := s.choose(s.r.root, maxID, &leaves)
	for depth := 0; err == nil && len(leaves) > 0; depth++ {
		if depth == maxDepth {
			return nil, unfit("more than %d leaf directories deep", maxDepth)
		}
		leaves, err = s.descend(ctx, leaves)
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.all, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	if len(s.all) == 0 {
		return nil, ErrNoTiles
	}
	return s.all, nil
}

// leafAt is a leaf directory with the ids that it may have.
type leafAt struct {
	Section
	ids Span
}

// descend chooses from leaves, and returns the leaves that these point to.
func (s *selection) descend(ctx context.Context, leaves []leafAt) (next []leafAt, err error) {
	var all []Section
	for _, l := range leaves {
		all = append(all, l.Section)
	}
	i := 0
	err = s.read(ctx, all, func(b []byte) error {
		l := leaves[i]
		i++
		if s.got += l.Length; s.got > uint64(s.w.Most)*64+maxDirectory {
			return unfit("the leaf directories of %d tiles have more than %d bytes", len(s.all), s.got)
		}
		b, err := s.r.decode(b, maxDirectory)
		if err != nil {
			return err
		}
		d, err := parseDirectory(b, maxEntries, s.r.size-s.r.Tiles.Offset, s.r.size-s.r.Leaves.Offset)
		if err == nil {
			err = d.inside(l.ids.First, l.ids.End)
		}
		if err != nil {
			return fmt.Errorf("leaf directory at %d: %w", l.Offset, err)
		}
		return s.choose(d, l.ids.End, &next)
	})
	return next, err
}

// choose adds the entries of d that have wanted tiles, and to leaves those of leaf directories.
func (s *selection) choose(d directory, limit uint64, leaves *[]leafAt) error {
	spans := s.w.Spans
	for i, e := range d {
		first, end := d.span(i, limit)
		if e.run > 0 {
			end = e.id + uint64(e.run)
		}
		for len(spans) > 0 && spans[0].End <= first {
			spans = spans[1:]
		}
		for _, span := range spans {
			if span.First >= end {
				break
			}
			if e.run == 0 {
				at := Section{s.r.Leaves.Offset + e.offset, uint64(e.length)}
				*leaves = append(*leaves, leafAt{at, Span{first, end}})
				break
			}
			s.add(e, max(first, span.First), min(end, span.End))
		}
		if len(s.all) > s.w.Most {
			return &ManyError{Zoom: int(zoomOf(e.id)) - 1}
		}
		if len(*leaves) > s.w.Most+maxInRoot {
			return unfit("more than %d leaf directories", len(*leaves))
		}
	}
	return nil
}

// add adds the tiles of e from first up to end. A tile without bytes is not served, so it is left
// out.
func (s *selection) add(e entry, first, end uint64) {
	if e.length == 0 {
		return
	}
	if n := len(s.all); n > 0 {
		last := &s.all[n-1]
		if last.offset == e.offset && last.length == e.length && last.id+uint64(last.run) == first &&
			end-last.id <= math.MaxUint32 {
			last.run = uint32(end - last.id)
			return
		}
	}
	s.all = append(s.all, entry{id: first, offset: e.offset, run: uint32(end - first), length: e.length})
}

// metadata returns the metadata of the archive, decoded. Metadata that do not decode are left out.
func (s *selection) metadata(ctx context.Context) (meta []byte, err error) {
	at := s.r.Metadata
	if at.Length == 0 || at.Length > maxMetadata {
		return nil, nil
	}
	err = s.read(ctx, []Section{at}, func(b []byte) error {
		meta, _ = s.r.decode(b, maxMetadata) // nil after an error
		return nil
	})
	return meta, err
}

// within returns the bounds of a part and a center inside of them.
func within(h Header, asked [4]float64) (bounds [4]float64, center [3]float64) {
	bounds = tile.Extent(asked)
	if of := h.Bounds; of != ([4]float64{}) && bounds != ([4]float64{}) {
		bounds = tile.Extent([4]float64{
			max(bounds[0], of[0]), max(bounds[1], of[1]), min(bounds[2], of[2]), min(bounds[3], of[3])})
	}
	if bounds == ([4]float64{}) {
		return h.Bounds, h.Center
	}
	center = h.Center
	if lon, lat := center[0], center[1]; lon < bounds[0] || lon > bounds[2] || lat < bounds[1] || lat > bounds[3] {
		center[0], center[1] = (bounds[0]+bounds[2])/2, (bounds[1]+bounds[3])/2
	}
	center[2] = max(float64(h.MinZoom), min(float64(h.MaxZoom), center[2]))
	return bounds, center
}

// arrange gives the entries, which are sorted by id, offsets in the part, counts the contents in h,
// and returns where they are. The contents follow in the order of ids; those of an archive whose
// tiles are not in that order follow as they are there, so that they are read with few requests.
func (r *Reader) arrange(all []entry, h *Header) (ranges []Section) {
	order := make([]uint32, len(all))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(i, j uint32) int {
		a, b := all[i], all[j]
		return cmp.Or(cmp.Compare(a.offset, b.offset), cmp.Compare(a.length, b.length), cmp.Compare(i, j))
	})
	same := make([]uint32, len(all)) // the first entry with the content of each entry
	for k, i := range order {
		same[i] = i
		if k > 0 {
			if before := order[k-1]; all[before].offset == all[i].offset && all[before].length == all[i].length {
				same[i] = same[before]
			}
		}
	}
	if h.Clustered {
		slices.Sort(order)
	}
	h.Tiles.Length, h.Contents = 0, 0
	to := make([]uint64, len(all))
	for _, i := range order {
		if same[i] != i {
			to[i] = to[same[i]]
			continue
		}
		at := Section{r.Tiles.Offset + all[i].offset, uint64(all[i].length)}
		to[i] = h.Tiles.Length
		h.Tiles.Length += at.Length
		h.Contents++
		if n := len(ranges); n > 0 && ranges[n-1].Offset+ranges[n-1].Length == at.Offset {
			ranges[n-1].Length += at.Length
			continue
		}
		ranges = append(ranges, at)
	}
	for i := range all {
		all[i].offset = to[i]
	}
	return ranges
}

// head returns all of an archive before its tiles.
func head(h Header, all directory, meta []byte) []byte {
	root, leaves := all.encode()
	if len(meta) > 0 {
		meta = squeezed(meta)
	}
	h.Root = Section{headerSize, uint64(len(root))}
	h.Metadata = Section{h.Root.Offset + h.Root.Length, uint64(len(meta))}
	h.Leaves = Section{h.Metadata.Offset + h.Metadata.Length, uint64(len(leaves))}
	h.Tiles.Offset = h.Leaves.Offset + h.Leaves.Length
	return bytes.Join([][]byte{h.encode(), root, meta, leaves}, nil)
}

// leafEntries is the number of entries of a leaf, unless that makes too many leaves.
const leafEntries = 4096

// encode returns the root directory and the leaves of all entries.
func (d directory) encode() (root, leaves []byte) {
	const few = 1 << 14 // as other writers
	if len(d) < few {
		if root = squeezed(d.bytes()); len(root) <= maxRoot {
			return root, nil
		}
	}
	for size := leafEntries; ; size *= 2 {
		var top directory
		leaves = leaves[:0]
		for leaf := range slices.Chunk(d, size) {
			b := squeezed(leaf.bytes())
			top = append(top, entry{id: leaf[0].id, offset: uint64(len(leaves)), length: uint32(len(b))})
			leaves = append(leaves, b...)
		}
		if root = squeezed(top.bytes()); len(root) <= maxRoot {
			return root, leaves
		}
	}
}

// bytes returns a directory as it is stored, not compressed.
func (d directory) bytes() []byte {
	b, last := binary.AppendUvarint(nil, uint64(len(d))), uint64(0)
	for _, e := range d {
		b = binary.AppendUvarint(b, e.id-last)
		last = e.id
	}
	for _, e := range d {
		b = binary.AppendUvarint(b, uint64(e.run))
	}
	for _, e := range d {
		b = binary.AppendUvarint(b, uint64(e.length))
	}
	for i, e := range d {
		if i > 0 && e.offset == d[i-1].offset+uint64(d[i-1].length) {
			b = append(b, 0)
			continue
		}
		b = binary.AppendUvarint(b, e.offset+1)
	}
	return b
}

func squeezed(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b) // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

// encode returns a header as it is stored.
func (h Header) encode() []byte {
	b := append(make([]byte, 0, headerSize), "PMTiles\x03"...)
	u64 := func(all ...uint64) {
		for _, v := range all {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
	}
	degrees := func(all ...float64) {
		for _, v := range all {
			b = binary.LittleEndian.AppendUint32(b, uint32(int32(math.Round(v*1e7))))
		}
	}
	for _, s := range []Section{h.Root, h.Metadata, h.Leaves, h.Tiles} {
		u64(s.Offset, s.Length)
	}
	u64(h.Addressed, h.Entries, h.Contents)
	clustered := byte(0)
	if h.Clustered {
		clustered = 1
	}
	b = append(b, clustered, code(codings[:], h.Internal), code(codings[:], h.TileCoding),
		code(tileTypes[:], h.TileType), h.MinZoom, h.MaxZoom)
	degrees(h.Bounds[:]...)
	b = append(b, byte(h.Center[2]))
	degrees(h.Center[:2]...)
	return b
}

// code returns the number of a coding or of a type of tiles, 0 if it has none.
func code[T comparable](all []T, of T) byte { return byte(max(0, slices.Index(all, of))) }
