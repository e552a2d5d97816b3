package appliance

import (
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

const alertsDir = "../deploy/prometheus"

// alert is a rule as the file has it: one line a member.
type alert struct {
	name, expr  string
	annotations []string
}

func alerts(t *testing.T) (all []alert) {
	t.Helper()
	text, err := os.ReadFile(alertsDir + "/alerts.yml")
	must(t, err)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "- alert: "); ok {
			all = append(all, alert{name: name})
		}
		if expr, ok := strings.CutPrefix(line, "expr: "); ok {
			all[len(all)-1].expr = expr
		}
		if strings.HasPrefix(line, "summary: ") || strings.HasPrefix(line, "description: ") {
			all[len(all)-1].annotations = append(all[len(all)-1].annotations, line)
		}
	}
	return all
}

// The shipped rules are rules, and do what their own tests say.
func TestAlertsHold(t *testing.T) {
	tool := promtool(t)
	if tool == "" {
		return
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = alertsDir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert says what is wrong and what to do, and is tried by a test that makes it fire.
func TestAlertsAreTried(t *testing.T) {
	tried, err := os.ReadFile(alertsDir + "/alerts_test.yml")
	must(t, err)
	for _, a := range alerts(t) {
		if a.expr == "" || len(a.annotations) != 2 {
			t.Errorf("%s: %q, %q: want an expression, a summary and a description, each on its line", a.name, a.expr, a.annotations)
		}
		fires := regexp.MustCompile(`alertname="` + a.name + `", alertstate="firing"|alertname: ` + a.name + `\n`)
		if !fires.Match(tried) {
			t.Errorf("no test makes %s fire", a.name)
		}
	}
}

// Each series that an alert asks for is there on a fresh node: a name, label or value that the node does not have would never fire.
func TestAlertsAskForWhatIsThere(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	defer r.halt()
	shown := r.gathered()
	all := alerts(t)
	if len(all) < 10 {
		t.Fatalf("%d alerts were read: the file is not as it was", len(all))
	}
	for _, a := range all {
		labels := []string{"job", "instance"} // of the scrape
		for _, s := range selectors(a.expr) {
			f := shown[s.name]
			switch {
			case s.name == "up": // of the scrape
			case f == nil:
				t.Errorf("%s: no metric %s", a.name, s.name)
			case !slices.ContainsFunc(f.GetMetric(), s.matches):
				t.Errorf("%s: no series %s%v", a.name, s.name, s.matchers)
			default:
				labels = slices.AppendSeq(labels, maps.Keys(labelsOf(f.GetMetric()[0])))
			}
		}
		for _, name := range namedLabels(a) {
			if !slices.Contains(labels, name) {
				t.Errorf("%s: its series have no label %s", a.name, name)
			}
		}
	}
}

// selector is a metric as an expression names it.
type selector struct {
	name     string
	matchers []matcher
}

type matcher struct{ label, op, value string }

var (
	byLabels = regexp.MustCompile(`\b(?:by|on) \(([a-z, ]+)\)`)
	reach    = regexp.MustCompile(`\[[0-9a-z]+\]`)
	metric   = regexp.MustCompile(`\b([a-z][a-z_]*)\b(\{[^}]*\})?( ?\()?`)
	matching = regexp.MustCompile(`([a-z]+)(=~|!~|!=|=)"([^"]*)"`)
	quoted   = regexp.MustCompile(`\$labels\.([a-z]+)`)
)

// selectors finds the metrics of an expression. A word before a bracket is a function.
func selectors(expr string) (out []selector) {
	expr = reach.ReplaceAllString(byLabels.ReplaceAllString(expr, ""), "")
	for _, m := range metric.FindAllStringSubmatch(expr, -1) {
		if m[3] != "" || slices.Contains([]string{"and", "or", "unless", "sum"}, m[1]) {
			continue
		}
		s := selector{name: m[1]}
		for _, one := range matching.FindAllStringSubmatch(m[2], -1) {
			s.matchers = append(s.matchers, matcher{one[1], one[2], one[3]})
		}
		out = append(out, s)
	}
	return out
}

// namedLabels are those that the alert groups by, or tells of.
func namedLabels(a alert) (out []string) {
	for _, m := range byLabels.FindAllStringSubmatch(a.expr, -1) {
		out = append(out, strings.Split(m[1], ", ")...)
	}
	for _, m := range quoted.FindAllStringSubmatch(strings.Join(a.annotations, " "), -1) {
		out = append(out, m[1])
	}
	return out
}

func (s selector) matches(m *dto.Metric) bool {
	labels := labelsOf(m)
	for _, want := range s.matchers {
		value, known := labels[want.label]
		is := value == want.value
		if strings.HasSuffix(want.op, "~") {
			is = regexp.MustCompile(`^(?:` + want.value + `)$`).MatchString(value)
		}
		if !known || is == strings.HasPrefix(want.op, "!") {
			return false
		}
	}
	return true
}
