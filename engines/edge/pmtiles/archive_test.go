package pmtiles

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// zxy names a tile, row 0 in the north.
type zxy struct {
	Z    uint8
	X, Y uint32
}

// place is a run of tiles with the same bytes, or a leaf.
type place struct {
	ID     uint64
	Run    uint32 // 0 for a leaf
	Length uint32
	Offset uint64
}

// tiles is the content of a run.
type tiles struct {
	ID   uint64
	Run  uint32
	Data []byte
}

// archive is an archive to be written. A zero compression is written as 1, none.
type archive struct {
	Tiles              []tiles // in the order of ids
	Internal, Coding   byte    // 1 none, 2 gzip, 3 brotli, 4 zstd
	Type               byte    // 1 mvt, 2 png, …
	MinZoom, MaxZoom   byte
	Leaf               int // entries of a leaf; 0 for no leaves
	Depth              int // levels of leaves
	Metadata           string
	Bounds             [4]float64 // west, south, east, north
	Unclustered        bool
	Directory          func([]byte) []byte // changes each directory before it is compressed; may be nil
	Header             func(b []byte)      // changes the header last; may be nil
	WithoutCompression bool                // of directories, whatever the header has
}

// pack compresses b.
func pack(coding byte, b []byte) []byte {
	var out bytes.Buffer
	switch coding {
	case 2:
		z := gzip.NewWriter(&out)
		_, _ = z.Write(b)
		_ = z.Close()
	case 4:
		z, err := zstd.NewWriter(&out)
		if err != nil {
			panic(err)
		}
		_, _ = z.Write(b)
		_ = z.Close()
	default:
		return b
	}
	return out.Bytes()
}

// encode encodes a directory.
func encode(entries []place) []byte {
	b := binary.AppendUvarint(nil, uint64(len(entries)))
	last := uint64(0)
	for _, e := range entries {
		b = binary.AppendUvarint(b, e.ID-last)
		last = e.ID
	}
	for _, e := range entries {
		b = binary.AppendUvarint(b, uint64(e.Run))
	}
	for _, e := range entries {
		b = binary.AppendUvarint(b, uint64(e.Length))
	}
	for i, e := range entries {
		if i > 0 && e.Offset == entries[i-1].Offset+uint64(entries[i-1].Length) {
			b = binary.AppendUvarint(b, 0)
		} else {
			b = binary.AppendUvarint(b, e.Offset+1)
		}
	}
	return b
}

// Bytes returns the archive.
func (a archive) Bytes() []byte {
	if a.Bounds == ([4]float64{}) {
		a.Bounds = [4]float64{-180, -85, 180, 85}
	}
	a.Internal, a.Coding = max(a.Internal, 1), max(a.Coding, 1)
	var data []byte
	var entries []place
	var addressed uint64
	contents := map[string]uint64{}
	for _, t := range a.Tiles {
		at, met := contents[string(t.Data)]
		if !met {
			at = uint64(len(data))
			contents[string(t.Data)] = at
			data = append(data, t.Data...)
		}
		entries = append(entries, place{t.ID, t.Run, uint32(len(t.Data)), at})
		addressed += uint64(t.Run)
	}
	total := len(entries)
	var leaves []byte
	for level := 0; a.Leaf > 0 && level < a.Depth; level++ {
		var up []place
		for at := 0; at < len(entries); at += a.Leaf {
			part := entries[at:min(at+a.Leaf, len(entries))]
			leaf := a.directory(part)
			up = append(up, place{ID: part[0].ID, Length: uint32(len(leaf)), Offset: uint64(len(leaves))})
			leaves = append(leaves, leaf...)
		}
		entries = up
	}
	root := a.directory(entries)
	meta := pack(a.Internal, []byte(a.Metadata))
	if a.Metadata == "" {
		meta = nil
	}
	h := make([]byte, 127)
	copy(h, "PMTiles\x03")
	at := uint64(len(h))
	for i, part := range [][]byte{root, meta, leaves, data} {
		binary.LittleEndian.PutUint64(h[8+16*i:], at)
		binary.LittleEndian.PutUint64(h[16+16*i:], uint64(len(part)))
		at += uint64(len(part))
	}
	for i, n := range []uint64{addressed, uint64(total), uint64(len(contents))} {
		binary.LittleEndian.PutUint64(h[72+8*i:], n)
	}
	if !a.Unclustered {
		h[96] = 1
	}
	h[97], h[98], h[99], h[100], h[101] = a.Internal, a.Coding, a.Type, a.MinZoom, a.MaxZoom
	for i, degrees := range a.Bounds {
		binary.LittleEndian.PutUint32(h[102+4*i:], uint32(int32(degrees*1e7)))
	}
	if a.Header != nil {
		a.Header(h)
	}
	return bytes.Join([][]byte{h, root, meta, leaves, data}, nil)
}

func (a archive) directory(entries []place) []byte {
	b := encode(entries)
	if a.Directory != nil {
		b = a.Directory(b)
	}
	if a.WithoutCompression {
		return b
	}
	return pack(a.Internal, b)
}

// readArchive reads every tile of an archive with code that it does not share with Reader.
func readArchive(b []byte) (out map[zxy][]byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not an archive: %v", p)
		}
	}()
	u := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	out = map[zxy][]byte{}
	var walk func(dir []byte)
	walk = func(dir []byte) {
		r := bytes.NewReader(unpack(b[97], dir))
		number := func() uint64 {
			v, err := binary.ReadUvarint(r)
			if err != nil {
				panic(err)
			}
			return v
		}
		entries := make([]place, number())
		for i := range entries {
			entries[i].ID = number()
			if i > 0 {
				entries[i].ID += entries[i-1].ID
			}
		}
		for i := range entries {
			entries[i].Run = uint32(number())
		}
		for i := range entries {
			entries[i].Length = uint32(number())
		}
		for i := range entries {
			if v := number(); v == 0 {
				entries[i].Offset = entries[i-1].Offset + uint64(entries[i-1].Length)
			} else {
				entries[i].Offset = v - 1
			}
		}
		for _, e := range entries {
			if e.Run == 0 {
				at := u(40) + e.Offset
				walk(b[at : at+uint64(e.Length)])
				continue
			}
			at := u(56) + e.Offset
			for id := e.ID; id < e.ID+uint64(e.Run); id++ {
				out[refOf(id)] = b[at : at+uint64(e.Length)]
			}
		}
	}
	walk(b[u(8) : u(8)+u(16)])
	return out, nil
}

func unpack(coding byte, b []byte) []byte {
	switch coding {
	case 1:
		return b
	case 2:
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			panic(err)
		}
		out, err := io.ReadAll(z)
		if err != nil {
			panic(err)
		}
		return out
	case 4:
		z, err := zstd.NewReader(nil)
		if err != nil {
			panic(err)
		}
		defer z.Close()
		out, err := z.DecodeAll(b, nil)
		if err != nil {
			panic(err)
		}
		return out
	}
	panic(coding)
}

// curve is the Hilbert curve as a table: for each of its four orientations the quadrants (x + 2y)
// in their order, and the orientation within each.
var curve = [4][4]struct{ quadrant, inside int }{
	{{0, 1}, {2, 0}, {3, 0}, {1, 3}},
	{{0, 0}, {1, 1}, {3, 1}, {2, 2}},
	{{3, 3}, {1, 2}, {0, 2}, {2, 1}},
	{{3, 2}, {2, 3}, {0, 3}, {1, 0}},
}

// refOf returns the tile of an id, quadrant by quadrant from the top.
func refOf(id uint64) zxy {
	z, level := uint8(0), uint64(1)
	for id >= level {
		id -= level
		level *= 4
		z++
	}
	r, turn := zxy{Z: z}, 0
	for i := int(z) - 1; i >= 0; i-- {
		step := curve[turn][id>>(2*i)&3]
		r.X = r.X<<1 | uint32(step.quadrant&1)
		r.Y = r.Y<<1 | uint32(step.quadrant>>1)
		turn = step.inside
	}
	return r
}
