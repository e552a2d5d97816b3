package extract

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/paulmach/orb"
)

// Bounds of a region.
const (
	maxRegion = 1 << 20 // bytes
	maxPoints = 100_000
)

// RegionError is returned for a region that cannot be used. Member names the part with the fault,
// as a JSON pointer in the request.
type RegionError struct{ Member, Reason string }

func (e *RegionError) Error() string { return e.Member + ": " + e.Reason }

// parseRegion parses a GeoJSON Polygon or MultiPolygon (RFC 7946).
func parseRegion(b []byte) (orb.MultiPolygon, error) {
	if len(b) > maxRegion {
		return nil, &RegionError{"/region", fmt.Sprintf("it has %d bytes, at most %d", len(b), maxRegion)}
	}
	var g struct {
		Type        string         `json:"type"`
		Coordinates jsontext.Value `json:"coordinates"`
	}
	if err := json.Unmarshal(b, &g); err != nil {
		return nil, &RegionError{"/region" + pointerOf(err), "must be an object of GeoJSON with type and coordinates"}
	}
	var all [][][][]float64
	var err error
	switch g.Type {
	case "Polygon":
		all = make([][][][]float64, 1)
		err = json.Unmarshal(g.Coordinates, &all[0])
	case "MultiPolygon":
		err = json.Unmarshal(g.Coordinates, &all)
	default:
		return nil, &RegionError{"/region/type", fmt.Sprintf("must be Polygon or MultiPolygon, is %.40q", g.Type)}
	}
	const member = "/region/coordinates"
	if err != nil {
		return nil, &RegionError{member + pointerOf(err), "must be arrays of numbers, as in a " + g.Type}
	}
	p := &points{left: maxPoints}
	out := orb.MultiPolygon{}
	for i, rings := range all {
		at := member
		if g.Type == "MultiPolygon" {
			at = fmt.Sprintf("%s/%d", member, i)
		}
		polygon, err := p.polygon(at, rings)
		if err != nil {
			return nil, err
		}
		out = append(out, polygon)
	}
	if len(out) == 0 {
		return nil, &RegionError{member, "has no polygon"}
	}
	return out, nil
}

// pointerOf returns the place of an error in a JSON value, or "".
func pointerOf(err error) string {
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		return string(e.JSONPointer)
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		return string(e.JSONPointer)
	}
	return ""
}

// points counts the points of a region.
type points struct{ left int }

// polygon converts the rings of a polygon. at names it.
func (p *points) polygon(at string, rings [][][]float64) (out orb.Polygon, err error) {
	if len(rings) == 0 {
		return nil, &RegionError{at, "has no ring"}
	}
	for i, positions := range rings {
		at := fmt.Sprintf("%s/%d", at, i)
		ring := make(orb.Ring, 0, len(positions))
		for k, position := range positions {
			if p.left--; p.left < 0 {
				return nil, &RegionError{"/region", fmt.Sprintf("has more than %d points", maxPoints)}
			}
			if len(position) < 2 || !onGlobe(position[0], position[1]) {
				return nil, &RegionError{fmt.Sprintf("%s/%d", at, k),
					"must be a longitude from -180 to 180 and a latitude from -90 to 90"}
			}
			ring = append(ring, orb.Point{position[0], position[1]})
		}
		if n := len(ring); n < 4 || ring[0] != ring[n-1] {
			return nil, &RegionError{at, "must be a ring of at least 4 points, of which the last is the first"}
		}
		out = append(out, ring)
	}
	return out, nil
}

func onGlobe(lon, lat float64) bool { return math.Abs(lon) <= 180 && math.Abs(lat) <= 90 }

// world is the bbox of all tiles.
var world = [4]float64{-180, -90, 180, 90}

// parseBBox returns the region of a bbox: west, south, east, north in degrees. If west is above
// east, it crosses the antimeridian.
func parseBBox(b [4]float64) (orb.MultiPolygon, error) {
	west, south, east, north := b[0], b[1], b[2], b[3]
	switch {
	case !onGlobe(west, south) || !onGlobe(east, north):
		return nil, &RegionError{"/bbox", "must be west, south, east, north: longitudes from -180 to 180, latitudes " +
			"from -90 to 90"}
	case south >= north || west == east:
		return nil, &RegionError{"/bbox", "is empty: south must be below north, and west another longitude than east"}
	case west > east:
		return orb.MultiPolygon{rectangle(west, south, 180, north), rectangle(-180, south, east, north)}, nil
	}
	return orb.MultiPolygon{rectangle(west, south, east, north)}, nil
}

func rectangle(w, s, e, n float64) orb.Polygon {
	return orb.Polygon{{{w, s}, {e, s}, {e, n}, {w, n}, {w, s}}}
}

// boundsOf returns the bbox of a region.
func boundsOf(region orb.MultiPolygon) [4]float64 {
	b := region.Bound()
	return [4]float64{b.Min[0], b.Min[1], b.Max[0], b.Max[1]}
}

// ParseBBox parses a bbox as the command line has it.
func ParseBBox(text string) (b [4]float64, err error) {
	fields := strings.Split(text, ",")
	for i := range b {
		if len(fields) == len(b) && err == nil {
			b[i], err = strconv.ParseFloat(strings.TrimSpace(fields[i]), 64)
		}
	}
	if len(fields) != len(b) || err != nil {
		return b, errors.New("must be W,S,E,N in degrees, such as 5.9,45.8,10.5,47.8")
	}
	_, err = parseBBox(b)
	return b, err
}
