package alerts_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"go.uber.org/goleak"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server"
	"ronbox/cmd/ronbox/server/alerts"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines/archive"
	"ronbox/engines/cluster"
	"ronbox/httpapi/wire/node"
)

func TestMain(m *testing.M) {
	hosttest.InMemory()
	goleak.VerifyTestMain(m)
}

// fresh returns the metrics of a node that has just started.
func fresh(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	dir, err := os.MkdirTemp("", "ronbox") // t.TempDir is too long for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	cfg := config.Default()
	cfg.Node.DataDir, cfg.Server.Bind, cfg.Store.MaxBytes = filepath.Join(dir, "data"), "127.0.0.1:0", 256<<20
	_, err = server.Init(t.Context(), cfg, initdir.Options{Dev: true})
	must(t, err)
	cfg, err = config.Load(config.LoadOptions{
		DataDir: cfg.Node.DataDir,
		Env: []string{"RONBOX_SERVER__BIND=127.0.0.1:0", "RONBOX_STORE__MAX_BYTES=256MiB", "RONBOX_LOG__LEVEL=error",
			"RONBOX_NODE__ABORT_GRACE=5s"}, // a machine that is busy
	})
	must(t, err)
	n, err := server.New(cfg, server.Build{}, server.Options{})
	must(t, err)
	up, exit := make(chan struct{}), make(chan int, 1)
	n.OnRunning(func(node.Status) { close(up) })
	ctx, stop := context.WithCancel(t.Context())
	go func() { exit <- n.Run(ctx) }()
	defer func() {
		stop()
		if code := <-exit; code != process.ExitClean {
			t.Errorf("the node ends with %d", code)
		}
	}()
	select {
	case <-up:
	case <-time.After(time.Minute):
		t.Fatal("the node does not serve")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.Addr()+"/metrics", nil)
	must(t, err)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	must(t, err)
	defer func() { _ = resp.Body.Close() }()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(resp.Body)
	must(t, err)
	label := func(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }
	degraded := families["readyz_degraded"]
	degraded.Metric = append(degraded.Metric, &dto.Metric{ // only a node that follows another has it
		Label: []*dto.LabelPair{label("cause", "follow_ok"), label("service", "registry")},
	})
	for _, f := range archive.Families() { // only a node with an archive has these
		m := &dto.Metric{Label: []*dto.LabelPair{label("service", archive.Service)}}
		if slices.Contains(f.Labels, "state") {
			m.Label = append(m.Label, label("state", string(archive.StateFull)))
		}
		families[f.Name] = &dto.MetricFamily{Name: &f.Name, Metric: []*dto.Metric{m}}
	}
	drill := "archive_drill_success_seconds" // of the machine that restores on trial
	families[drill] = &dto.MetricFamily{Name: &drill, Metric: []*dto.Metric{{Label: []*dto.LabelPair{label("node", "a")}}}}
	for _, f := range cluster.Families() { // only a member of a cluster has these
		families[f.Name] = &dto.MetricFamily{
			Name: &f.Name, Metric: []*dto.Metric{{Label: []*dto.LabelPair{label("service", "cluster")}}},
		}
	}
	return families
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// alert is a rule of the file.
type alert struct {
	name, expr      string
	lasts, severity string // an alert with lasts "" fires at once
	annotations     []string
}

// shipped reads the rules.
func shipped() (all []alert) {
	for line := range strings.Lines(alerts.Rules) {
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

// The shipped rules are valid and pass their promtool tests.
func TestAlertsHold(t *testing.T) {
	tool := hosttest.Tool(t, "promtool", "prometheus")
	for _, args := range [][]string{{"check", "rules", "alerts.yml"},
		{"test", "rules", "alerts_test.yml", "alerts_slow_test.yml"}} {
		if out, err := exec.CommandContext(t.Context(), tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// Each alert has a test in which it fires, with series of each metric that it uses.
func TestAlertsAreTried(t *testing.T) {
	tried, err := os.ReadFile("alerts_test.yml")
	must(t, err)
	slow, err := os.ReadFile("alerts_slow_test.yml")
	must(t, err)
	tried = append(tried, slow...)
	for _, text := range generated() {
		tried = append(tried, text...)
	}
	for _, a := range shipped() {
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

// Each series that an alert uses exists on a new node. An unknown name, label or value would never
// fire.
func TestAlertsAskForWhatIsThere(t *testing.T) {
	shown := fresh(t)
	all := shipped()
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

// faults returns the reasons why the alert could never fire on a node with these families.
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
