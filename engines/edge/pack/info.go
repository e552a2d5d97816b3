package pack

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/tile"
)

// Kind is the format of a pack.
type Kind string

// The kinds of packs. They are also the extensions of the files.
const (
	PMTiles Kind = "pmtiles"
	MBTiles Kind = "mbtiles"
)

// Info describes a pack.
type Info struct {
	ID      string // from the name of its file; the whole name if that is not a valid id
	Kind    Kind
	State   asset.PackState
	Fault   string          // why the pack, or the file of Next, failed
	Next    asset.PackState // of the file that will replace the pack: verifying, failed or ""
	File    string          // base name
	Size    int64           // bytes
	Digest  b3.Digest       // of the whole file; zero until it is known
	Version string          // the first 16 hex digits of Digest, for the v of tile URLs; "" until it is known

	Checked  bool           // the check of its structure has passed, so that its tiles are served
	Warnings []tile.Finding // at most one of each code; the pack is served
	Skipped  uint64         // tiles that are in the pack and are not served

	MinZoom, MaxZoom uint8
	Tiles            uint64 // addressed tiles; 0 until they are counted
	Format           Format
	TileSize         int        // width of its pictures in pixels; 0 if unknown or of vectors
	Bounds           [4]float64 // west, south, east, north in degrees; zero if unknown
	Center           [3]float64 // longitude, latitude, zoom
	Revision, Type   string     // of the tileset, as it names them: "2.1.0", "overlay"
	Name             string
	Description      string
	Attribution      string          // may contain HTML, must be shown as text
	VectorLayers     json.RawMessage // in the form of TileJSON; nil for rasters
}

// ETag returns the strong entity tag of the whole file, or "" until the digest is known.
func (i Info) ETag() string {
	if i.Digest.IsZero() {
		return ""
	}
	return `"` + i.Digest.String() + `"`
}

// verified records the digest of a pack that was checked.
func (i *Info) verified(d b3.Digest) {
	i.State, i.Fault = asset.PackVerified, ""
	i.Digest, i.Version = d, fmt.Sprintf("%x", d[:8])
}

// Ready returns an Error unless the tiles of the pack are served.
func (i Info) Ready() error {
	if i.Checked && i.State != asset.PackChanged {
		return nil
	}
	return &Error{ID: i.ID, State: i.State, Reason: i.Fault}
}

// Errors of packs and tiles.
var (
	ErrMissing = errors.New("edge: no such pack")
	ErrBadTile = errors.New("edge: no such tile: z must be 0 to 31, x and y below 2^z")
	ErrOutside = errors.New("edge: the tile is outside the pack's zoom levels or bounds")
	ErrNoTile  = errors.New("edge: the pack has no such tile")
	ErrCoding  = errors.New("edge: the tile is stored in a coding that the client does not accept " +
		"and that is not decoded here")
	ErrTooLarge = errors.New("edge: the tile is too large to be decoded here: it has more than 10 MiB, and the " +
		"client does not accept its coding")
	ErrNoRaw   = errors.New("edge: only PMTiles are served as files")
	ErrOpening = errors.New("edge: the pack is being opened")
	ErrPending = errors.New("edge: the pack is being verified")
	ErrFailed  = errors.New("edge: the pack is invalid")
)

// Error is returned if a pack cannot serve now. It matches ErrFailed, ErrOpening or
// ErrPending.
type Error struct {
	ID     string
	State  asset.PackState
	Reason string
}

func (e *Error) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("pack %s is %s", e.ID, e.State)
	}
	return fmt.Sprintf("pack %s is %s: %s", e.ID, e.State, e.Reason)
}

// Is reports whether target is the sentinel for the state.
func (e *Error) Is(target error) bool {
	switch e.State {
	case asset.PackFailed:
		return target == ErrFailed
	case asset.PackOpening:
		return target == ErrOpening
	}
	return target == ErrPending
}

// generation is the state of all packs. It is immutable: Set.update publishes a new one.
type generation struct {
	packs map[string]entry  // by id
	rows  map[string]result // results of verifications, by file name
}

// entry is a pack of a generation. The generation holds references of pack and next.
type entry struct {
	info    Info
	path    string
	pack    *Pack // serves unless its state is changed; may be nil
	next    *Pack // replaces pack after its verification; may be nil
	seen    stamp // of a new file at the last look, or zero
	want    stamp // of the file to open, or zero
	refused stamp // of the last refused file, or zero
}

func (g *generation) clone() *generation {
	return &generation{packs: maps.Clone(g.packs), rows: maps.Clone(g.rows)}
}

func (g *generation) ids() []string { return slices.Sorted(maps.Keys(g.packs)) }

// open returns the packs to which g holds references.
func (g *generation) open() map[*Pack]bool {
	open := map[*Pack]bool{}
	for _, e := range g.packs {
		for _, p := range []*Pack{e.pack, e.next} {
			if p != nil {
				open[p] = true
			}
		}
	}
	return open
}

// unverified returns the pack of e that must be verified, or nil.
func (e entry) unverified() *Pack {
	if e.next != nil {
		return e.next
	}
	if e.pack != nil && (e.info.State == asset.PackVerifying || e.info.State == asset.PackChanged) {
		return e.pack
	}
	return nil
}

// changedInPlace is the fault of a pack after a change of its file in place.
const changedInPlace = "its file was changed in place: replace packs by renaming"

// settled reports whether every pack of g is verified or has failed.
func (g *generation) settled() bool {
	for _, e := range g.packs {
		if e.want != (stamp{}) || e.unverified() != nil {
			return false
		}
	}
	return true
}

// serves reports whether e.pack answers requests.
func (e entry) serves() bool { return e.pack != nil && e.info.Ready() == nil }

// valid returns text of a file as UTF-8, which JSON requires.
func valid(text string) string { return strings.ToValidUTF8(text, "\uFFFD") }

// clip returns the first maxFault bytes of text, as UTF-8.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxFault)], "")
}

// failed returns e after the file with a stamp was refused. A pack that serves keeps serving.
func (e entry) failed(refused stamp, fault string) entry {
	e.next, e.refused, fault = nil, refused, valid(fault)
	if e.serves() {
		e.info.Next = asset.PackFailed
		e.info.Fault = fmt.Sprintf("%s, which is to take its place, is refused: %s", e.info.File, fault)
		return e
	}
	e.pack = nil
	e.info.State, e.info.Next, e.info.Fault, e.info.Checked = asset.PackFailed, "", fault, false
	return e
}

// passed returns e after p, one of its packs, has passed its check. info has the findings. p serves
// unless another pack does, which serves until p is verified.
func (e entry) passed(p *Pack, info Info) entry {
	switch {
	case e.next == p && !e.serves():
		e.pack, e.next = p, nil
		e.refused = stamp{}
	case e.pack == p:
		info.Next = e.info.Next
		if info.Next == asset.PackFailed {
			info.Fault = e.info.Fault
		}
	default:
		return e
	}
	e.info = info
	return e
}

// opened returns e with a newly opened file. The file serves at once if its result is known. It
// waits for its check if it is the first under its id, and otherwise for its verification.
func (e entry) opened(p *Pack, row result) entry {
	e.want, e.next = stamp{}, nil
	switch state := e.info.State; {
	case row.stamp() == p.stamp && row.checked() && row.Fault == "":
		e.pack, e.info = p, row.known(p.info)
	case state == asset.PackOpening:
		e.pack, e.info = p, p.info
	case state == asset.PackChanged:
		e.pack, e.info = p, p.info
		e.info.State, e.info.Fault = asset.PackChanged, changedInPlace
	default:
		e.next, e.info.Next = p, asset.PackVerifying
		if e.serves() {
			e.info.Fault = ""
		}
	}
	return e
}

// listed returns e for a file that was found under its id.
func (e entry) listed(file stamp, row result, how looks) entry {
	retry, steady := how == lookAgain, how != lookWatch || e.seen == file
	e.seen = stamp{}
	switch {
	case e.pack != nil && e.pack.stamp == file:
		e.next, e.want, e.refused = nil, stamp{}, stamp{}
		if e.info.Next != "" {
			e.info.Next, e.info.Fault = "", ""
		}
	case e.next != nil && e.next.stamp == file || e.want == file || e.refused == file && !retry:
	case steady && e.info.State == asset.PackOpening && row.stamp() == file && row.checked() && row.Fault != "" &&
		!retry:
		e = e.failed(file, row.Fault)
	default:
		if e.pack != nil && e.pack.stamp.inode == file.inode {
			e.pack, e.info.State, e.info.Fault, e.info.Checked = nil, asset.PackChanged, changedInPlace, false
		}
		e.want, e.next = stamp{}, nil
		if e.info.Next == asset.PackVerifying {
			e.info.Next = ""
		}
		if steady {
			e.want = file
		} else {
			e.seen = file
		}
	}
	return e
}
