package pmtiles

import (
	"encoding/binary"
	"math/bits"
	"sort"
)

// maxID is one more than the last tile id of zoom level 31.
const maxID = (1<<64 - 1) / 3

// TileID returns the position of a tile on the Hilbert curves of all zoom levels in sequence. z is
// at most 31, x and y are below 2^z.
func TileID(z uint8, x, y uint32) uint64 {
	id := uint64(1<<(2*z)-1) / 3 // the number of tiles of lower zoom levels
	for s := uint32(1) << z >> 1; s > 0; s >>= 1 {
		right, low := bits.OnesCount32(x&s), bits.OnesCount32(y&s)
		id += uint64(s) * uint64(s) * uint64((3*right)^low)
		if low == 0 { // rotate the quadrant so that the curve continues in its neighbours
			if right == 1 {
				x, y = s-1-x, s-1-y
			}
			x, y = y, x
		}
	}
	return id
}

// entry locates the tiles of a run of ids. If run is 0, it locates a leaf directory for ids from
// id.
type entry struct {
	id, offset  uint64 // offset within the tile data or the leaf directories
	run, length uint32
}

// entryBytes is the size of an entry in memory.
const entryBytes = 24

// directory is a valid, decoded directory: ids ascend, runs do not overlap, and every entry lies
// within the file. A tile may have no length.
type directory []entry

// span returns the ids of entry i: up to the next entry, or up to limit.
func (d directory) span(i int, limit uint64) (first, behind uint64) {
	if i+1 < len(d) {
		limit = d[i+1].id
	}
	return d[i].id, limit
}

// find returns the entry for id: the last one with an id not larger, if it is a leaf or its run
// contains id.
func (d directory) find(id uint64) (i int, ok bool) {
	i = sort.Search(len(d), func(i int) bool { return d[i].id > id }) - 1
	return i, i >= 0 && (d[i].run == 0 || id-d[i].id < uint64(d[i].run))
}

// inside returns an error unless the ids of a leaf directory lie in the span of its entry.
func (d directory) inside(first, behind uint64) error {
	n := len(d)
	if n == 0 || d[0].id < first || d[n-1].id+uint64(max(d[n-1].run, 1)) > behind {
		return unfit("its ids are not inside %d to %d", first, behind)
	}
	return nil
}

// parseDirectory parses a decoded directory of at most most entries. They point to tiles and
// leaves, for which the file has so many bytes. It accepts an empty one.
func parseDirectory(b []byte, most, tiles, leaves uint64) (directory, error) {
	all := len(b)
	fault := false
	number := func(most uint64) uint64 {
		v, n := binary.Uvarint(b)
		fault = fault || n <= 0 || v > most
		b = b[max(n, 0):]
		return v
	}
	n := number(uint64(all) / 4) // an entry has four numbers
	if fault {
		return nil, unfit("directory: %d entries in %d bytes", n, all)
	}
	if n > most {
		return nil, unfit("directory: %d entries, at most %d", n, most)
	}
	d, last := make(directory, n), uint64(0)
	for i := range d {
		step := number(maxID - 1 - last)
		fault = fault || (i > 0 && step == 0)
		last += step
		d[i].id = last
	}
	for i := range d {
		d[i].run = uint32(number(1<<32 - 1))
	}
	for i := range d {
		d[i].length = uint32(number(1<<32 - 1))
	}
	// The stored number is the offset plus one; 0 means directly after the previous entry. If that
	// sum wraps, the previous entry exceeds its section and is refused.
	for i := range d {
		switch v := number(1<<64 - 1); {
		case v > 0:
			d[i].offset = v - 1
		case i > 0:
			d[i].offset = d[i-1].offset + uint64(d[i-1].length)
		default:
			fault = true
		}
	}
	if fault || len(b) > 0 {
		return nil, unfit(
			"directory: %d entries in %d bytes: a number is missing, too many or too large, or ids do not rise", n, all)
	}
	return d, d.check(tiles, leaves)
}

func (d directory) check(tiles, leaves uint64) error {
	for i, e := range d {
		first, behind := d.span(i, maxID)
		in, least, most := tiles, uint32(0), uint32(1<<32-1)
		if e.run == 0 {
			in, least, most = leaves, 1, maxDirectory
		}
		if uint64(e.run) > behind-first {
			return unfit("entry %d: a run of %d tiles from id %d reaches past %d", i, e.run, first, behind)
		}
		if e.length < least || e.length > most {
			return unfit("entry %d: a leaf directory of %d bytes, at most %d", i, e.length, most)
		}
		if e.length > 0 && !(Section{Length: in}).holds(e.offset, uint64(e.length)) {
			return unfit("entry %d: %d bytes at %d, the file has %d", i, e.length, e.offset, in)
		}
	}
	return nil
}
