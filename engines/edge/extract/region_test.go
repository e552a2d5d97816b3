package extract

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/paulmach/orb"
)

const square = `[[0,0],[10,0],[10,10],[0,10],[0,0]]`

// The faults of a region name the member.
func TestParseRegion(t *testing.T) {
	for _, tt := range []struct{ text, fault string }{
		{`{"type":"Polygon","coordinates":[` + square + `]}`, ""},
		{`{"type":"Polygon","coordinates":[` + square + `],"bbox":[0,0,10,10],"crs":null}`, ""},
		{`{"type":"MultiPolygon","coordinates":[[` + square + `],[` + square + `,` + square + `]]}`, ""},
		{`{"type":"Polygon","coordinates":[[[0,0,7],[1,0,7],[1,1,7],[0,0,7]]]}`, ""},
		{`{"type":"Feature","geometry":{}}`, `/region/type: must be Polygon or MultiPolygon, is "Feature"`},
		{`{}`, `/region/type: must be`},
		{`[]`, "/region: must be an object"},
		{`{"type":"Polygon"`, "/region: must be an object"},
		{`{"type":"Polygon"}`, "/region/coordinates: must be arrays"},
		{`{"type":7,"coordinates":[]}`, "/region/type: must be"},
		{`{"type":"Polygon","coordinates":[[[0,0],["1",0]]]}`, "/region/coordinates/0/1/0: must be arrays of numbers"},
		{`{"type":"Polygon","coordinates":[]}`, "/region/coordinates: has no ring"},
		{`{"type":"MultiPolygon","coordinates":[]}`, "/region/coordinates: has no polygon"},
		{`{"type":"MultiPolygon","coordinates":[[` + square + `],[]]}`, "/region/coordinates/1: has no ring"},
		{`{"type":"Polygon","coordinates":[[[0,0],[1,0],[0,0]]]}`, "/region/coordinates/0: must be a ring"},
		{`{"type":"Polygon","coordinates":[[[0,0],[1,0],[1,1],[0,1]]]}`, "/region/coordinates/0: must be a ring"},
		{`{"type":"Polygon","coordinates":[` + square + `,[[0,0],[181,0],[1,1],[0,0]]]}`,
			"/region/coordinates/1/1: must be a longitude"},
		{`{"type":"MultiPolygon","coordinates":[[[[0,0],[1,91],[1,1],[0,0]]]]}`,
			"/region/coordinates/0/0/1: must be a longitude"},
		{`{"type":"Polygon","coordinates":[[[0],[1,0],[1,1],[0]]]}`, "/region/coordinates/0/0: must be a longitude"},
		{`{"type":"Polygon","coordinates":[` + strings.Repeat("[],", maxPoints+1) + `[]]}`,
			"/region/coordinates/0: must be a ring"},
		{`{"type":"Polygon","coordinates":[[` + strings.Repeat("[0,0],", maxPoints) + `[0,0]]]}`,
			"/region: has more than 100000 points"},
		{strings.Repeat(" ", maxRegion) + `{}`, "/region: it has"},
	} {
		region, err := parseRegion([]byte(tt.text))
		got := ""
		if fault, ok := errors.AsType[*RegionError](err); ok {
			got = fault.Error()
		}
		if (err == nil) != (tt.fault == "") || !strings.HasPrefix(got, tt.fault) || err == nil && len(region) == 0 {
			t.Errorf("%.80s: %v, %v, want %s", tt.text, region, err, tt.fault)
		}
	}
}

func TestParseBBox(t *testing.T) {
	for text, want := range map[string]string{
		"5.9,45.8,10.5,47.8":       "[5.9 45.8 10.5 47.8] 1",
		"-180,-90,180,90":          "[-180 -90 180 90] 1",
		"170,-20,-170,20":          "[170 -20 -170 20] 2",
		" 1, 2, 3, 4":              "[1 2 3 4] 1",
		"1e0,2,3,4":                "[1 2 3 4] 1",
		"1,2,3":                    "must be W,S,E,N",
		"1,2,3,4,5":                "must be W,S,E,N",
		"1,2,3,x":                  "must be W,S,E,N",
		"1 2 3 4":                  "must be W,S,E,N",
		"":                         "must be W,S,E,N",
		"1,2,3,4x":                 "must be W,S,E,N",
		"NaN,2,3,4":                "/bbox: must be west",
		"1,2,181,4":                "/bbox: must be west",
		"1,-91,3,4":                "/bbox: must be west",
		"1,4,3,4":                  "/bbox: is empty",
		"1,5,3,4":                  "/bbox: is empty",
		"1,2,1,4":                  "/bbox: is empty",
		"1,2,3,4\n":                "[1 2 3 4] 1",
		strings.Repeat("1,", 1000): "must be W,S,E,N",
	} {
		b, err := ParseBBox(text)
		got := fmt.Sprint(err)
		if err == nil {
			region, _ := parseBBox(b)
			got = fmt.Sprint(b, " ", len(region))
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// A region that parses has rings on the globe.
func FuzzRegion(f *testing.F) {
	f.Add([]byte(`{"type":"Polygon","coordinates":[` + square + `]}`))
	f.Add([]byte(`{"type":"MultiPolygon","coordinates":[[` + square + `]]}`))
	f.Add([]byte(`{"coordinates":[[[1e999,0]]],"type":"Polygon"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		region, err := parseRegion(b)
		if err != nil {
			if _, ok := errors.AsType[*RegionError](err); !ok {
				t.Error(err)
			}
			return
		}
		if w := boundsOf(region); !onGlobe(w[0], w[1]) || !onGlobe(w[2], w[3]) {
			t.Errorf("%v", w)
		}
		n := 0
		for _, p := range region {
			for _, r := range p {
				n += len(r)
				if !r.Closed() || len(r) < 4 {
					t.Errorf("%v", r)
				}
			}
		}
		if n > maxPoints || len(region) == 0 {
			t.Errorf("%d polygons, %d points", len(region), n)
		}
		_ = orb.Clone(region)
	})
}
