package pmtiles

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ronbox/engines/edge/tile"
)

// ErrUnfit is returned for an archive that is invalid or of an unsupported kind. Every error
// matches it except read errors.
var ErrUnfit = errors.New("pmtiles: invalid archive")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnfit, fmt.Sprintf(format, args...))
}

// Bounds of reads, in bytes.
const (
	headerSize   = 127
	rootEnd      = 16 << 10 // by the format, the root directory ends before it
	maxRoot      = 16257    // so the root directory has at most this size
	maxDirectory = 16 << 20 // stored and decoded
	maxEntries   = 1 << 20  // of a directory, 24 MiB in memory; writers make fewer than 65536
	maxInRoot    = 1 << 16  // of the root, which stays in memory; writers make fewer than 16384
	maxMetadata  = 10 << 20 // stored and decoded
	maxZoom      = 31
)

var (
	codings   = [...]tile.Coding{tile.Unknown, tile.None, tile.Gzip, tile.Brotli, tile.Zstd}
	tileTypes = [...]tile.Format{"", tile.MVT, tile.PNG, tile.JPG, tile.WebP, tile.AVIF, tile.MLT}
)

// Section is a part of the archive.
type Section struct{ Offset, Length uint64 }

// holds reports whether length bytes at offset lie within a section of this length.
func (s Section) holds(offset, length uint64) bool {
	return length <= s.Length && offset <= s.Length-length
}

// Header is the fixed part of an archive.
type Header struct {
	Root, Metadata, Leaves, Tiles Section
	Addressed, Entries, Contents  uint64 // counts; 0 if unknown
	Clustered                     bool   // the tile data is in the order of tile ids
	Internal, TileCoding          tile.Coding
	TileType                      tile.Format // "" if unknown
	MinZoom, MaxZoom              uint8
	Bounds                        [4]float64 // west, south, east, north in degrees; zero if unknown
	Center                        [3]float64 // longitude, latitude, zoom
}

// parseHeader parses the header of an archive of size bytes. Every section ends with the file at
// the latest: torn describes those that leave it.
func parseHeader(b []byte, size uint64) (h Header, torn []string, err error) {
	if string(b[:7]) != "PMTiles" || b[7] != 3 {
		return h, nil, unfit("header: the file does not begin as PMTiles of version 3")
	}
	if int(b[97]) >= len(codings) || int(b[98]) >= len(codings) {
		return h, nil, unfit("header: compressions %d and %d, there are %d", b[97], b[98], len(codings))
	}
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	degrees := func(at int) float64 { return float64(int32(binary.LittleEndian.Uint32(b[at:]))) / 1e7 }
	section := func(at int, name string) Section {
		s := Section{u64(at), u64(at + 8)}
		if in := s.within(size); in != s {
			torn = append(torn, fmt.Sprintf("header: %s of %d bytes at %d, in a file of %d", name, s.Length,
				s.Offset, size))
			return in
		}
		return s
	}
	h = Header{
		Root:       section(8, "root directory"),
		Metadata:   section(24, "metadata"),
		Leaves:     section(40, "leaf directories"),
		Tiles:      section(56, "tile data"),
		Addressed:  u64(72),
		Entries:    u64(80),
		Contents:   u64(88),
		Clustered:  b[96] == 1,
		Internal:   codings[b[97]],
		TileCoding: codings[b[98]],
		MinZoom:    b[100],
		MaxZoom:    b[101],
		Bounds:     tile.Extent([4]float64{degrees(102), degrees(106), degrees(110), degrees(114)}),
		Center:     [3]float64{degrees(119), degrees(123), float64(b[118])},
	}
	if int(b[99]) < len(tileTypes) {
		h.TileType = tileTypes[b[99]]
	}
	return h, torn, h.check()
}

// within returns the part of s that lies in a file of size bytes.
func (s Section) within(size uint64) Section {
	s.Offset = min(s.Offset, size)
	s.Length = min(s.Length, size-s.Offset)
	return s
}

func (h Header) check() error {
	switch root := h.Root; {
	case root.Length == 0 || root.Length > maxRoot || root.Offset < headerSize || root.Offset+root.Length > rootEnd:
		return unfit("header: root directory of %d bytes at %d is not between the header and %d", root.Length,
			root.Offset, rootEnd)
	case h.MinZoom > h.MaxZoom || h.MaxZoom > maxZoom:
		return unfit("header: zoom levels %d to %d, they end at %d", h.MinZoom, h.MaxZoom, maxZoom)
	case h.Internal == tile.Brotli:
		return unfit("header: directories with compression %q; rewrite the file with gzip", h.Internal)
	}
	return nil
}
