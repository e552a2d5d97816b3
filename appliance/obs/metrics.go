package obs

import (
	"fmt"
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

// family finds a declared family and orders the labels of one of its series. What it cannot find is a bug, so it panics.
func (m *Metrics) family(name string, t Type, service string, pairs []string) (*family, []string) {
	m.mu.Lock()
	f, ok := m.families[name]
	m.mu.Unlock()
	if !ok || f.Type != t {
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
