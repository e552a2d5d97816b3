package obs

import (
	"net/http"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// methodKey is the attribute that tells a request's method.
const methodKey = "http.request.method"

// rates are the samplers of traces that begin here.
type rates struct {
	reads, writes sdktrace.Sampler
}

func newRates(cfg OTelConfig) *rates {
	return &rates{reads: sdktrace.TraceIDRatioBased(cfg.SampleReads), writes: sdktrace.TraceIDRatioBased(cfg.SampleWrites)}
}

// sampler follows the parent of a span, else the rates. What is not sampled is recorded nevertheless, until it is known to be no error.
type sampler struct {
	*atomic.Pointer[rates]
}

func (s sampler) Description() string { return "ronbox" }

func (s sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	out := sdktrace.SamplingResult{Decision: sdktrace.RecordOnly}
	parent := trace.SpanContextFromContext(p.ParentContext)
	out.Tracestate = parent.TraceState()
	if parent.IsValid() {
		if parent.IsSampled() {
			out.Decision = sdktrace.RecordAndSample
		}
		return out
	}
	r := s.Load()
	by := r.writes
	if isRead(p) {
		by = r.reads
	}
	if by.ShouldSample(p).Decision == sdktrace.RecordAndSample {
		out.Decision = sdktrace.RecordAndSample
	}
	return out
}

func isRead(p sdktrace.SamplingParameters) bool {
	for _, a := range p.Attributes {
		if string(a.Key) == methodKey {
			m := a.Value.AsString()
			return m == http.MethodGet || m == http.MethodHead || m == http.MethodOptions
		}
	}
	return false
}
