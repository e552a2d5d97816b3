package appliance

import (
	"fmt"
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
	name, expr      string
	lasts, severity string // lasts is "": it fires at once
	annotations     []string
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
		if len(all) == 0 {
			continue
		}
		a := &all[len(all)-1]
		for prefix, member := range map[string]*string{"expr: ": &a.expr, "for: ": &a.lasts, "labels: ": &a.severity} {
			if value, ok := strings.CutPrefix(line, prefix); ok {
				*member = value
			}
		}
		if strings.HasPrefix(line, "summary: ") || strings.HasPrefix(line, "description: ") {
			a.annotations = append(a.annotations, line)
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

// Each alert has a test that makes it fire, with series of each metric that it asks for.
func TestAlertsAreTried(t *testing.T) {
	tried, err := os.ReadFile(alertsDir + "/alerts_test.yml")
	must(t, err)
	for _, a := range alerts(t) {
		fires := regexp.MustCompile(`alertname="` + a.name + `", alertstate="firing"|alertname: ` + a.name + `\n`)
		if !fires.Match(tried) {
			t.Errorf("no test makes %s fire", a.name)
		}
		q, err := parse(a.expr)
		must(t, err)
		for _, s := range q.selectors {
			if !strings.Contains(string(tried), "{series: '"+s.name+"{") {
				t.Errorf("%s: no test has a series of %s", a.name, s.name)
			}
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
		for _, fault := range a.faults(shown) {
			t.Errorf("%s: %s", a.name, fault)
		}
	}
}

var (
	quoted   = regexp.MustCompile(`\$labels\.([a-zA-Z0-9_]+)`)
	period   = regexp.MustCompile(`^(?:[0-9]+[smhd])?$`)
	severity = regexp.MustCompile(`^\{severity: (?:critical|warning)\}$`)
)

// faults are what would keep the alert from being one on a node that shows these families.
func (a alert) faults(shown map[string]*dto.MetricFamily) (out []string) {
	fault := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if a.expr == "" || len(a.annotations) != 2 {
		fault("%q, %q: want an expression, a summary and a description, each on its line", a.expr, a.annotations)
	}
	if !period.MatchString(a.lasts) || !severity.MatchString(a.severity) {
		fault("for %q, labels %q", a.lasts, a.severity)
	}
	q, err := parse(a.expr)
	if err != nil {
		fault("%v", err)
	}
	labels := []string{"job", "instance"} // of the scrape
	for _, s := range q.selectors {
		f := shown[s.name]
		switch {
		case s.name == "up": // of the scrape
		case f == nil:
			fault("no metric %s", s.name)
		case !slices.ContainsFunc(f.GetMetric(), s.matches):
			fault("no series %s%v", s.name, s.matchers)
		default:
			labels = slices.AppendSeq(labels, maps.Keys(labelsOf(f.GetMetric()[0])))
		}
	}
	for _, name := range q.labels {
		if !slices.Contains(labels, name) {
			fault("its series have no label %s", name)
		}
	}
	if q.kept != nil {
		labels = q.kept
	}
	for _, m := range quoted.FindAllStringSubmatch(strings.Join(a.annotations, " "), -1) {
		if !slices.Contains(labels, m[1]) {
			fault("it tells of a label %s, which it has not", m[1])
		}
	}
	return out
}
