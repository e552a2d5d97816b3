package console

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ronbox/httpapi/wire/node"
)

func values(of ...float64) (out []*float64) {
	for _, v := range of {
		if math.IsNaN(v) {
			out = append(out, nil)
			continue
		}
		out = append(out, &v)
	}
	return out
}

// A chart ends at its right side, has gaps where values are unknown, and a table of the same.
func TestDrawCharts(t *testing.T) {
	end := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	list := node.SeriesList{StepS: 5, End: end.Unix(), Series: []node.Series{
		{Name: "commit_p50_ms", Unit: "ms", Values: values(1, 2, math.NaN(), 4)},
		{Name: "commit_p99_ms", Unit: "ms", Values: values(10, 20, math.NaN(), 40)},
		{Name: "payments_per_s", Unit: "1/s", Values: values(0, 0, 0, 0)},
		{Name: "goroutines", Unit: "1", Values: values(1, 1, 1, 1)},
	}}
	got := drawCharts(list)
	if len(got) != 2 || got[0].Title != "Payments" || got[1].Title != "Commit" {
		t.Fatalf("charts: %+v", got)
	}
	commit := got[1]
	if want := []gridLine{{98, "0"}, {53, "25"}, {8, "50"}}; !slices.Equal(commit.Grid, want) {
		t.Errorf("grid %v, want %v", commit.Grid, want)
	}
	for _, l := range commit.Lines {
		if strings.Count(l.Path, "M") != 2 || !strings.Contains(l.Path, "332.0 ") {
			t.Errorf("line %s: no gap, or not up to the right side", l.Path)
		}
	}
	if commit.Keys[0].Value != "4 ms" || commit.Keys[1].Value != "40 ms" || !strings.Contains(commit.Label, "99 % now 40 ms") {
		t.Errorf("newest values %v, %s", commit.Keys, commit.Label)
	}
	if first := commit.Rows[0]; !first.At.Equal(end) || !slices.Equal(first.Values, []string{"4 ms", "40 ms"}) {
		t.Errorf("row %v", first)
	}
	if second := commit.Rows[1]; second.Values[0] != "–" {
		t.Errorf("an unknown value is %q", second.Values[0])
	}
	if drawCharts(node.SeriesList{StepS: 5, Series: []node.Series{{Name: "payments_per_s"}}}) != nil {
		t.Error("a chart without values")
	}
}

// A full hour has no more points than the width shows, and a table of twelve rows.
func TestChartOfAnHour(t *testing.T) {
	all := make([]float64, 720)
	for i := range all {
		all[i] = float64(i)
	}
	list := node.SeriesList{StepS: 5, Series: []node.Series{{Name: "rss_bytes", Unit: "bytes", Values: values(all...)}}}
	c := drawCharts(list)[0]
	if n := strings.Count(c.Lines[0].Path, "L"); n != plotPoints {
		t.Errorf("%d points", n)
	}
	if len(c.Rows) != tableRows || c.Marks[0].Label != "−60 min" {
		t.Errorf("%d rows, from %s", len(c.Rows), c.Marks[0].Label)
	}
}

func TestFigures(t *testing.T) {
	for _, tt := range []struct {
		v          float64
		unit, want string
	}{
		{0, "1/s", "0"}, {0.25, "1/s", "0.25"}, {12.34, "ms", "12.3"}, {12345, "1/s", "12\u202f345"}, {2.5, "ms", "2.50"},
		{1 << 20, "bytes", "1 MiB"}, {1.5 * (1 << 30), "bytes", "1.5 GiB"}, {math.NaN(), "ms", "–"},
		{0.05, "1/s", "0.05"}, {0.025, "1/s", "0.025"}, {0.005, "ms", "0.005"}, {0.0025, "ms", "0.0025"},
		{0.5, "1/s", "0.5"}, {0.1234, "1/s", "0.12"}, {0.999, "1/s", "1"}, {0.00001, "1/s", "0.00001"},
	} {
		if got := figure(tt.v, tt.unit); got != tt.want {
			t.Errorf("%v %s: %q, want %q", tt.v, tt.unit, got, tt.want)
		}
	}
	for d, want := range map[time.Duration]string{
		5 * time.Minute: "5 min", 305 * time.Second: "5.1 min", 150 * time.Second: "2.5 min", time.Hour: "60 min",
	} {
		if got := minutes(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
	for v, want := range map[float64]float64{0: 1, 0.3: 0.5, 1: 1, 1.1: 2, 4: 5, 70: 100} {
		if got := roundUp(v, "1/s"); got != want {
			t.Errorf("the axis of %v ends at %v, want %v", v, got, want)
		}
	}
	for top := 1e-6; top < 1e6; top = roundUp(top*1.01, "1/s") { // the labels of an axis say where they are
		for _, at := range []float64{top, top / 2} {
			label := strings.ReplaceAll(figure(at, "1/s"), "\u202f", "")
			if got, err := strconv.ParseFloat(label, 64); err != nil || math.Abs(got-at) > at*1e-9 {
				t.Errorf("an axis is labelled %s at %v", label, at)
			}
		}
	}
	if got := roundUp(300<<20, "bytes"); got != 500<<20 {
		t.Errorf("the axis of 300 MiB ends at %v", got)
	}
}
