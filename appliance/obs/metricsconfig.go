package obs

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
