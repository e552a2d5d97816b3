package pmtiles

import (
	"encoding/binary"
	"math/bits"
	"sort"
)

// maxID is behind the last tile id: the tiles of zoom levels 0 to 31.
const maxID = (1<<64 - 1) / 3

// TileID is the place of a tile on the Hilbert curves of all zoom levels, one behind the other. z is at most 31, x and y are below 2^z.
func TileID(z uint8, x, y uint32) uint64 {
	id := uint64(1<<(2*z)-1) / 3 // the tiles of the levels above
	for s := uint32(1) << z >> 1; s > 0; s >>= 1 {
		right, low := bits.OnesCount32(x&s), bits.OnesCount32(y&s)
		id += uint64(s) * uint64(s) * uint64((3*right)^low)
		if low == 0 { // turn the quadrant, so that the curve enters and leaves it where its neighbours do
			if right == 1 {
				x, y = s-1-x, s-1-y
			}
			x, y = y, x
		}
	}
	return id
}

// entry says where the tiles of a run of ids lie, or with run 0 a leaf directory for the ids from id on.
type entry struct {
	id, offset  uint64 // offset is inside the tile data, or the leaf directories
	run, length uint32
}

// entryBytes is what an entry takes in memory.
const entryBytes = 24

// directory is a sound, decoded directory: ids rise, runs do not overlap, every entry has a length and lies inside its section.
type directory []entry

// span is the ids that entry i answers for: up to the entry behind it, or to limit.
func (d directory) span(i int, limit uint64) (first, behind uint64) {
	if i+1 < len(d) {
		limit = d[i+1].id
	}
	return d[i].id, limit
}

// find returns the entry that answers for id: the last that does not begin behind it, if that is a leaf or its run reaches id.
func (d directory) find(id uint64) (i int, ok bool) {
	i = sort.Search(len(d), func(i int) bool { return d[i].id > id }) - 1
	return i, i >= 0 && (d[i].run == 0 || id-d[i].id < uint64(d[i].run))
}

// parseDirectory reads a decoded directory of at most most entries, which point into tiles and leaves. An empty one is
// not an error here.
func parseDirectory(b []byte, most uint64, tiles, leaves Section) (directory, error) {
	all := len(b)
	fault := false
	number := func(most uint64) uint64 {
		v, n := binary.Uvarint(b)
		fault = fault || n <= 0 || v > most
		b = b[max(n, 0):]
		return v
	}
	n := number(uint64(all) / 4) // an entry takes four numbers
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
	for i := range d { // plus one; 0 stands for the place behind the entry before. A sum that wraps is refused with the offset before it
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
		return nil, unfit("directory: %d entries in %d bytes: a number is missing, too many or too large, or ids do not rise", n, all)
	}
	return d, d.check(tiles, leaves)
}

func (d directory) check(tiles, leaves Section) error {
	for i, e := range d {
		first, behind := d.span(i, maxID)
		in, most := tiles, uint64(maxTile)
		if e.run == 0 {
			in, most = leaves, maxDirectory
		}
		if uint64(e.run) > behind-first {
			return unfit("entry %d: a run of %d tiles from id %d reaches past %d", i, e.run, first, behind)
		}
		if e.length == 0 || uint64(e.length) > most || !in.holds(e.offset, uint64(e.length)) {
			return unfit("entry %d: %d bytes at %d, at most %d in a section of %d", i, e.length, e.offset, most, in.Length)
		}
	}
	return nil
}
