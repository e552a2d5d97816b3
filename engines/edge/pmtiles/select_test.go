package pmtiles

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/paulmach/orb"
	"pgregory.net/rapid"
)

func has(spans []Span, id uint64) bool {
	return slices.ContainsFunc(spans, func(s Span) bool { return s.First <= id && id < s.End })
}

// rectangle returns the polygon of bounds in degrees.
func rectangle(w, s, e, n float64) orb.Polygon {
	return orb.Polygon{{{w, s}, {e, s}, {e, n}, {w, n}, {w, s}}}
}

// meets reports whether an edge of p passes through the square of a tile or its centre is in p, and
// whether the answer would be the same for a square that is a little smaller or larger.
func meets(p orb.Polygon, r zxy) (yes, sure bool) {
	side := math.Ldexp(1, -int(r.Z))
	x, y := float64(r.X)*side, float64(r.Y)*side
	test := func(more float64) bool {
		inside := false
		for _, ring := range p {
			for i := 1; i < len(ring); i++ {
				a, b := ring[i-1], ring[i]
				if cuts(a, b, [2]float64{x - more, y - more}, [2]float64{x + side + more, y + side + more}) {
					return true
				}
				cx, cy := x+side/2, y+side/2
				if (a[1] > cy) != (b[1] > cy) && cx < a[0]+(cy-a[1])/(b[1]-a[1])*(b[0]-a[0]) {
					inside = !inside
				}
			}
		}
		return inside
	}
	small, large := test(-1e-9), test(1e-9)
	return large, small == large
}

// cuts reports whether a segment has a part in a box, by the method of Liang and Barsky.
func cuts(a, b orb.Point, low, high [2]float64) bool {
	from, to := 0.0, 1.0
	for axis := range 2 {
		d := b[axis] - a[axis]
		if d == 0 {
			if a[axis] <= low[axis] || a[axis] >= high[axis] {
				return false
			}
			continue
		}
		in, out := (low[axis]-a[axis])/d, (high[axis]-a[axis])/d
		from, to = max(from, min(in, out)), min(to, max(in, out))
	}
	return from < to
}

// everyTile calls do for the tiles of the levels up to z.
func everyTile(z uint8, do func(r zxy, id uint64)) {
	for id := range base(z + 1) {
		do(refOf(id), id)
	}
}

// An id is in a span if and only if its square meets the region, whatever its polygons are.
func TestSpansLaw(t *testing.T) {
	at := rapid.Custom(func(t *rapid.T) orb.Point {
		return orb.Point{rapid.Float64Range(-180, 180).Draw(t, "lon"), rapid.Float64Range(-85, 85).Draw(t, "lat")}
	})
	ring := rapid.Custom(func(t *rapid.T) orb.Ring {
		r := rapid.SliceOfN(at, 3, 8).Draw(t, "ring")
		if rapid.Bool().Draw(t, "small") {
			for i := range r {
				r[i] = orb.Point{r[0][0] + (r[i][0]-r[0][0])/40, r[0][1] + (r[i][1]-r[0][1])/40}
			}
		}
		return append(r, r[0])
	})
	rapid.Check(t, func(t *rapid.T) {
		region := orb.MultiPolygon{}
		for range rapid.IntRange(1, 3).Draw(t, "polygons") {
			region = append(region, orb.Polygon{starlike(ring.Draw(t, "outer"))})
		}
		low := uint8(rapid.IntRange(0, 3).Draw(t, "low"))
		spans, reached, err := Spans(context.Background(), region, low, 5, 1<<20)
		if err != nil || reached != 5 || !slices.IsSortedFunc(spans, func(a, b Span) int {
			return int(int64(a.End) - int64(b.First))
		}) {
			t.Fatalf("%v, reached %d, %v", spans, reached, err)
		}
		everyTile(5, func(r zxy, id uint64) {
			want, sure := false, true
			for _, p := range region {
				yes, certain := meets(projected(p), r)
				want, sure = want || yes && certain, sure && certain || yes && certain
			}
			if want = want && r.Z >= low; sure && has(spans, id) != want {
				t.Fatalf("%v: in a span %t, its square meets the region %t", r, !want, want)
			}
		})
	})
}

// starlike sorts the points of a ring around their mean, so that the ring does not cross itself.
func starlike(r orb.Ring) orb.Ring {
	open := slices.Clone(r[:len(r)-1])
	var cx, cy float64
	for _, p := range open {
		cx, cy = cx+p[0]/float64(len(open)), cy+p[1]/float64(len(open))
	}
	slices.SortFunc(open, func(a, b orb.Point) int {
		d := math.Atan2(a[1]-cy, a[0]-cx) - math.Atan2(b[1]-cy, b[0]-cx)
		switch {
		case d < 0:
			return -1
		case d > 0:
			return 1
		}
		return 0
	})
	return append(open, open[0])
}

// A hole is left out, a tile that its border passes is not, and an edge on the border of a tile does
// not add the tile behind it.
func TestSpansOfHoles(t *testing.T) {
	east := orb.MultiPolygon{append(rectangle(0, 0, 180, 85.06), rectangle(45, 0, 90, 66.51326044311186)...)}
	spans, _, err := Spans(t.Context(), east, 3, 3, 100)
	if err != nil {
		t.Fatal(err)
	}
	everyTile(3, func(r zxy, id uint64) {
		want := r.Z == 3 && r.X >= 4 && r.Y < 4 && !(r.X == 5 && r.Y >= 2)
		if has(spans, id) != want {
			t.Errorf("%v: in a span %t", r, !want)
		}
	})
}

// A region with too many spans ends at the last level that has few enough.
func TestSpansReach(t *testing.T) {
	long := orb.MultiPolygon{{{{-170, -80}, {170, 79}, {170, 80}, {-170, -80}}}}
	for _, most := range []int{1, 3, 10, 100, 1000} {
		spans, reached, err := Spans(t.Context(), long, 0, 20, most)
		if err != nil || reached < 0 || reached > 12 {
			t.Fatalf("%d: reached %d, %v", most, reached, err)
		}
		all, _, err := Spans(t.Context(), long, 0, uint8(reached), 1<<20)
		if err != nil || !slices.Equal(spans, all) {
			t.Errorf("%d: %d spans up to %d, want %d", most, len(spans), reached, len(all))
		}
	}
	if _, reached, err := Spans(t.Context(), long, 7, 20, 1); err != nil || reached >= 7 {
		t.Errorf("from level 7: reached %d, %v", reached, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stop"))
	if _, _, err := Spans(ctx, long, 0, 20, 1<<20); err == nil || err.Error() != "stop" {
		t.Errorf("after the end of its context: %v", err)
	}
}

// A rectangle has the tiles whose open squares it overlaps, also if its border is that of tiles.
func TestSpansOfBounds(t *testing.T) {
	lat := func(row float64) float64 { return math.Atan(math.Sinh(math.Pi*(1-2*row/16))) * 180 / math.Pi }
	for _, tt := range [][4]float64{{0, 0, 16, 16}, {3, 5, 4, 6}, {3, 5, 9, 7}, {0, 8, 8, 16}, {2.5, 2.5, 2.6, 2.6}} {
		w, n, e, s := tt[0], tt[1], tt[2], tt[3]
		region := orb.MultiPolygon{rectangle(w*22.5-180, lat(s), e*22.5-180, lat(n))}
		spans, _, err := Spans(t.Context(), region, 0, 6, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		everyTile(6, func(r zxy, id uint64) {
			side := math.Ldexp(16, -int(r.Z))
			x, y := float64(r.X)*side, float64(r.Y)*side
			want := x < e && x+side > w && y < s && y+side > n
			if has(spans, id) != want {
				t.Fatalf("%v: %v in a span %t", tt, r, !want)
			}
		})
	}
}

func TestZoomOf(t *testing.T) {
	for z := range uint8(maxZoom + 1) {
		for _, id := range []uint64{base(z), TileID(z, 1<<z-1, 0), base(z) + (uint64(1) << (2 * z)) - 1} {
			if got := zoomOf(id); got != z {
				t.Errorf("%d: level %d, want %d", id, got, z)
			}
		}
	}
}
