package pmtiles

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
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
	maxTile      = 8 << 20  // as stored
	maxZoom      = 31
)

// Compression is the compression of a part of an archive, named as in Content-Encoding.
type Compression string

// The compressions.
const (
	None    Compression = ""
	Gzip    Compression = "gzip"
	Brotli  Compression = "br"
	Zstd    Compression = "zstd"
	Unknown Compression = "unknown"
)

var (
	compressions = [...]Compression{Unknown, None, Gzip, Brotli, Zstd}
	tileTypes    = [...]string{"", "mvt", "png", "jpg", "webp", "avif"}
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
	Internal, TileCompression     Compression
	TileType                      string // the usual extension, or "" if unknown
	MinZoom, MaxZoom              uint8
	Bounds                        [4]float64 // west, south, east, north in degrees
	Center                        [3]float64 // longitude, latitude, zoom
}

// parseHeader parses the header of an archive of size bytes and checks every section against size.
func parseHeader(b []byte, size uint64) (h Header, err error) {
	if string(b[:7]) != "PMTiles" || b[7] != 3 {
		return h, unfit("header: the file does not begin as PMTiles of version 3")
	}
	if int(b[97]) >= len(compressions) || int(b[98]) >= len(compressions) {
		return h, unfit("header: compressions %d and %d, there are %d", b[97], b[98], len(compressions))
	}
	u64 := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	degrees := func(at int) float64 { return float64(int32(binary.LittleEndian.Uint32(b[at:]))) / 1e7 }
	section := func(at int) Section { return Section{u64(at), u64(at + 8)} }
	h = Header{
		Root:            section(8),
		Metadata:        section(24),
		Leaves:          section(40),
		Tiles:           section(56),
		Addressed:       u64(72),
		Entries:         u64(80),
		Contents:        u64(88),
		Clustered:       b[96] == 1,
		Internal:        compressions[b[97]],
		TileCompression: compressions[b[98]],
		MinZoom:         b[100],
		MaxZoom:         b[101],
		Bounds: [4]float64{
			degrees(102),
			degrees(106),
			degrees(110),
			degrees(114),
		},
		Center: [3]float64{degrees(119), degrees(123), float64(b[118])},
	}
	if int(b[99]) < len(tileTypes) {
		h.TileType = tileTypes[b[99]]
	}
	return h, h.check(size)
}

func (h Header) check(size uint64) error {
	for i, at := range []Section{h.Root, h.Metadata, h.Leaves, h.Tiles} {
		name := [...]string{"root directory", "metadata", "leaf directories", "tile data"}[i]
		most := [...]uint64{maxRoot, maxMetadata, size, size}[i]
		if !(Section{Length: size}).holds(at.Offset, at.Length) || at.Length > most {
			return unfit("header: %s of %d bytes at %d, at most %d in a file of %d", name, at.Length, at.Offset, most,
				size)
		}
	}
	switch {
	case h.Root.Length == 0 || h.Root.Offset < headerSize || h.Root.Offset+h.Root.Length > rootEnd:
		return unfit("header: root directory of %d bytes at %d is not between the header and %d", h.Root.Length,
			h.Root.Offset, rootEnd)
	case h.MinZoom > h.MaxZoom || h.MaxZoom > maxZoom:
		return unfit("header: zoom levels %d to %d, they end at %d", h.MinZoom, h.MaxZoom, maxZoom)
	case h.Internal == Brotli || h.Internal == Unknown:
		return unfit("header: directories with compression %q; rewrite the file with gzip", h.Internal)
	}
	return nil
}

// Decode decompresses b to at most limit bytes. It supports gzip, zstd and none.
func (c Compression) Decode(b []byte, limit int) (out []byte, err error) {
	var z io.Reader = bytes.NewReader(b)
	switch c {
	case None:
	case Gzip:
		z, err = gzip.NewReader(z)
	case Zstd: // with a concurrency of one the decoder starts no goroutine and needs no Close
		z, err = zstd.NewReader(z, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxMemory(maxDirectory))
	default:
		err = errors.New("there is no decoder")
	}
	if err == nil {
		out, err = io.ReadAll(io.LimitReader(z, int64(limit)+1))
	}
	if err == nil && len(out) > limit {
		err = fmt.Errorf("more than %d bytes", limit)
	}
	if err != nil {
		return nil, unfit("decoding of %q: %v", c, err)
	}
	return out, nil
}
