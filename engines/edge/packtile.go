package edge

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"

	"ronbox/appliance/b3"
	"ronbox/engines/cache"
	"ronbox/engines/edge/pmtiles"
)

const (
	maxDecoded = 10 << 20 // bytes of a tile that is decoded for a client
	maxCached  = 1 << 20  // bytes of a tile that is kept in memory
)

// tileMemory keeps tiles in memory, under their keys.
type tileMemory = cache.Cache[string, Tile]

// key names one form of a tile: 0 as it is stored, 1 decoded.
func (p *Pack) key(at TileRef, form byte) string {
	b := append(make([]byte, 0, 32), form, at.Z)
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(at.X)), uint64(at.Y))
	return string(binary.AppendUvarint(b, p.serial))
}

// kept takes a form of a tile from m, or else makes it and keeps it there. It returns the fault of a tile that has one.
func (p *Pack) kept(m *tileMemory, at TileRef, form byte, create func() (Tile, error)) (Tile, error) {
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

// tile reads a tile and brings it into a coding that is accepted. Errors: ErrBadTile, ErrOutside, ErrNoTile, ErrCoding; of a file that cannot be
// read, a PackError; or the cause of ctx.
func (p *Pack) tile(ctx context.Context, at TileRef, accept func(Coding) bool, m *tileMemory) (Tile, error) {
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

// decoded decodes the stored tile t in a slot. A tile that does not decode is kept as well, by its fault: decoding it again
// would fail again, and a tile that expands to any size costs the time of maxDecoded bytes.
func (p *Pack) decoded(ctx context.Context, m *tileMemory, at TileRef, t Tile) (Tile, error) {
	if t.Coding != Gzip && t.Coding != Zstd {
		return Tile{}, ErrCoding
	}
	release, err := p.slots.Take(ctx)
	if err != nil {
		return Tile{}, err
	}
	defer release()
	if done, ok := m.Get(p.key(at, 1)); ok { // decoded while this caller waited
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

// fault is err of the pack's file, or the cause of ctx.
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
	return &PackError{ID: p.info.ID, State: PackFailed, Reason: err.Error()}
}

// covers reports whether a tile and the pack's bounds have more than an edge in common. Bounds that hold nothing tell nothing.
func (p *Pack) covers(at TileRef) bool {
	west, south, east, north := p.info.Bounds[0], p.info.Bounds[1], p.info.Bounds[2], p.info.Bounds[3]
	x, y, n := float64(at.X), float64(at.Y), math.Ldexp(1, int(at.Z))
	lon := func(x float64) float64 { return x/n*360 - 180 }
	lat := func(y float64) float64 { return math.Atan(math.Sinh(math.Pi*(1-2*y/n))) * 180 / math.Pi }
	return west >= east || south >= north || lon(x) < east && lon(x+1) > west && lat(y) > south && lat(y+1) < north
}
