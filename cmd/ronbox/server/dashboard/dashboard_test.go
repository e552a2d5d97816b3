package dashboard

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	dto "github.com/prometheus/client_model/go"

	"ronbox/appliance/obs"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/config"
)

var update = flag.Bool("update", false, "rewrite the golden file")

const goldenFile = "../../../../testdata/golden/dashboard.json"

// metrics returns the metrics of a node with every service.
func metrics(t *testing.T) *obs.Metrics {
	t.Helper()
	n, err := server.New(config.Default(), server.Build{}, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return n.Metrics()
}

// The golden file is the dashboard for the metrics of the program.
func TestDashboardGolden(t *testing.T) {
	made, err := New(metrics(t))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(goldenFile, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(goldenFile); err != nil || string(want) != string(made) {
		t.Errorf("%s differs (%v): run `make golden` and read the diff", goldenFile, err)
	}
}

// The listed families of the process are those that a node shows where /proc is mounted.
func TestProcessFamilies(t *testing.T) {
	shown, err := metrics(t).Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range process {
		i := slices.IndexFunc(shown, func(s *dto.MetricFamily) bool { return s.GetName() == f.Name })
		if i < 0 || (shown[i].GetType() == dto.MetricType_COUNTER) != (f.Type == obs.Counter) {
			t.Errorf("no node shows %s as a %s", f.Name, f.Type)
		}
	}
}

// Each panel has its place, a title and a query for the selected nodes. The row of a service has a
// panel for its rates, and no two panels of a row have the same title.
func TestPanelsHaveTheirPlaces(t *testing.T) {
	made, err := New(metrics(t))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal(made, &d, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	taken, titles, ids := map[[2]int]string{}, map[string]bool{}, map[int]bool{}
	section := ""
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: another panel has its id", p.Title)
		}
		ids[p.ID] = true
		for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= columns {
					t.Fatalf("%s, %s: column %d is beyond the end, or that of %q", section, p.Title, x, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			section = p.Title
			continue
		}
		if name := section + "/" + p.Title; p.Title == "" || titles[name] || len(p.Targets) == 0 {
			t.Errorf("%s: no title, no query, or there are two", name)
		} else {
			titles[name] = true
		}
		for _, q := range p.Targets {
			if strings.Count(q.Expr, "{") != strings.Count(q.Expr, "{"+selected) {
				t.Errorf("%s: %s is not limited to the selected nodes", p.Title, q.Expr)
			}
		}
	}
	for _, want := range []string{"Node", "Registry", "Wallet", "Rewarder", "Edge", "Index"} {
		if !slices.ContainsFunc(rows(), func(r row) bool { return r.title == want }) {
			t.Errorf("no row %s", want)
		}
	}
}

// A query that does not fit the catalogue is refused.
func TestWrongQueriesAreRefused(t *testing.T) {
	known, err := catalogueOf(metrics(t))
	if err != nil {
		t.Fatal(err)
	}
	good := query{`sum by (service, queue) (rate(queue_dropped_total{service="wallet"}[$__rate_interval]))`, "{{queue}}"}
	if err := known.check(good); err != nil {
		t.Errorf("a sound query: %v", err)
	}
	for _, wrong := range []query{
		{`sum(rate(queue_droped_total{}[1h]))`, ""},                          // no such metric
		{`sum by (kind) (rate(queue_dropped_total{}[1h]))`, ""},              // no such label
		{`sum(rate(queue_dropped_total{kind="x"}[1h]))`, ""},                 // no such label to match
		{`sum by (service) (rate(queue_dropped_total{}[1h]))`, "{{queue}}"},  // a legend of a label that is gone
		{`sum(queue_dropped_total{})`, ""},                                   // a counter without a rate
		{`sum(rate(queue_dropped_total{}[1h])) / queue_dropped_total{}`, ""}, // the same beside a rate
		{`rate(queue_depth{}[1h])`, ""},                                      // a gauge with a rate
		{`sum(queue_depth)`, ""},                                             // no braces for the selected nodes
		{`sum(rate(request_latency_seconds{}[1h]))`, ""},                     // a histogram as such
		{`sum(rate(queue_depth_bucket{}[1h]))`, ""},                          // a gauge as a histogram
		{`summ(queue_depth{})`, ""},                                          // no such function
		{`1`, ""},
	} {
		if known.check(wrong) == nil {
			t.Errorf("%s, legend %q passes", wrong.expr, wrong.legend)
		}
	}
}
