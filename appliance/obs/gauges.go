package obs

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

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
