package tile

import "errors"

// ErrSkipped is returned for a tile that the pack has and that is not served: it is empty, too long
// or not of a type that holds bytes.
var ErrSkipped = errors.New("the tile is skipped")

// Code names a kind of finding.
type Code string

// The codes of findings. Fatal findings of the structure of a file have no code.
const (
	CodeCounts      Code = "counts"
	CodeClustered   Code = "clustered"
	CodeSection     Code = "section"
	CodeDirectory   Code = "directory_coding"
	CodeMetadata    Code = "metadata"
	CodeJSON        Code = "json"
	CodeZoom        Code = "zoom"
	CodeBounds      Code = "bounds"
	CodeFormat      Code = "format"
	CodeCoding      Code = "coding"
	CodeEmpty       Code = "empty_tile"
	CodeLong        Code = "long_tile"
	CodeOutside     Code = "row_outside"
	CodeType        Code = "row_type"
	CodeUndecodable Code = "undecodable"
)

// Finding is a defect of a pack. A pack with a fatal one is not served; with others it is.
type Finding struct {
	Code  Code
	Text  string // of the first defect of this kind
	Count uint64 // of defects, at least 1
	Fatal bool
}

// Skips reports whether the tiles that f counts are not served.
func (f Finding) Skips() bool {
	switch f.Code {
	case CodeEmpty, CodeLong, CodeOutside, CodeType:
		return true
	}
	return false
}

// MaxSample is the number of tiles that a verification decodes at most.
const MaxSample = 64

// Check receives the results of a verification of an archive.
type Check struct {
	Found  func(Finding)       // called for each defect
	Sample func(stored []byte) // called for at most MaxSample tiles, as they are stored
}

// Extent returns bounds, or the zero value if they are unknown: zero, inverted or not on the globe.
func Extent(bounds [4]float64) [4]float64 {
	west, south, east, north := bounds[0], bounds[1], bounds[2], bounds[3]
	if west < east && south < north && west >= -360 && east <= 360 && south >= -90 && north <= 90 {
		return bounds
	}
	return [4]float64{}
}
