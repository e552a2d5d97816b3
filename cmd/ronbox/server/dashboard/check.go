package dashboard

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"ronbox/appliance/obs"
)

// catalogue holds the metric families by name.
type catalogue map[string]obs.Family

// scraped are the labels that a scrape adds, and the one of each family.
var scraped = []string{"job", "instance", "service"}

// process lists the families of the process that panels use. They are read from /proc, which need
// not be mounted where the dashboard is printed.
var process = []obs.Family{
	{Name: "process_cpu_seconds_total", Type: obs.Counter},
	{Name: "process_open_fds", Type: obs.Gauge},
	{Name: "process_resident_memory_bytes", Type: obs.Gauge},
	{Name: "process_start_time_seconds", Type: obs.Gauge},
}

// catalogueOf returns the declared families of m, and those of the Go runtime and the process.
func catalogueOf(m *obs.Metrics) (catalogue, error) {
	out := catalogue{}
	for _, f := range process {
		out[f.Name] = f
	}
	for _, f := range m.Families() {
		out[f.Name] = f
	}
	shown, err := m.Registry().Gather()
	if err != nil {
		return nil, err
	}
	types := map[dto.MetricType]obs.Type{dto.MetricType_COUNTER: obs.Counter, dto.MetricType_GAUGE: obs.Gauge}
	for _, f := range shown {
		if _, declared := out[f.GetName()]; !declared && types[f.GetType()] != 0 {
			out[f.GetName()] = obs.Family{Name: f.GetName(), Type: types[f.GetType()]}
		}
	}
	return out, nil
}

var (
	selector = regexp.MustCompile(`([a-z_:][a-z0-9_:]*)\{([^}]*)\}`)
	ranged   = regexp.MustCompile(`\b(?:rate|increase)\(([a-z0-9_:]+)\{[^}]*\}\[(?:\$__rate_interval|1h)\]\)`)
	window   = regexp.MustCompile(`\[[^\]]*\]`)
	matcher  = regexp.MustCompile(`^([a-z_]+)(?:=|!=|=~|!~)"[^"]*"$`)
	grouping = regexp.MustCompile(`\bby \(([a-z_, ]+)\)`)
	named    = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
	identity = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_]*`)
)

// words are the allowed words of an expression outside selectors, groupings and ranges.
var words = []string{
	"sum", "max", "min", "count", "topk", "rate", "increase", "histogram_quantile", "time", "clamp_min", "deriv",
}

// check returns an error if the query does not fit the catalogue.
func (c catalogue) check(q query) error {
	found := selector.FindAllStringSubmatch(q.expr, -1)
	if len(found) == 0 {
		return fmt.Errorf("%s: it has no metric", q.expr)
	}
	kept := slices.Clone(scraped)
	for _, m := range found {
		labels, err := c.selects(q.expr, m[1], m[2])
		if err != nil {
			return fmt.Errorf("%s: %w", q.expr, err)
		}
		kept = append(kept, labels...)
	}
	rest := window.ReplaceAllString(selector.ReplaceAllString(q.expr, ""), "")
	if by := grouping.FindAllStringSubmatch(rest, -1); by != nil {
		var groups []string
		for _, m := range by {
			groups = append(groups, strings.Split(m[1], ", ")...)
		}
		if i := slices.IndexFunc(groups, func(l string) bool { return !slices.Contains(kept, l) }); i >= 0 {
			return fmt.Errorf("%s: its metrics have no label %s", q.expr, groups[i])
		}
		kept = groups
	}
	for _, m := range named.FindAllStringSubmatch(q.legend, -1) {
		if !slices.Contains(kept, m[1]) {
			return fmt.Errorf("%s: the legend %s has a label that the query does not keep", q.expr, q.legend)
		}
	}
	for _, word := range identity.FindAllString(grouping.ReplaceAllString(rest, ""), -1) {
		if !slices.Contains(words, word) {
			return fmt.Errorf("%s: %s is no function, and a metric has braces", q.expr, word)
		}
	}
	return nil
}

// selects returns the labels of a selector, or an error if the catalogue has no such series or if
// the expression uses them other than their type allows.
func (c catalogue) selects(expr, name, matchers string) ([]string, error) {
	f, known := c[name]
	if base, part := histogram(name); !known && part != "" {
		f, known = c[base]
		known = known && f.Type == obs.Histogram
	}
	if !known || f.Type == obs.Histogram && f.Name == name {
		return nil, fmt.Errorf("there is no metric %s", name)
	}
	labels := append(slices.Clone(f.Labels), scraped...)
	if strings.HasSuffix(name, "_bucket") {
		labels = append(labels, "le")
	}
	for m := range strings.SplitSeq(matchers, ",") {
		parts := matcher.FindStringSubmatch(m)
		if m != "" && (parts == nil || !slices.Contains(labels, parts[1])) {
			return nil, fmt.Errorf("%s is no matcher of a label of %s", m, name)
		}
	}
	rates := 0
	for _, m := range ranged.FindAllStringSubmatch(expr, -1) {
		if m[1] == name {
			rates++
		}
	}
	if uses := strings.Count(expr, name+"{"); (f.Type != obs.Gauge) != (rates > 0) || rates > 0 && rates != uses {
		return nil, fmt.Errorf("%s is a %s: only counters and histograms have a rate", name, f.Type)
	}
	return labels, nil
}

// histogram splits the name of a series of a histogram.
func histogram(name string) (base, part string) {
	for _, part := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, part); ok {
			return base, part
		}
	}
	return name, ""
}
