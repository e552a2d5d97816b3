package obs

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Limits of the scrape handler: scrapes at one time, and how long one may take.
const (
	maxScrapes    = 4
	scrapeTimeout = 5 * time.Second
)

// Resolution of a native histogram: neighbouring buckets differ by a tenth, and 100 of them are at most some KiB a series.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
)

// Metrics holds the families of one node and resolves their series. It is safe for concurrent use; a nil *Metrics counts nothing.
type Metrics struct {
	reg         *prometheus.Registry
	openMetrics atomic.Bool

	mu       sync.Mutex
	families map[string]*family // guarded by mu
	native   bool               // guarded by mu
}

// family is a declared Family with what holds its series, of which one is set.
type family struct {
	Family
	counters   *prometheus.CounterVec
	gauges     *gauges
	histograms map[string]*prometheus.HistogramVec // by service, each with its own buckets; guarded by Metrics.mu
}

// NewMetrics is a registry of its own with the families that services share, and those of the Go runtime and the process.
func NewMetrics() *Metrics {
	m := &Metrics{reg: prometheus.NewRegistry(), families: make(map[string]*family)}
	prometheus.WrapRegistererWith(prometheus.Labels{"service": "node"}, m.reg).MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Declare(families()...)
	return m
}

// Declare makes families known, once, by the package that owns them. Declaring one again in the same shape does nothing; in another shape
// it panics, and so does a wrong Family. A family shows only with its first series, so resolve at construction what must show at 0.
func (m *Metrics) Declare(f ...Family) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range f {
		m.declare(one)
	}
}

// declare wants m.mu held.
func (m *Metrics) declare(f Family) {
	if err := f.check(); err != nil {
		panic("obs: " + err.Error())
	}
	if old, ok := m.families[f.Name]; ok {
		if !old.sameShape(f) {
			panic(fmt.Sprintf("obs: family %s declared twice with different types, labels or buckets", f.Name))
		}
		return
	}
	added := &family{Family: f}
	labels := append([]string{"service"}, f.Labels...)
	switch f.Type {
	case Counter:
		added.counters = prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, labels)
		m.reg.MustRegister(added.counters)
	case Gauge:
		added.gauges = newGauges(prometheus.NewDesc(f.Name, f.Help, labels, nil))
		m.reg.MustRegister(added.gauges)
	case Histogram:
		added.histograms = make(map[string]*prometheus.HistogramVec)
	}
	m.families[f.Name] = added
}

// anyType is the type of a family that may be of any.
const anyType Type = 0

// family finds a declared family and orders the labels of one of its series. What it cannot find is a bug, so it panics.
func (m *Metrics) family(name string, t Type, service string, pairs []string) (*family, []string) {
	m.mu.Lock()
	f, ok := m.families[name]
	m.mu.Unlock()
	if !ok || t != anyType && f.Type != t {
		panic(fmt.Sprintf("obs: no %s family %s is declared", t, name))
	}
	values, err := f.values(service, pairs)
	if err != nil {
		panic("obs: " + err.Error())
	}
	return f, values
}

// Counter resolves a series, which shows 0 from now on, to the func that adds to it. A negative n panics. Missing labels are "".
func (m *Metrics) Counter(name, service string, pairs ...string) func(n int) {
	if m == nil {
		return func(int) {}
	}
	f, values := m.family(name, Counter, service, pairs)
	c := f.counters.WithLabelValues(values...)
	return func(n int) { c.Add(float64(n)) }
}

// Gauge makes a series that calls read at each scrape, possibly from several goroutines. It replaces an earlier one with the same labels.
// A read that panics shows as NaN.
func (m *Metrics) Gauge(name, service string, read func() float64, pairs ...string) {
	if m == nil {
		return
	}
	f, values := m.family(name, Gauge, service, pairs)
	f.gauges.put(values, read)
}

// Set resolves a gauge series, 0 until first set, to the func that sets it.
func (m *Metrics) Set(name, service string, pairs ...string) func(v float64) {
	if m == nil {
		return func(float64) {}
	}
	f, values := m.family(name, Gauge, service, pairs)
	return f.gauges.cell(values)
}

// Histogram resolves a series to the func that observes one value.
func (m *Metrics) Histogram(name, service string, pairs ...string) func(v float64) {
	if m == nil {
		return func(float64) {}
	}
	f, values := m.family(name, Histogram, service, pairs)
	return m.histogram(f, service).WithLabelValues(values[1:]...).Observe
}

// Remove takes a series out of the scrape. Functions that were resolved to it may still be called and change nothing that shows; resolving
// it again begins a new series, a counter's at 0. Removing a series that does not exist does nothing. It is for label values that come and
// go, such as peers and epochs: the owner removes a series with what it counts, so that their number stays bounded.
func (m *Metrics) Remove(name, service string, pairs ...string) {
	if m == nil {
		return
	}
	f, values := m.family(name, anyType, service, pairs)
	switch f.Type {
	case Counter:
		f.counters.DeleteLabelValues(values...)
	case Gauge:
		f.gauges.remove(values)
	case Histogram:
		m.histogram(f, service).DeleteLabelValues(values[1:]...)
	}
}

// histogram is the vector of service, since one vector has one set of buckets.
func (m *Metrics) histogram(f *family, service string) *prometheus.HistogramVec {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := f.histograms[service]
	if !ok {
		opts := prometheus.HistogramOpts{
			Name: f.Name, Help: f.Help, Buckets: f.bucketsFor(service), ConstLabels: prometheus.Labels{"service": service},
		}
		if m.native {
			opts.NativeHistogramBucketFactor, opts.NativeHistogramMaxBucketNumber = nativeFactor, nativeBuckets
		}
		v = prometheus.NewHistogramVec(opts, f.Labels)
		m.reg.MustRegister(v)
		f.histograms[service] = v
	}
	return v
}

// Families lists what was declared, by name, to be read only. Beside these there are those of the Go runtime and the process.
func (m *Metrics) Families() []Family {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]Family, 0, len(m.families))
	for _, f := range m.families {
		out = append(out, f.Family)
	}
	slices.SortFunc(out, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Registry is what Handler serves.
func (m *Metrics) Registry() *prometheus.Registry {
	if m == nil {
		return prometheus.NewRegistry()
	}
	return m.reg
}

// Handler answers scrapes in the format they ask for, OpenMetrics only where it is turned on: 4 at one time, 5 s each, a collection shared
// by those that overlap.
func (m *Metrics) Handler() http.Handler {
	plain, open := m.handler(false), m.handler(true)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if m != nil && m.openMetrics.Load() {
			open.ServeHTTP(rw, r)
			return
		}
		plain.ServeHTTP(rw, r)
	})
}

func (m *Metrics) handler(open bool) http.Handler {
	return promhttp.HandlerFor(m.Registry(), promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout, CoalesceGather: true,
		EnableOpenMetrics: open,
	})
}

// gauges collects the series of one gauge family by asking each for its value.
type gauges struct {
	desc *prometheus.Desc

	mu     sync.Mutex
	series map[string]*gauge // by joined label values; guarded by mu
}

// gauge is one series. It is immutable.
type gauge struct {
	values []string
	read   func() float64
	set    func(float64) // nil unless the series is pushed
}

func newGauges(desc *prometheus.Desc) *gauges {
	return &gauges{desc: desc, series: make(map[string]*gauge)}
}

// put adds or replaces the series with these label values.
func (g *gauges) put(values []string, read func() float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.series[strings.Join(values, "\xff")] = &gauge{values: values, read: read}
}

// cell is the setter of a pushed series, one for all that ask for the same labels.
func (g *gauges) cell(values []string) func(float64) {
	key := strings.Join(values, "\xff")
	g.mu.Lock()
	defer g.mu.Unlock()
	if old, ok := g.series[key]; ok && old.set != nil {
		return old.set
	}
	bits := new(atomic.Uint64)
	made := &gauge{
		values: values,
		read:   func() float64 { return math.Float64frombits(bits.Load()) },
		set:    func(v float64) { bits.Store(math.Float64bits(v)) },
	}
	g.series[key] = made
	return made.set
}

// remove forgets the series with these label values.
func (g *gauges) remove(values []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.series, strings.Join(values, "\xff"))
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.desc
}

// Collect implements prometheus.Collector. The reads run outside the lock.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	all := make([]*gauge, 0, len(g.series))
	for _, s := range g.series {
		all = append(all, s)
	}
	g.mu.Unlock()
	for _, s := range all {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, s.value(), s.values...)
	}
}

// value reads the series; one broken reader must not hide the other series.
func (s *gauge) value() (v float64) {
	defer func() {
		if recover() != nil {
			v = math.NaN()
		}
	}()
	return s.read()
}

// MetricsConfig is the section [metrics].
type MetricsConfig struct {
	// NativeHistograms adds the sparse buckets of Prometheus, which only scrapes in protobuf carry, to the classic ones.
	NativeHistograms bool `toml:"native_histograms" reload:"x"`
	// OpenMetrics answers scrapers that ask for it in that format; counters without _total lose their type there.
	OpenMetrics bool `toml:"openmetrics" reload:"r"`
}

// DefaultMetricsConfig is the classic text format alone.
func DefaultMetricsConfig() MetricsConfig {
	return MetricsConfig{}
}

// Validate has nothing to refuse: every combination works.
func (c MetricsConfig) Validate() error { return nil }

// Configure takes OpenMetrics for the scrapes from now on, and NativeHistograms for the histograms resolved from now on: so first of all.
func (m *Metrics) Configure(c MetricsConfig) {
	if m == nil {
		return
	}
	m.openMetrics.Store(c.OpenMetrics)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.native = c.NativeHistograms
}
