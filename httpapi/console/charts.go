package console

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"ronbox/httpapi/wire/node"
)

// Sizes of a chart in units of its SVG.
const (
	chartWidth  = 340
	chartHeight = 118
	plotLeft    = 46
	plotRight   = 332
	plotTop     = 8
	plotBottom  = 98
	plotPoints  = 144 // points of a line at most
	leastValues = 60  // values that the width of a chart stands for at least
	tableRows   = 12
)

// chartSpec names the series of a chart.
type chartSpec struct {
	title  string
	series [2]string // the second one may be ""
	names  [2]string // for people
}

// charts are the charts of the overview.
var charts = [...]chartSpec{
	{"Payments", [2]string{"payments_per_s"}, [2]string{"paid"}},
	{"Requests", [2]string{"requests_per_s", "edge_hits_per_s"}, [2]string{"all", "edge hits"}},
	{"Refusals", [2]string{"refused_per_s", "errors_per_s"}, [2]string{"refused", "failed"}},
	{"Commit", [2]string{"commit_p50_ms", "commit_p99_ms"}, [2]string{"median", "99 %"}},
	{"File", [2]string{"file_bytes"}, [2]string{"size"}},
	{"Memory", [2]string{"rss_bytes"}, [2]string{"resident"}},
}

// chart is a chart as its template draws it.
type chart struct {
	Title, Label string
	Keys         []chartKey // the newest value of each series
	Grid         []gridLine
	Marks        []timeMark
	Lines        []plotLine
	Area         string // below the first line
	Rows         []chartRow
}

type chartKey struct{ Class, Name, Value string }

type gridLine struct {
	Y     int
	Label string
}

type timeMark struct {
	X             int
	Anchor, Label string
}

type plotLine struct{ Class, Path string }

// chartRow has the means of the series over a part of the time.
type chartRow struct {
	At     time.Time
	Values []string
}

// drawCharts returns the charts of the series that the node has.
func drawCharts(list node.SeriesList) (out []chart) {
	for _, spec := range charts {
		var all []node.Series
		for _, name := range spec.series {
			for _, s := range list.Series {
				if s.Name == name {
					all = append(all, s)
				}
			}
		}
		if len(all) > 0 && len(all[0].Values) > 0 {
			out = append(out, drawChart(spec, all, list.StepS, time.Unix(list.End, 0)))
		}
	}
	return out
}

func drawChart(spec chartSpec, all []node.Series, step int, end time.Time) chart {
	unit, values := all[0].Unit, len(all[0].Values)
	span := max(values, leastValues)
	top := 0.0
	lines := make([][]float64, len(all))
	for i, s := range all {
		lines[i] = condense(s.Values, (span+plotPoints-1)/plotPoints)
		for _, v := range lines[i] {
			if v > top { // false for NaN
				top = v
			}
		}
	}
	top = roundUp(top, unit)
	c := chart{Title: spec.title, Rows: chartRows(all, step, end)}
	for _, part := range [...]float64{0, 0.5, 1} {
		y := plotBottom - int(part*(plotBottom-plotTop))
		c.Grid = append(c.Grid, gridLine{y, figure(part*top, unit)})
	}
	width := time.Duration(span*step) * time.Second
	c.Marks = []timeMark{
		{plotLeft, "start", "−" + minutes(width)}, {(plotLeft + plotRight) / 2, "middle", "−" + minutes(width/2)},
		{plotRight, "end", "now"},
	}
	says := []string{spec.title}
	for i, class := range []string{"one", "two"}[:len(all)] {
		path, area := plot(lines[i], float64(plotRight-plotLeft)*float64(values)/float64(span), top)
		c.Lines = append(c.Lines, plotLine{class, path})
		if i == 0 {
			c.Area = area
		}
		now := reading(newest(all[i].Values), unit)
		c.Keys = append(c.Keys, chartKey{class, spec.names[i], now})
		says = append(says, spec.names[i]+" now "+now)
	}
	c.Label = strings.Join(says, ", ")
	return c
}

// condense returns the means of runs of n values. A run without a value is NaN. The runs are
// counted from the newest value.
func condense(values []*float64, n int) (out []float64) {
	for at := len(values) % n; at <= len(values); at += n {
		if at > 0 {
			out = append(out, mean(values[max(0, at-n):at]))
		}
	}
	return out
}

// mean returns the mean of the known values, NaN if there is none.
func mean(values []*float64) float64 {
	sum, n := 0.0, 0.0
	for _, v := range values {
		if v != nil {
			sum, n = sum+*v, n+1
		}
	}
	if n == 0 {
		return math.NaN()
	}
	return sum / n
}

// newest returns the last known value, NaN if the last half minute has none.
func newest(values []*float64) float64 {
	for i := len(values) - 1; i >= 0 && i >= len(values)-6; i-- {
		if values[i] != nil {
			return *values[i]
		}
	}
	return math.NaN()
}

// plot returns the path of a line that ends at the right side of the chart, and that of the area
// below it. Unknown values are gaps.
func plot(values []float64, width, top float64) (line, area string) {
	var path, below strings.Builder
	x := func(i int) string {
		at := float64(plotRight)
		if len(values) > 1 {
			at -= width * float64(len(values)-1-i) / float64(len(values)-1)
		}
		return strconv.FormatFloat(at, 'f', 1, 64)
	}
	for i, v := range values {
		if math.IsNaN(v) {
			continue
		}
		y := strconv.FormatFloat(plotBottom-v/top*(plotBottom-plotTop), 'f', 1, 64)
		if i == 0 || math.IsNaN(values[i-1]) {
			fmt.Fprintf(&path, "M%s %s", x(i), y)
			fmt.Fprintf(&below, "M%s %d", x(i), plotBottom)
		}
		fmt.Fprintf(&path, "L%s %s", x(i), y)
		fmt.Fprintf(&below, "L%s %s", x(i), y)
		if i == len(values)-1 || math.IsNaN(values[i+1]) {
			fmt.Fprintf(&below, "L%s %dZ", x(i), plotBottom)
		}
	}
	return path.String(), below.String()
}

// chartRows returns the table of a chart, newest first.
func chartRows(all []node.Series, step int, end time.Time) (out []chartRow) {
	values := len(all[0].Values)
	run := max(1, (values+tableRows-1)/tableRows)
	for at := values; at > 0; at -= run {
		row := chartRow{At: end.Add(-time.Duration((values-at)*step) * time.Second)}
		for _, s := range all {
			row.Values = append(row.Values, reading(mean(s.Values[max(0, at-run):at]), s.Unit))
		}
		out = append(out, row)
	}
	return out
}

// roundUp returns the top of an axis: 1, 2 or 5 times a power of ten, or of two for bytes.
func roundUp(v float64, unit string) float64 {
	if v <= 0 || math.IsInf(v, 0) {
		return 1
	}
	scale := 1.0
	if unit == "bytes" {
		for v/scale >= 1024 {
			scale *= 1024
		}
	}
	power := math.Pow(10, math.Floor(math.Log10(v/scale)))
	for _, m := range [...]float64{1, 2, 5, 10} {
		if top := m * power * scale; top >= v {
			return top
		}
	}
	return v
}

// figure returns a value with three digits or more, or two below 1. It returns "–" if the value is
// unknown.
func figure(v float64, unit string) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case unit == "bytes":
		return strings.Replace(humanBytes(int64(v)), ".0 ", " ", 1)
	case v >= 100 || v == math.Trunc(v):
		return groups(strconv.FormatFloat(v, 'f', 0, 64))
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1 || v < 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	places := 1 - int(math.Floor(math.Log10(v)))
	return strings.TrimRight(strings.TrimRight(strconv.FormatFloat(v, 'f', places, 64), "0"), ".")
}

// reading returns a value with its unit.
func reading(v float64, unit string) string {
	switch {
	case math.IsNaN(v):
	case unit == "1/s":
		return figure(v, unit) + "/s"
	case unit == "ms":
		return figure(v, unit) + " ms"
	}
	return figure(v, unit)
}

// minutes returns a duration in minutes with one decimal, unless that is 0.
func minutes(d time.Duration) string {
	return strings.TrimSuffix(strconv.FormatFloat(d.Minutes(), 'f', 1, 64), ".0") + " min"
}
