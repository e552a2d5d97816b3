package pmtiles

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/clip"
)

// Span is a range of tile ids. End is one more than the last one.
type Span struct{ First, End uint64 }

// base returns the first id of a zoom level.
func base(z uint8) uint64 { return (uint64(1)<<(2*z) - 1) / 3 }

// zoomOf returns the zoom level of an id.
func zoomOf(id uint64) (z uint8) {
	for z < maxZoom && id >= base(z+1) {
		z++
	}
	return z
}

// Spans returns the sorted ids of the tiles of some zoom levels whose squares meet a region in
// degrees. If a level has more than most spans, Spans ends before it: reached is the last level
// that is complete, or less than minZoom. The error is the cause of ctx.
func Spans(ctx context.Context, region orb.MultiPolygon, minZoom, maxZoom uint8, most int) (spans []Span,
	reached int, err error) {
	d := descent{min: int(minZoom), max: int(maxZoom), most: most}
	for _, p := range region {
		if err := d.visit(ctx, 0, 0, 0, projected(p)); err != nil {
			return nil, 0, err
		}
		for z := range d.spans {
			d.merge(z)
		}
	}
	for z := d.min; z <= d.max; z++ {
		spans = append(spans, d.spans[z]...)
	}
	return merged(spans), d.max, nil
}

// projected returns a polygon in degrees on the square of the world: x from the west, y from the
// north, in the Mercator projection.
func projected(p orb.Polygon) orb.Polygon {
	const edge = 85.05112877980659 // degrees; the projection ends there
	out := p.Clone()
	for _, ring := range out {
		for i, at := range ring {
			lat := max(-edge, min(edge, at[1])) * math.Pi / 180
			y := 0.5 - math.Asinh(math.Tan(lat))/(2*math.Pi)
			ring[i] = orb.Point{(at[0] + 180) / 360, max(0, min(1, y))}
		}
	}
	return out
}

// descent collects the spans of each zoom level.
type descent struct {
	min, max int // zoom levels
	most     int // spans of one of them
	spans    [maxZoom + 1][]Span
}

// visit adds the tile z/x/y and the tiles in its square that meet p. It overwrites p.
func (d *descent) visit(ctx context.Context, z int, x, y uint32, p orb.Polygon) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	side := math.Ldexp(1, -z)
	square := orb.Bound{
		Min: orb.Point{float64(x) * side, float64(y) * side},
		Max: orb.Point{float64(x+1) * side, float64(y+1) * side},
	}
	p, part := clipped(square, p)
	if p == nil {
		return nil
	}
	id := TileID(uint8(z), x, y)
	if !part { // all tiles in the square
		for at := max(z, d.min); at <= d.max; at++ {
			tiles := uint64(1) << (2 * (at - z))
			first := base(uint8(at)) + (id-base(uint8(z)))*tiles
			d.add(at, Span{first, first + tiles})
		}
		return nil
	}
	if z >= d.min {
		d.add(z, Span{id, id + 1})
	}
	if z >= d.max {
		return nil
	}
	for _, c := range children(uint8(z), x, y) {
		if err := d.visit(ctx, z+1, c.x, c.y, p.Clone()); err != nil {
			return err
		}
	}
	return nil
}

// child is a tile with its id.
type child struct {
	id   uint64
	x, y uint32
}

// children returns the four tiles in the square of a tile, by their ids.
func children(z uint8, x, y uint32) (all [4]child) {
	for i := range all {
		cx, cy := 2*x+uint32(i&1), 2*y+uint32(i>>1)
		all[i] = child{TileID(z+1, cx, cy), cx, cy}
	}
	slices.SortFunc(all[:], func(a, b child) int { return cmp.Compare(a.id, b.id) })
	return all
}

// add adds a span to a level. A level with too many spans ends the descent before it.
func (d *descent) add(z int, s Span) {
	all := d.spans[z]
	if n := len(all); n > 0 && all[n-1].End == s.First {
		all[n-1].End = s.End
		return
	}
	d.spans[z] = append(all, s)
	if len(all) >= d.most {
		d.max = z - 1
	}
}

// merge merges the spans of several polygons.
func (d *descent) merge(z int) {
	slices.SortFunc(d.spans[z], func(a, b Span) int { return cmp.Compare(a.First, b.First) })
	d.spans[z] = merged(d.spans[z])
}

// merged merges sorted spans that overlap or are adjacent.
func merged(all []Span) []Span {
	out := all[:0]
	for _, s := range all {
		if n := len(out); n > 0 && s.First <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, s.End)
			continue
		}
		out = append(out, s)
	}
	return out
}

// clipped returns the part of p in a square, or nil if there is none. part reports whether an edge
// of p passes through the square, so that the square may not be whole. The clipping overwrites p.
func clipped(square orb.Bound, p orb.Polygon) (_ orb.Polygon, part bool) {
	var out orb.Polygon
	for i, ring := range p {
		ring = clip.Ring(square, ring)
		crosses := passes(square, ring)
		switch covers := !crosses && winds(square, ring); {
		case i == 0 && !crosses && !covers, i > 0 && covers: // outside of the polygon, or in a hole
			return nil, false
		case i == 0 || crosses:
			out = append(out, ring)
		}
		part = part || crosses
	}
	return out, part
}

// thin is the width of the border of a square, within which an edge is on the border: clipping at a
// line is exact to a few units in the last place of 1.
const thin = 1e-15

// passes reports whether an edge of a ring that was clipped at a square does not run along its
// border.
func passes(square orb.Bound, ring orb.Ring) bool {
	near := func(a, b float64) bool { return math.Abs(a-b) <= thin }
	for i := 1; i < len(ring); i++ {
		a, b := ring[i-1], ring[i]
		if near(a[0], b[0]) && near(a[1], b[1]) {
			continue
		}
		along := false
		for axis := range 2 {
			for _, line := range []float64{square.Min[axis], square.Max[axis]} {
				along = along || near(a[axis], line) && near(b[axis], line)
			}
		}
		if !along {
			return true
		}
	}
	return false
}

// winds reports whether a ring that runs along the border of a square surrounds it.
func winds(square orb.Bound, ring orb.Ring) bool {
	side, area := square.Max[0]-square.Min[0], 0.0
	for i := 1; i < len(ring); i++ {
		ax, ay := (ring[i-1][0]-square.Min[0])/side, (ring[i-1][1]-square.Min[1])/side
		bx, by := (ring[i][0]-square.Min[0])/side, (ring[i][1]-square.Min[1])/side
		area += ax*by - bx*ay
	}
	return math.Abs(area) > 1 // it is twice the area, in squares
}
