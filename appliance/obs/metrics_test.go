package obs

import (
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"ronbox/appliance/host/hosttest"
)

// scrape returns the text of a scrape.
func scrape(t testing.TB, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func parse(t testing.TB, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	families, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// touch makes one series of every family there is.
func touch(m *Metrics) {
	m.mu.Lock()
	all := make([]Family, 0, len(m.families))
	for _, f := range m.families {
		all = append(all, f.Family)
	}
	m.mu.Unlock()
	for _, f := range all {
		switch f.Type {
		case Counter:
			m.Counter(f.Name, "registry")(1)
		case Gauge:
			m.Gauge(f.Name, "registry", func() float64 { return 1 })
		case Histogram:
			m.Histogram(f.Name, "registry")(1)
		}
	}
}

// Every shared family parses, has its type and help, and carries the label service; promtool finds
// nothing to say.
func TestExposition(t *testing.T) {
	m := NewMetrics()
	touch(m)
	text := scrape(t, m)
	got := parse(t, text)
	types := map[Type]dto.MetricType{
		Counter:   dto.MetricType_COUNTER,
		Gauge:     dto.MetricType_GAUGE,
		Histogram: dto.MetricType_HISTOGRAM,
	}
	for _, f := range families() {
		mf := got[f.Name]
		if mf == nil || mf.GetType() != types[f.Type] || mf.GetHelp() != f.Help {
			t.Errorf("%s: exposed as %v", f.Name, mf)
		}
	}
	for name, mf := range got {
		for _, series := range mf.GetMetric() {
			if !slices.ContainsFunc(
				series.GetLabel(),
				func(l *dto.LabelPair) bool { return l.GetName() == "service" },
			) {
				t.Errorf("%s has a series without service", name)
			}
		}
	}
	t.Run("promtool", func(t *testing.T) {
		cmd := exec.Command(hosttest.Tool(t, "promtool", "prometheus"), "check", "metrics")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("promtool: %v\n%s", err, out)
		}
	})
}

// Families of the Go runtime and the process are exported as well.
func TestRuntimeFamilies(t *testing.T) {
	got := parse(t, scrape(t, NewMetrics()))
	for _, name := range []string{"go_goroutines", "process_open_fds"} {
		if got[name] == nil {
			t.Errorf("%s is missing", name)
		}
	}
}

// Services may use a family with different labels and buckets. A missing label is "".
func TestUnionOfLabels(t *testing.T) {
	m := NewMetrics()
	m.Counter("bus_lagged_total", "registry", "consumer", "sse")(3)
	m.Counter("bus_lagged_total", "wallet", "bus", "events")(2)
	m.Counter("bus_lagged_total", "wallet", "bus", "events")(1)
	m.Histogram("request_latency_seconds", "registry", "route", "/registry/head", "method", "GET")(.004)
	m.Histogram("request_latency_seconds", "edge", "route", "/edge/assets/*path", "method", "GET")(.004)
	text := scrape(t, m)
	for _, want := range []string{
		`bus_lagged_total{bus="",consumer="sse",service="registry"} 3`, `bus_lagged_total{bus="events",consumer="",service="wallet"} 3`,
		`request_latency_seconds_bucket{method="GET",route="/registry/head",service="registry",le="0.025"} 1`,
		`request_latency_seconds_bucket{method="GET",route="/edge/assets/*path",service="edge",le="5.12"} 1`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	if strings.Contains(text, `service="edge",le="0.025"`) {
		t.Error("edge has the buckets of registry")
	}
}

func TestGauges(t *testing.T) {
	m := NewMetrics()
	read := func(v float64) func() float64 { return func() float64 { return v } }
	m.Gauge("queue_depth", "registry", read(1), "queue", "proposals")
	m.Gauge("queue_depth", "registry", read(2), "queue", "proposals") // replaces
	m.Gauge("queue_depth", "registry", func() float64 { panic("broken") }, "queue", "approvals")
	set := m.Set("config_version", "node")
	set(4)
	m.Set("config_version", "node")(5)
	m.Set("lifecycle_state", "node", "state", "running")
	text := scrape(t, m)
	for _, want := range []string{
		`queue_depth{queue="proposals",service="registry"} 2`, `queue_depth{queue="approvals",service="registry"} NaN`,
		`config_version{service="node"} 5`, `lifecycle_state{service="node",state="running"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	set(math.Inf(1))
	if text := scrape(t, m); !strings.Contains(text, `config_version{service="node"} +Inf`) {
		t.Error("the first setter lost its series")
	}
}

func TestDeclare(t *testing.T) {
	own := Family{Name: "x_total", Help: "X.", Type: Counter, Labels: []string{"a"}}
	hist := Family{
		Name:           "h",
		Help:           "H.",
		Type:           Histogram,
		Buckets:        []float64{1},
		ServiceBuckets: map[string][]float64{"s": {2}},
	}
	m := NewMetrics()
	m.Declare(own, hist)
	m.Declare(own, hist)
	m.Declare(families()...)
	for doc, wrong := range map[string]func(){
		"other type":        func() { f := own; f.Type = Gauge; m.Declare(f) },
		"other labels":      func() { f := own; f.Labels = []string{"b"}; m.Declare(f) },
		"other buckets":     func() { f := hist; f.ServiceBuckets = map[string][]float64{"s": {3}}; m.Declare(f) },
		"fewer buckets":     func() { f := hist; f.ServiceBuckets = nil; m.Declare(f) },
		"no help":           func() { m.Declare(Family{Name: "y_total", Type: Counter}) },
		"no type":           func() { m.Declare(Family{Name: "y_total", Help: "Y."}) },
		"service twice":     func() { m.Declare(Family{Name: "y_total", Help: "Y.", Type: Counter, Labels: []string{"service"}}) },
		"no buckets":        func() { m.Declare(Family{Name: "y", Help: "Y.", Type: Histogram}) },
		"buckets of counts": func() { m.Declare(Family{Name: "y_total", Help: "Y.", Type: Counter, Buckets: []float64{1}}) },
		"undeclared":        func() { m.Counter("y_total", "node") },
		"used as another":   func() { m.Set("x_total", "node") },
		"unknown label":     func() { m.Counter("x_total", "node", "b", "1") },
		"odd pairs":         func() { m.Counter("x_total", "node", "a") },
		"negative count":    func() { m.Counter("x_total", "node")(-1) },
	} {
		if !panics(wrong) {
			t.Errorf("%s passes", doc)
		}
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestNilMetrics(t *testing.T) {
	var m *Metrics
	m.Declare(Family{})
	m.Counter("a", "b")(1)
	m.Gauge("a", "b", nil)
	m.Set("a", "b")(1)
	m.Histogram("a", "b", "odd")(1)
	m.HistogramOnUse("a", "b", "odd")(1)
	m.CounterOnUse("a", "b", "odd")(1)
	if text := scrape(t, m); text != "" || m.Registry() == nil {
		t.Errorf("nil exposes %q", text)
	}
}

// Series are made, counted and scraped at once; the sum is exact.
func TestConcurrentUse(t *testing.T) {
	m := NewMetrics()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				m.Counter("rejected_total", "node", "reason", "busy")(1)
				m.Histogram("request_latency_seconds", "index", "route", "/r", "method", "GET")(1)
				m.Gauge("queue_depth", "node", func() float64 { return 1 }, "queue", "q")
			}
			if _, err := m.Registry().Gather(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if text := scrape(t, m); !strings.Contains(text, `rejected_total{reason="busy",service="node"} 800`) {
		t.Error("counts were lost")
	}
}

// Remove removes series of every type. A series that is resolved again starts at zero.
func TestRemove(t *testing.T) {
	m := NewMetrics()
	count, set := m.Counter("rejected_total", "index", "reason", "p1"), m.Set("queue_capacity", "index", "queue", "p1")
	observe := m.Histogram("upstream_latency_seconds", "index", "svc", "p1", "op", "get")
	m.Gauge("queue_depth", "index", func() float64 { return 1 }, "queue", "p1")
	m.Counter("rejected_total", "index", "reason", "p2")(1)
	use := func() { count(3); set(4); observe(.1) }
	use()
	if n := strings.Count(scrape(t, m), `"p1"`); n < 4 {
		t.Fatalf("%d lines of p1", n)
	}
	for range 2 { // the second time there is nothing to remove
		m.Remove("rejected_total", "index", "reason", "p1")
		m.Remove("queue_capacity", "index", "queue", "p1")
		m.Remove("queue_depth", "index", "queue", "p1")
		m.Remove("upstream_latency_seconds", "index", "svc", "p1", "op", "get")
	}
	use()
	if text := scrape(t, m); strings.Contains(text, `"p1"`) || !strings.Contains(text, `"p2"`) {
		t.Errorf("after its removal:\n%s", text)
	}
	m.Counter("rejected_total", "index", "reason", "p1")(1)
	if text := scrape(t, m); !strings.Contains(text, `rejected_total{reason="p1",service="index"} 1`+"\n") {
		t.Errorf("made again:\n%s", text)
	}
	(*Metrics)(nil).Remove("x", "y", "odd")
	if !panics(func() { m.Remove("none_total", "index") }) ||
		!panics(func() { m.Remove("rejected_total", "index", "other", "x") }) {
		t.Error("what no family has was removed")
	}
}

// Series come and go while others are counted and scraped: a scrape sees each whole or not at all,
// and what stays is exact.
func TestRemoveConcurrently(t *testing.T) {
	m := NewMetrics()
	var wg sync.WaitGroup
	for peer := range 4 {
		wg.Go(func() {
			reason := string(rune('a' + peer))
			for range 200 {
				count := m.Counter("rejected_total", "index", "reason", reason)
				m.Gauge("queue_depth", "index", func() float64 { return 1 }, "queue", reason)
				observe := m.Histogram("upstream_latency_seconds", "index", "svc", reason, "op", "get")
				m.Remove("rejected_total", "index", "reason", reason)
				m.Remove("queue_depth", "index", "queue", reason)
				m.Remove("upstream_latency_seconds", "index", "svc", reason, "op", "get")
				count(1)
				observe(1)
				m.Counter("rejected_total", "index", "reason", "stays")(1)
			}
		})
		wg.Go(func() {
			for range 20 {
				if _, err := m.Registry().Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if text := scrape(t, m); strings.Contains(text, `="a"`) ||
		!strings.Contains(text, `rejected_total{reason="stays",service="index"} 800`) {
		t.Errorf("in the end:\n%s", text)
	}
}

// Series that are exported on use are not there before. Of first uses at the same time none is lost.
func TestSeriesOfUse(t *testing.T) {
	m := NewMetrics()
	observe := m.HistogramOnUse("request_latency_seconds", "index", "route", "/r", "method", "GET")
	count := m.CounterOnUse("busy_rejections_total", "index", "endpoint", "/r")
	if text := scrape(t, m); strings.Contains(text, `"/r"`) {
		t.Errorf("before their use:\n%s", text)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { observe(1); count(1) })
	}
	wg.Wait()
	text := scrape(t, m)
	for _, want := range []string{
		`request_latency_seconds_count{method="GET",route="/r",service="index"} 8`,
		`busy_rejections_total{endpoint="/r",route="",service="index"} 8`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
}

func BenchmarkCounter(b *testing.B) {
	count := NewMetrics().Counter("rejected_total", "node", "reason", "busy")
	b.ReportAllocs()
	for b.Loop() {
		count(1)
	}
}

func BenchmarkHistogram(b *testing.B) {
	observe := NewMetrics().Histogram("request_latency_seconds", "node", "route", "/", "method", "GET")
	b.ReportAllocs()
	for b.Loop() {
		observe(.003)
	}
}

// Native buckets are added to the classic ones, and only where they were asked for before the
// series was made.
func TestNativeHistograms(t *testing.T) {
	for _, on := range []bool{false, true} {
		m := NewMetrics()
		m.Configure(MetricsConfig{NativeHistograms: on})
		observe := m.Histogram("request_latency_seconds", "registry", "route", "/registry/head", "method", "GET")
		for i := range 1000 {
			observe(.0001 * float64(i))
		}
		m.Configure(MetricsConfig{NativeHistograms: !on}) // too late for it
		h := histogram(t, m, "request_latency_seconds")
		if len(h.GetBucket()) != 10 || h.GetSampleCount() != 1000 {
			t.Errorf("%v: %d classic buckets, %d samples", on, len(h.GetBucket()), h.GetSampleCount())
		}
		if native := h.Schema != nil; native != on || on && len(h.GetPositiveDelta()) > nativeBuckets {
			t.Errorf("%v: schema %v, %d buckets", on, h.Schema, len(h.GetPositiveDelta()))
		}
	}
}

func histogram(t *testing.T, m *Metrics, name string) *dto.Histogram {
	t.Helper()
	all, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == name {
			return f.GetMetric()[0].GetHistogram()
		}
	}
	t.Fatalf("no %s", name)
	return nil
}

// OpenMetrics is spoken only to those who ask, only while it is turned on, and a reload turns it.
func TestOpenMetrics(t *testing.T) {
	m := NewMetrics()
	handler := m.Handler()
	accepted := func(accept string) string {
		r, w := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
		r.Header.Set("Accept", accept)
		handler.ServeHTTP(w, r)
		return w.Header().Get("Content-Type")
	}
	const open = "application/openmetrics-text"
	for _, on := range []bool{false, true, false} {
		m.Configure(MetricsConfig{OpenMetrics: on})
		if got := accepted(open + ";version=1.0.0"); strings.HasPrefix(got, open) != on {
			t.Errorf("%v: asked for it, got %s", on, got)
		}
		if got := accepted("text/plain"); !strings.HasPrefix(got, "text/plain") {
			t.Errorf("%v: did not ask, got %s", on, got)
		}
	}
	var none *Metrics
	none.Configure(DefaultMetricsConfig())
	if err := DefaultMetricsConfig().Validate(); err != nil {
		t.Error(err)
	}
}
