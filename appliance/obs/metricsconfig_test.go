package obs

import (
	"net/http/httptest"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// Native buckets are added to the classic ones, and only where they were asked for before the series was made.
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
