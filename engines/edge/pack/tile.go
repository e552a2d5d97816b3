package pack

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"ronbox/appliance/b3"
	"ronbox/appliance/cache"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/tile"
)

// Format is the format of a tile, and Coding a content coding as in Content-Encoding.
type (
	Format = tile.Format
	Coding = tile.Coding
)

// The codings in which a tile may be stored.
const (
	Identity = tile.None
	Gzip     = tile.Gzip
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
	space   *space    // of a tile that is too large for the cache
}

// Close returns the room of the tile. It must be called after the tile was sent.
func (t Tile) Close() { t.space.shrink(0) }

// ETag returns the strong entity tag of the tile in its coding.
func (t Tile) ETag() string { return `"` + t.Digest.String() + `"` }

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

// tile reads a tile of format f in a coding that accept admits. The caller must close it. It
// returns ErrBadTile, ErrOutside, ErrNoTile, ErrCoding, ErrTooLarge, an Error if the file cannot be
// read, or the cause of ctx.
func (p *Pack) tile(ctx context.Context, at TileRef, f Format, accept func(Coding) bool, m *memory) (Tile, error) {
	switch {
	case !at.Valid():
		return Tile{}, ErrBadTile
	case at.Z < p.info.MinZoom || at.Z > p.info.MaxZoom:
		return Tile{}, ErrOutside
	}
	t, err := p.kept(m, at, 0, func() (Tile, error) { return p.stored(ctx, at, f) })
	if err != nil || t.Coding == Identity || accept(t.Coding) {
		return t, err
	}
	t.Close()
	if !t.Coding.Decodes() {
		return Tile{}, ErrCoding
	}
	return p.kept(m, at, 1, func() (Tile, error) {
		if len(t.Bytes) <= maxCached {
			d, err := p.decoded(ctx, m, at, t, maxCached)
			if err != nil || d.fault == nil || !errors.Is(d.fault, ErrTooLarge) {
				return d, err
			}
		}
		return p.large(ctx, m, at, t)
	})
}

// large decodes the stored tile t, which is too large for the cache, stored or decoded. It takes
// room for both forms and reads the tile again, because callers that keep the room of the stored
// form while they wait for more could wait for each other.
func (p *Pack) large(ctx context.Context, m *memory, at TileRef, t Tile) (Tile, error) {
	size := int64(len(t.Bytes))
	t.Bytes = nil
	space, err := p.env.room.take(ctx, size+maxDecoded)
	if err != nil {
		return Tile{}, err
	}
	t, err = p.read(ctx, at, t.Format, func(int64) error { return nil })
	if err == nil {
		t, err = p.decoded(ctx, m, at, t, maxDecoded)
	}
	if len(t.Bytes) <= maxCached { // it may be cached, and readers of the cache own no room
		space.shrink(0)
		t.space = nil
		return t, err
	}
	space.shrink(int64(len(t.Bytes)))
	t.space = space
	return t, err
}

// decoded decodes the stored tile t to at most limit bytes in a slot. A tile that does not decode
// is returned with its fault, which is cached: decoding it again would cost the time of limit bytes
// and fail again.
func (p *Pack) decoded(ctx context.Context, m *memory, at TileRef, t Tile, limit int) (Tile, error) {
	release, err := p.slots.Take(ctx)
	if err != nil {
		return Tile{}, err
	}
	defer release()
	if done, ok := m.Get(p.key(at, 1)); ok { // another caller decoded it during the wait
		return done, nil
	}
	b, err := t.Coding.Decode(t.Bytes, limit)
	switch {
	case errors.Is(err, tile.ErrTooLong):
		return Tile{fault: ErrTooLarge}, nil
	case err != nil:
		return Tile{fault: fmt.Errorf("%w: %v", ErrCoding, err)}, nil
	}
	return Tile{Bytes: b, Format: t.Format, Digest: b3.Sum(b)}, nil
}

// stored reads a tile as it is in the file, and takes room for it.
func (p *Pack) stored(ctx context.Context, at TileRef, f Format) (Tile, error) {
	var space *space
	t, err := p.read(ctx, at, f, func(size int64) (err error) {
		space, err = p.env.room.take(ctx, size)
		return err
	})
	t.space = space
	if err != nil {
		t.Close()
	}
	return t, err
}

// read reads a tile as it is in the file. Its first bytes name its coding and, if it is a picture,
// its format.
func (p *Pack) read(ctx context.Context, at TileRef, f Format, room func(int64) error) (Tile, error) {
	b, err := p.archive.Tile(ctx, at.Z, at.X, at.Y, room)
	switch {
	case errors.Is(err, tile.ErrSkipped):
		return Tile{}, ErrNoTile
	case err != nil:
		return Tile{}, p.fault(ctx, err)
	case b == nil && p.covers(at):
		return Tile{}, ErrNoTile
	case b == nil:
		return Tile{}, ErrOutside
	}
	t := Tile{Bytes: b, Coding: tile.CodingOf(b, p.declared, f), Format: f, Digest: b3.Sum(b)}
	if sniffed := tile.Sniff(b); sniffed != "" && sniffed != tile.MVT {
		t.Format = sniffed
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
