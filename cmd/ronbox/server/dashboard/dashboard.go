package dashboard

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/obs"
)

// row is a row of the dashboard: a service, the node or its database.
type row struct {
	title  string
	panels []panel
}

// panel is a chart over time, or another kind of panel.
type panel struct {
	title   string
	about   string // description; empty: the title says enough
	kind    kind
	unit    string // identifier of Grafana; empty: a number
	wide    int    // of 24 columns; 0: 8
	stacked bool
	most    float64      // end of the axis; 0: that of the values
	words   map[int]word // shown instead of values
	bad     float64      // value from which a stat is red; 0: never
	queries []query
}

// kind is the identifier of a panel type of Grafana.
type kind string

const (
	chart kind = "timeseries"
	stat  kind = "stat"
	table kind = "table"
)

// word replaces a value.
type word struct{ text, color string }

// query is an expression of PromQL. Each of its selectors has braces, into which New puts the
// matchers of the selected nodes.
type query struct{ expr, legend string }

// Heights of panels.
const (
	chartHigh = 8
	statHigh  = 4
	columns   = 24
)

// selected limits each selector to the nodes that the variables select.
const selected = `job=~"$job",instance=~"$instance"`

// New returns the dashboard as JSON for the metrics of a node that need not run. It returns an
// error for a query that does not fit the metrics.
func New(m *obs.Metrics) ([]byte, error) {
	known, err := catalogueOf(m)
	if err != nil {
		return nil, err
	}
	var faults []error
	l := layout{}
	for _, r := range rows() {
		l.row(r.title)
		for _, p := range r.panels {
			for _, q := range p.queries {
				if err := known.check(q); err != nil {
					faults = append(faults, fmt.Errorf("%s, %s: %w", r.title, p.title, err))
				}
			}
			l.add(p)
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return encode(l.panels)
}

// layout places panels from left to right, in lines of the height of their first panel.
type layout struct {
	panels  []any
	x, y    int
	highest int // of the current line
}

func (l *layout) row(title string) {
	l.wrap()
	l.panels = append(l.panels, rowModel{ID: len(l.panels) + 1, Type: "row", Title: title,
		GridPos: grid{H: 1, W: columns, X: 0, Y: l.y}, Panels: []any{}})
	l.y++
}

func (l *layout) wrap() {
	l.x, l.y, l.highest = 0, l.y+l.highest, 0
}

func (l *layout) add(p panel) {
	wide, high := p.wide, chartHigh
	if wide == 0 {
		wide = 8
	}
	if p.kind == stat {
		high = statHigh
	}
	if l.x+wide > columns || l.highest > 0 && high != l.highest {
		l.wrap()
	}
	l.panels = append(l.panels, p.model(len(l.panels)+1, grid{H: high, W: wide, X: l.x, Y: l.y}))
	l.x, l.highest = l.x+wide, high
}

// encode writes one panel per line, so that changes are easy to read.
func encode(panels []any) ([]byte, error) {
	frame, err := json.Marshal(frame(), json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	out.Write(bytes.TrimSuffix(frame, []byte("}")))
	out.WriteString(`,"panels":[`)
	for i, p := range panels {
		raw, err := json.Marshal(p, json.Deterministic(true))
		if err != nil {
			return nil, err
		}
		out.WriteString(strings.Repeat(",", min(i, 1)) + "\n ")
		out.Write(raw)
	}
	out.WriteString("\n]}\n")
	return out.Bytes(), nil
}
