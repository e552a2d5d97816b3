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

// Limits of the scrape handler: concurrent scrapes, and the duration of one.
const (
	maxScrapes    = 4
	scrapeTimeout = 5 * time.Second
)

// Resolution of native histograms: adjacent buckets differ by a tenth, and 100 of them take some
// KiB per series.
const (
	nativeFactor  = 1.1
	nativeBuckets = 100
)

// Metrics holds the families of one node and resolves their series. It is safe for concurrent use.
// A nil *Metrics discards everything.
type Metrics struct {
	reg         *prometheus.Registry
	openMetrics atomic.Bool

	mu       sync.Mutex         // a leaf
	families map[string]*family // guarded by mu
	native   bool               // guarded by mu
}

// family is a declared Family with its collector. Only one of the collectors is set.
type family struct {
	Family
	counters   *prometheus.CounterVec
	gauges     *gauges
	histograms map[string]*prometheus.HistogramVec // by service, each with its own buckets; guarded by Metrics.mu
}

// NewMetrics returns a new registry with the families that services share, and those of the Go
// runtime and the process.
func NewMetrics() *Metrics {
	m := &Metrics{reg: prometheus.NewRegistry(), families: make(map[string]*family)}
	prometheus.WrapRegistererWith(prometheus.Labels{"service": "node"}, m.reg).MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.Declare(families()...)
	return m
}

// Declare declares families. The package that owns a family calls it once. Declaring a family again
// is a no-op, or panics if the shape differs. Declare panics on an invalid Family. A family is
// exported once it has a series, so a series that must be exported at 0 is resolved by a
// constructor.
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

// declare declares one family. Called with m.mu held.
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

// anyType matches all types in a call of family.
const anyType Type = 0

// family returns a declared family and the label values of one of its series. It panics if there is
// no such family, because that is a bug.
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

// Counter resolves a series and returns a function that adds to it. The series is exported as 0
// from now on. The function panics if n is negative. Missing labels are "".
func (m *Metrics) Counter(name, service string, pairs ...string) func(n int) {
	if m == nil {
		return func(int) {}
	}
	f, values := m.family(name, Counter, service, pairs)
	c := f.counters.WithLabelValues(values...)
	return func(n int) { c.Add(float64(n)) }
}

// CounterOnUse is like Counter, but the series is exported from the first call of the function on.
// It is for series with many siblings of which most are never used. An event that is rare needs
// Counter: a rate does not see the count with which a series begins.
func (m *Metrics) CounterOnUse(name, service string, pairs ...string) func(n int) {
	series := sync.OnceValue(func() func(int) { return m.Counter(name, service, pairs...) })
	return func(n int) { series()(n) }
}

// Gauge adds a series whose value is that of read at each scrape. read may be called from several
// goroutines. The series replaces one with the same labels. If read panics, the value is NaN.
func (m *Metrics) Gauge(name, service string, read func() float64, pairs ...string) {
	if m == nil {
		return
	}
	f, values := m.family(name, Gauge, service, pairs)
	f.gauges.put(values, read)
}

// Set resolves a gauge series and returns a function that sets it. It is 0 at first.
func (m *Metrics) Set(name, service string, pairs ...string) func(v float64) {
	if m == nil {
		return func(float64) {}
	}
	f, values := m.family(name, Gauge, service, pairs)
	return f.gauges.cell(values)
}

// Histogram resolves a series and returns a function that observes one value.
func (m *Metrics) Histogram(name, service string, pairs ...string) func(v float64) {
	if m == nil {
		return func(float64) {}
	}
	f, values := m.family(name, Histogram, service, pairs)
	return m.histogram(f, service).WithLabelValues(values[1:]...).Observe
}

// HistogramOnUse is to Histogram as CounterOnUse is to Counter.
func (m *Metrics) HistogramOnUse(name, service string, pairs ...string) func(v float64) {
	series := sync.OnceValue(func() func(float64) { return m.Histogram(name, service, pairs...) })
	return func(v float64) { series()(v) }
}

// Remove removes a series. Functions that were resolved before may still be called, without effect.
// Resolving the series again starts a new one; a counter starts at 0. Removing an unknown series is
// a no-op. Remove is for label values that come and go, such as peers and epochs: their owner
// removes the series so that their number stays bounded. A series that is exported on use may come
// after its removal.
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

// histogram returns the vector of service. One vector has one set of buckets.
func (m *Metrics) histogram(f *family, service string) *prometheus.HistogramVec {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := f.histograms[service]
	if !ok {
		opts := prometheus.HistogramOpts{
			Name:        f.Name,
			Help:        f.Help,
			Buckets:     f.bucketsFor(service),
			ConstLabels: prometheus.Labels{"service": service},
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

// Families returns what was declared, by name. Callers must not modify it. Metrics of the Go
// runtime and the process are not included.
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

// Registry returns the registry that Handler serves.
func (m *Metrics) Registry() *prometheus.Registry {
	if m == nil {
		return prometheus.NewRegistry()
	}
	return m.reg
}

// Handler returns a handler for scrapes. It serves the requested format, OpenMetrics only if that
// is turned on. It allows 4 concurrent scrapes of 5 s each; overlapping scrapes share one
// collection.
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
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
		CoalesceGather:      true,
		EnableOpenMetrics:   open,
	})
}

// gauges collects the series of one gauge family by calling their readers.
type gauges struct {
	desc *prometheus.Desc

	mu     sync.Mutex        // a leaf
	series map[string]*gauge // by joined label values; guarded by mu
}

// gauge is one series. It is immutable.
type gauge struct {
	values []string
	read   func() float64
	set    func(float64) // nil unless the series is set by Set
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

// cell returns the setter of a pushed series, the same for every call with these label values.
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

// remove removes the series with these label values.
func (g *gauges) remove(values []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.series, strings.Join(values, "\xff"))
}

// Describe implements prometheus.Collector.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	ch <- g.desc
}

// Collect implements prometheus.Collector. It calls the readers without holding the lock.
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

// value reads the series. It recovers a panic, so that one reader does not hide the other series.
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
	// NativeHistograms adds the sparse buckets of Prometheus to the classic ones. Only scrapes in
	// protobuf carry them.
	NativeHistograms bool `toml:"native_histograms" reload:"x"`
	// OpenMetrics permits the OpenMetrics format. In it, counters without _total lose their type.
	OpenMetrics bool `toml:"openmetrics" reload:"r"`
}

// DefaultMetricsConfig returns the classic text format only.
func DefaultMetricsConfig() MetricsConfig {
	return MetricsConfig{}
}

// Validate returns nil: every combination is valid.
func (c MetricsConfig) Validate() error { return nil }

// Configure applies OpenMetrics to later scrapes and NativeHistograms to histograms that are
// resolved later, so it must be called before all others.
func (m *Metrics) Configure(c MetricsConfig) {
	if m == nil {
		return
	}
	m.openMetrics.Store(c.OpenMetrics)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.native = c.NativeHistograms
}
