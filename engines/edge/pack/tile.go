package pack

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"math"

	"ronbox/appliance/b3"
	"ronbox/appliance/cache"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pmtiles"
)

// Format is the format of a tile, named by its usual extension. The zero Format is unknown.
type Format string

// FormatMVT is the format of vector tiles.
const FormatMVT Format = "mvt"

var contentTypes = map[Format]string{
	FormatMVT: "application/x-protobuf",
	"png":     "image/png",
	"jpg":     "image/jpeg",
	"webp":    "image/webp",
	"avif":    "image/avif",
}

// ContentType returns the media type of tiles of the format.
func (f Format) ContentType() string { return cmp.Or(contentTypes[f], "application/octet-stream") }

// Matches reports whether ext, without its dot, names the format. The empty ext matches every
// format, and the unknown format matches every ext.
func (f Format) Matches(ext string) bool { return f == "" || ext == "" || formatOf(ext) == f }

// formatOf returns the format that an extension names.
func formatOf(ext string) Format {
	return cmp.Or(map[string]Format{"pbf": FormatMVT, "jpeg": "jpg"}[ext], Format(ext))
}

// Coding is a content coding as in Content-Encoding.
type Coding = pmtiles.Compression

// The codings in which a tile may be stored.
const (
	Identity = pmtiles.None
	Gzip     = pmtiles.Gzip
	Zstd     = pmtiles.Zstd
	Brotli   = pmtiles.Brotli
)

// TileRef names a tile in the XYZ scheme: row 0 is in the north.
type TileRef struct {
	Pack string
	Z    uint8
	X, Y uint32
}

// Valid reports whether the zoom level is at most 31 and has such a tile.
func (r TileRef) Valid() bool {
	return r.Z <= 31 && uint64(r.X)>>r.Z == 0 && uint64(r.Y)>>r.Z == 0
}

// Tile is one tile in the coding in which it is sent.
type Tile struct {
	Bytes   []byte // shared; must not be modified
	Coding  Coding
	Format  Format
	Digest  b3.Digest // of Bytes
	Version string    // of its pack, as in Info; "" if the tile is not from Set.Tile
	fault   error     // of a tile that does not decode; all other fields are zero
}

// ETag returns the strong entity tag of the tile in its coding.
func (t Tile) ETag() string { return `"` + t.Digest.String() + `"` }

const (
	maxDecoded = 10 << 20 // bytes of a tile that is decoded for a client
	maxCached  = 1 << 20  // bytes of a tile that is cached
)

// memory caches tiles by their keys.
type memory = cache.Cache[string, Tile]

// key returns the cache key of a tile. form is 0 for the stored bytes and 1 for the decoded ones.
func (p *Pack) key(at TileRef, form byte) string {
	b := append(make([]byte, 0, 32), form, at.Z)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(at.X)), uint64(at.Y))
	return string(binary.AppendUvarint(b, p.serial))
}

// kept returns a form of a tile from m, or creates and caches it. It returns the fault of a tile
// that does not decode.
func (p *Pack) kept(m *memory, at TileRef, form byte, create func() (Tile, error)) (Tile, error) {
	key := p.key(at, form)
	t, ok := m.Get(key)
	if !ok {
		var err error
		if t, err = create(); err != nil {
			return Tile{}, err
		}
		if len(t.Bytes) <= maxCached {
			m.Set(key, t, int64(len(t.Bytes))+256)
		}
	}
	return t, t.fault
}

// tile reads a tile in a coding that accept admits. It returns ErrBadTile, ErrOutside, ErrNoTile,
// ErrCoding, a Error if the file cannot be read, or the cause of ctx.
func (p *Pack) tile(ctx context.Context, at TileRef, accept func(Coding) bool, m *memory) (Tile, error) {
	switch {
	case !at.Valid():
		return Tile{}, ErrBadTile
	case at.Z < p.info.MinZoom || at.Z > p.info.MaxZoom:
		return Tile{}, ErrOutside
	}
	t, err := p.kept(m, at, 0, func() (Tile, error) { return p.stored(ctx, at) })
	if err != nil || t.Coding == Identity || accept(t.Coding) {
		return t, err
	}
	return p.kept(m, at, 1, func() (Tile, error) { return p.decoded(ctx, m, at, t) })
}

// decoded decodes the stored tile t in a slot. A tile that does not decode is cached with its
// fault, because decoding it again would cost the time of up to maxDecoded bytes and fail again.
func (p *Pack) decoded(ctx context.Context, m *memory, at TileRef, t Tile) (Tile, error) {
	if t.Coding != Gzip && t.Coding != Zstd {
		return Tile{}, ErrCoding
	}
	release, err := p.slots.Take(ctx)
	if err != nil {
		return Tile{}, err
	}
	defer release()
	if done, ok := m.Get(p.key(at, 1)); ok { // another caller decoded it during the wait
		return done, nil
	}
	b, err := t.Coding.Decode(t.Bytes, maxDecoded)
	if err != nil {
		return Tile{fault: p.failed(err)}, nil
	}
	return Tile{Bytes: b, Format: t.Format, Digest: b3.Sum(b)}, nil
}

// stored reads a tile as it is in the file.
func (p *Pack) stored(ctx context.Context, at TileRef) (Tile, error) {
	b, err := p.archive.Tile(ctx, at.Z, at.X, at.Y)
	switch {
	case err != nil:
		return Tile{}, p.fault(ctx, err)
	case b == nil && p.covers(at):
		return Tile{}, ErrNoTile
	case b == nil:
		return Tile{}, ErrOutside
	}
	t := Tile{Bytes: b, Coding: p.coding, Format: p.info.Format, Digest: b3.Sum(b)}
	if t.Coding == pmtiles.Unknown {
		t.Coding = Identity
		if bytes.HasPrefix(b, []byte{0x1f, 0x8b}) {
			t.Coding = Gzip
		} else if bytes.HasPrefix(b, []byte{0x28, 0xb5, 0x2f, 0xfd}) {
			t.Coding = Zstd
		}
	}
	return t, nil
}

// fault returns err as an error of the pack, or the cause of ctx.
func (p *Pack) fault(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return p.failed(err)
}

// failed returns err as an error of the pack.
func (p *Pack) failed(err error) error {
	return &Error{ID: p.info.ID, State: asset.PackFailed, Reason: err.Error()}
}

// covers reports whether a tile and the bounds of the pack share more than an edge. Empty bounds
// cover every tile.
func (p *Pack) covers(at TileRef) bool {
	west, south, east, north := p.info.Bounds[0], p.info.Bounds[1], p.info.Bounds[2], p.info.Bounds[3]
	x, y, n := float64(at.X), float64(at.Y), math.Ldexp(1, int(at.Z))
	lon := func(x float64) float64 { return x/n*360 - 180 }
	lat := func(y float64) float64 { return math.Atan(math.Sinh(math.Pi*(1-2*y/n))) * 180 / math.Pi }
	return west >= east || south >= north || lon(x) < east && lon(x+1) > west && lat(y) > south && lat(y+1) < north
}
