package edge

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/pmtiles"
)

// PackKind is the format of a pack.
type PackKind string

// The kinds, which are the extensions of their files too.
const (
	KindPMTiles PackKind = "pmtiles"
	KindMBTiles PackKind = "mbtiles"
)

// PackState is where a pack stands.
type PackState string

// The states of a pack. A pack that is the first under its id serves tiles while it is verifying: each read is checked by
// itself, and only the raw file waits for its digest.
const (
	PackOpening   PackState = "opening"   // its file was found and is not open yet; nothing of it is served
	PackVerifying PackState = "verifying" // its header is sound; its structure or digest is not known yet
	PackVerified  PackState = "verified"
	PackChanged   PackState = "changed" // its file was changed in place; nothing of it is served until it is verified again
	PackFailed    PackState = "failed"
	PackRemoved   PackState = "removed" // in events only
)

// PackInfo describes a pack.
type PackInfo struct {
	ID      string // from the name of its file; the whole name while that is not fit for an id
	Kind    PackKind
	State   PackState
	Fault   string    // why it failed, or why Next did
	Next    PackState // of a file that is to take its place: verifying, failed; "": there is none
	File    string    // base name
	Size    int64     // bytes
	Digest  b3.Digest // of the whole file, zero until it is known
	Version string    // the first 16 hex digits of Digest, for the v of tile URLs; empty until it is known

	MinZoom, MaxZoom uint8
	Tiles            uint64 // addressed, 0 until it is known
	Format           Format
	Bounds           [4]float64 // west, south, east, north in degrees
	Center           [3]float64 // longitude, latitude, zoom
	Name             string
	Description      string
	Attribution      string          // may hold HTML: show it as text
	VectorLayers     json.RawMessage // as TileJSON has it; nil for rasters
}

// ETag is the strong entity tag of the whole file, empty until its digest is known.
func (i PackInfo) ETag() string {
	if i.Digest.IsZero() {
		return ""
	}
	return `"` + i.Digest.String() + `"`
}

// verified takes the outcome of a verification.
func (i *PackInfo) verified(d b3.Digest, tiles uint64) {
	i.State, i.Fault, i.Digest, i.Version, i.Tiles = PackVerified, "", d, fmt.Sprintf("%x", d[:8]), tiles
}

// Format is the kind of a tile's bytes, by its usual extension; the zero Format is not known.
type Format string

// FormatMVT is the format of vector tiles.
const FormatMVT Format = "mvt"

var contentTypes = map[Format]string{
	FormatMVT: "application/x-protobuf", "png": "image/png", "jpg": "image/jpeg", "webp": "image/webp", "avif": "image/avif",
}

// ContentType is the media type of tiles of the format.
func (f Format) ContentType() string { return cmp.Or(contentTypes[f], "application/octet-stream") }

// Matches reports whether ext, without its dot, names the format. The empty extension names every one, and any will do for one that is not known.
func (f Format) Matches(ext string) bool { return f == "" || ext == "" || formatOf(ext) == f }

// formatOf is the format that an extension names.
func formatOf(ext string) Format {
	return cmp.Or(map[string]Format{"pbf": FormatMVT, "jpeg": "jpg"}[ext], Format(ext))
}

// Coding is a content coding in the word of Content-Encoding.
type Coding = pmtiles.Compression

// The codings a tile may be stored in.
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

// Valid reports whether the zoom level is one that packs can have and has such a tile.
func (r TileRef) Valid() bool {
	return r.Z <= 31 && uint64(r.X)>>r.Z == 0 && uint64(r.Y)>>r.Z == 0
}

// Tile is one tile, in the coding it is to be sent in.
type Tile struct {
	Bytes   []byte // shared, never to be written
	Coding  Coding
	Format  Format
	Digest  b3.Digest // of Bytes
	Version string    // of the pack it came from, as in PackInfo; empty out of Pack.Tile
	fault   error     // of a tile that does not decode; it has nothing else
}

// ETag is the strong entity tag of the tile in its coding.
func (t Tile) ETag() string { return `"` + t.Digest.String() + `"` }

// Why a pack, or a tile of one, is not served.
var (
	ErrNoPack      = errors.New("edge: there is no such pack")
	ErrBadTile     = errors.New("edge: there is no such tile at any zoom level: z is 0 to 31, x and y are below 2^z")
	ErrOutside     = errors.New("edge: the tile is outside the pack's zoom levels or bounds")
	ErrNoTile      = errors.New("edge: the pack has no such tile")
	ErrCoding      = errors.New("edge: the tile is stored in a coding that the client does not accept and that is not decoded here")
	ErrNoRaw       = errors.New("edge: only PMTiles are served as files")
	ErrPackOpening = errors.New("edge: the pack is being opened")
	ErrPackPending = errors.New("edge: the pack is being verified")
	ErrPackFailed  = errors.New("edge: the pack is not fit to be served")
)

// PackError is a pack that cannot serve now. It is ErrPackFailed, ErrPackOpening or ErrPackPending.
type PackError struct {
	ID     string
	State  PackState
	Reason string
}

func (e *PackError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("pack %s is %s", e.ID, e.State)
	}
	return fmt.Sprintf("pack %s is %s: %s", e.ID, e.State, e.Reason)
}

// Is reports whether target is the sentinel of the state.
func (e *PackError) Is(target error) bool {
	switch e.State {
	case PackFailed:
		return target == ErrPackFailed
	case PackOpening:
		return target == ErrPackOpening
	}
	return target == ErrPackPending
}
