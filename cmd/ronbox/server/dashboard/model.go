package dashboard

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The model of a dashboard, as Grafana 9 and later import it. Members that are neither required nor
// differ from their defaults are left out.
type (
	frameModel struct {
		Title         string    `json:"title"`
		UID           string    `json:"uid"`
		Description   string    `json:"description"`
		Tags          []string  `json:"tags"`
		SchemaVersion int       `json:"schemaVersion"`
		Editable      bool      `json:"editable"`
		GraphTooltip  int       `json:"graphTooltip"` // 1: a crosshair in all panels
		Refresh       string    `json:"refresh"`
		Time          timeRange `json:"time"`
		Annotations   struct {
			List []any `json:"list"`
		} `json:"annotations"`
		Templating struct {
			List []variable `json:"list"`
		} `json:"templating"`
	}
	timeRange struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	source struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	variable struct {
		Name       string  `json:"name"`
		Label      string  `json:"label"`
		Type       string  `json:"type"`
		Datasource *source `json:"datasource,omitempty"`
		Query      any     `json:"query"`
		Refresh    int     `json:"refresh"` // 1: when the dashboard loads, 2: when the time changes
		Multi      bool    `json:"multi,omitempty"`
		IncludeAll bool    `json:"includeAll,omitempty"`
		AllValue   string  `json:"allValue,omitempty"`
		Current    *choice `json:"current,omitempty"`
		Sort       int     `json:"sort,omitempty"`
	}
	choice struct {
		Text  string `json:"text"`
		Value string `json:"value"`
	}
	labelQuery struct {
		Query string `json:"query"`
		RefID string `json:"refId"`
	}
	grid struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	rowModel struct {
		ID        int    `json:"id"`
		Type      string `json:"type"`
		Title     string `json:"title"`
		GridPos   grid   `json:"gridPos"`
		Collapsed bool   `json:"collapsed"`
		Panels    []any  `json:"panels"`
	}
	panelModel struct {
		ID          int            `json:"id"`
		Type        kind           `json:"type"`
		Title       string         `json:"title"`
		Description string         `json:"description,omitempty"`
		Datasource  source         `json:"datasource"`
		GridPos     grid           `json:"gridPos"`
		FieldConfig fieldConfig    `json:"fieldConfig"`
		Options     map[string]any `json:"options"`
		Targets     []target       `json:"targets"`
	}
	target struct {
		RefID        string `json:"refId"`
		Datasource   source `json:"datasource"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
		Instant      bool   `json:"instant,omitempty"`
		Range        bool   `json:"range,omitempty"`
		Format       string `json:"format,omitempty"`
	}
	fieldConfig struct {
		Defaults  fieldDefaults `json:"defaults"`
		Overrides []any         `json:"overrides"`
	}
	fieldDefaults struct {
		Unit       string         `json:"unit,omitempty"`
		Min        *float64       `json:"min,omitempty"`
		Max        float64        `json:"max,omitempty"`
		Custom     map[string]any `json:"custom,omitempty"`
		Mappings   []any          `json:"mappings,omitempty"`
		Thresholds *thresholds    `json:"thresholds,omitempty"`
	}
	thresholds struct {
		Mode  string `json:"mode"`
		Steps []step `json:"steps"`
	}
	step struct {
		Color string   `json:"color"`
		Value *float64 `json:"value"`
	}
)

// datasource is the data source that the variable of this name selects.
func datasource() source { return source{"prometheus", "${datasource}"} }

// frame returns the dashboard without its panels.
func frame() frameModel {
	f := frameModel{
		Title: "ronbox", UID: "ronbox",
		Description:   "Nodes of ronbox: readiness, requests, refusals, queues, commits, and each service.",
		Tags:          []string{"ronbox"},
		SchemaVersion: 39, Editable: true, GraphTooltip: 1, Refresh: "30s", Time: timeRange{"now-1h", "now"},
	}
	labels := func(name, label, expr string) variable {
		from := datasource()
		return variable{
			Name: name, Label: label, Type: "query", Datasource: &from, Query: labelQuery{expr, name}, Refresh: 2,
			Multi: true, IncludeAll: true, AllValue: ".*", Current: &choice{"All", "$__all"}, Sort: 1,
		}
	}
	f.Annotations.List = []any{}
	f.Templating.List = []variable{
		{Name: "datasource", Label: "Data source", Type: "datasource", Query: "prometheus", Refresh: 1},
		labels("job", "Job", "label_values(ronbox_build_info, job)"),
		labels("instance", "Node", `label_values(ronbox_build_info{job=~"$job"}, instance)`),
	}
	return f
}

// model returns the panel for Grafana.
func (p panel) model(id int, at grid) panelModel {
	if p.kind == "" {
		p.kind = chart
	}
	out := panelModel{
		ID: id, Type: p.kind, Title: p.title, Description: p.about, Datasource: datasource(), GridPos: at,
		FieldConfig: fieldConfig{Defaults: p.field(), Overrides: []any{}},
		Options:     p.options(),
	}
	for i, q := range p.queries {
		t := target{
			RefID: string(rune('A' + i)), Datasource: datasource(), Expr: q.forSelected(), LegendFormat: q.legend,
			Instant: p.kind != chart, Range: p.kind == chart,
		}
		if p.kind == table {
			t.Format = "table"
		}
		out.Targets = append(out.Targets, t)
	}
	return out
}

// forSelected returns the expression with the matchers of the selected nodes in each selector.
func (q query) forSelected() string {
	return strings.ReplaceAll(strings.ReplaceAll(q.expr, "{", "{"+selected+","), ",}", "}")
}

func (p panel) field() fieldDefaults {
	f := fieldDefaults{Unit: p.unit, Max: p.most}
	if p.kind == chart {
		f.Min = new(float64)
		f.Custom = map[string]any{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
		if p.stacked {
			f.Custom["fillOpacity"] = 40
			f.Custom["stacking"] = map[string]any{"mode": "normal", "group": "A"}
		}
	}
	if p.bad > 0 {
		f.Thresholds = &thresholds{"absolute", []step{{"green", nil}, {"red", &p.bad}}}
	}
	if len(p.words) > 0 {
		options := map[string]any{}
		for i, value := range slices.Sorted(maps.Keys(p.words)) {
			w := p.words[value]
			options[strconv.Itoa(value)] = map[string]any{"text": w.text, "color": w.color, "index": i}
		}
		f.Mappings = []any{map[string]any{"type": "value", "options": options}}
	}
	return f
}

// options returns the options of the panel type.
func (p panel) options() map[string]any {
	switch p.kind {
	case stat:
		mode := "none"
		if p.bad > 0 || len(p.words) > 0 {
			mode = "background"
		}
		return map[string]any{
			"colorMode": mode, "graphMode": "none", "textMode": "value_and_name", "justifyMode": "auto",
			"orientation": "auto", "wideLayout": true, "showPercentChange": false, "percentChangeColorMode": "standard",
			"reduceOptions": map[string]any{"calcs": []string{"lastNotNull"}},
		}
	case table:
		return map[string]any{"showHeader": true, "frameIndex": 0}
	case chart:
	}
	return map[string]any{
		"legend": map[string]any{
			"showLegend": true, "displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"},
		},
		"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
	}
}
