package obs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"ronbox/appliance/unit"
)

// OTelConfig is the section [otel]: the collector of spans and the sampling rates.
type OTelConfig struct {
	Exporter string `toml:"exporter" reload:"r" oneof:"none otlp"` // "none" or "otlp"
	// URL of an OTLP/HTTP collector; without a path it is /v1/traces
	Endpoint string `toml:"endpoint" reload:"r"`
	// share of traces that begin with a read, 0 to 1
	SampleReads  float64 `toml:"sample_reads" reload:"r"`
	SampleWrites float64 `toml:"sample_writes" reload:"r"` // share of all other traces, 0 to 1
}

// DefaultOTelConfig returns a configuration without a collector.
func DefaultOTelConfig() OTelConfig {
	return OTelConfig{Exporter: "none", Endpoint: "http://127.0.0.1:4318", SampleReads: 0.05, SampleWrites: 1}
}

// Validate joins all errors.
func (c OTelConfig) Validate() error {
	var errs []error
	if c.Exporter != "none" && c.Exporter != "otlp" {
		errs = append(errs, fmt.Errorf("otel.exporter = %q: must be none or otlp", c.Exporter))
	}
	if _, err := c.url(); err != nil {
		errs = append(errs, fmt.Errorf("otel.endpoint = %s: %w", shownURL(c.Endpoint), err))
	}
	return errors.Join(
		append(errs, fraction("otel.sample_reads", c.SampleReads), fraction("otel.sample_writes", c.SampleWrites))...)
}

// url returns the endpoint with its path.
func (c OTelConfig) url() (string, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return "", errors.New("must be a URL such as http://127.0.0.1:4318")
	}
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("must be a URL of scheme, host, port and path only")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return u.String(), nil
}

// shownURL quotes an endpoint for a message, unless it contains a password or a query.
func shownURL(endpoint string) string {
	if strings.ContainsAny(endpoint, "@?") {
		return strconv.Quote(hidden)
	}
	return strconv.Quote(endpoint)
}

// sameTarget reports whether c and d send to the same collector.
func (c OTelConfig) sameTarget(d OTelConfig) bool {
	return c.Exporter == d.Exporter && (c.Exporter == "none" || c.Endpoint == d.Endpoint)
}

func fraction(key string, v float64) error {
	if !(v >= 0 && v <= 1) { // also refuses NaN
		return fmt.Errorf("%s = %v: must be 0..1", key, v)
	}
	return nil
}

// TracerID identifies the sender of the spans. Log receives the tracer's own errors.
type TracerID struct {
	Version string
	Log     hclog.Logger // nil: errors are only counted
	Metrics *Metrics
}

// Tracer creates spans and sends them to a collector. It never waits for the collector: spans that
// do not fit its bounded queue are dropped and counted. The spans of a nil Tracer, or of one with
// the exporter "none", cost nothing. A Tracer is safe for concurrent use.
type Tracer struct {
	id      TracerID
	dropped func(n int)
	live    atomic.Pointer[pipeline] // nil while off
	rates   atomic.Pointer[rates]

	mu      sync.Mutex  // a leaf
	cfg     OTelConfig  // guarded by mu
	retired []*pipeline // replaced but not closed; guarded by mu
	closed  bool        // guarded by mu
}

// NewTracer returns a tracer. cfg must be valid. It does not connect yet. Its queue is exported as
// "spans" of service node.
func NewTracer(cfg OTelConfig, id TracerID) (*Tracer, error) {
	t := &Tracer{
		id:      id,
		dropped: id.Metrics.Counter("queue_dropped_total", "node", "queue", "spans"),
		cfg:     DefaultOTelConfig(),
	}
	id.Metrics.Gauge("queue_depth", "node", t.depth, "queue", "spans")
	id.Metrics.Set("queue_capacity", "node", "queue", "spans")(spanCap)
	next, err := t.open(cfg)
	if err != nil {
		return nil, err
	}
	t.swap(cfg, next)
	return t, nil
}

// Prepare prepares a change of the configuration. The caller must call one of swap and undo, once:
// swap applies the change, undo discards it, and neither waits. Spans created before swap still go
// to the old collector. Prepare waits up to a second for the spans of an earlier swap.
func (t *Tracer) Prepare(ctx context.Context, cfg OTelConfig) (swap, undo func(), err error) {
	now, retired, err := t.reopen()
	if err != nil {
		return nil, nil, err
	}
	_ = closeAll(ctx, retired) // failures are counted
	next := t.live.Load()
	if cfg.sameTarget(now) {
		return func() { t.swap(cfg, next) }, func() {}, nil
	}
	if next, err = t.open(cfg); err != nil {
		return nil, nil, err
	}
	undo = func() { _ = closeAll(context.WithoutCancel(ctx), []*pipeline{next}) }
	return func() {
		if !t.swap(cfg, next) {
			undo() // it has no spans, so this does not wait
		}
	}, undo, nil
}

// reopen returns the current configuration and the pipelines to close.
func (t *Tracer) reopen() (OTelConfig, []*pipeline, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return OTelConfig{}, nil, errTracerClosed
	}
	retired := t.retired
	t.retired = nil
	return t.cfg, retired, nil
}

var errTracerClosed = errors.New("obs: the tracer is closed")

// open returns the pipeline for cfg, or nil if there is no exporter.
func (t *Tracer) open(cfg OTelConfig) (*pipeline, error) {
	if cfg.Exporter == "none" {
		return nil, nil
	}
	return newPipeline(cfg, t.id, &t.rates, t.dropped)
}

// swap makes next the current pipeline, unless the tracer is closed.
func (t *Tracer) swap(cfg OTelConfig, next *pipeline) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.cfg = cfg
	t.rates.Store(newRates(cfg))
	if old := t.live.Swap(next); old != nil && old != next {
		t.retired = append(t.retired, old)
	}
	return true
}

// StartRequest starts the span "http.request" of r, as a child of the one in its traceparent
// header. Sampling follows the parent. Without one it follows sample_reads for GET, HEAD and
// OPTIONS, and sample_writes for all others.
func (t *Tracer) StartRequest(ctx context.Context, r *http.Request, service string) (context.Context, Span) {
	p := t.pipeline()
	if p == nil {
		return ctx, Span{}
	}
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
	ctx, span := p.tracer.Start(ctx, "http.request", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(text("service", service), text(methodKey, r.Method)))
	return ctx, Span{span}
}

// Start starts a span as a child of the one in ctx, if any. name is "svc.<service>.<op>" or
// "store.commit".
func (t *Tracer) Start(ctx context.Context, name, service string) (context.Context, Span) {
	p := t.pipeline()
	if p == nil {
		return ctx, Span{}
	}
	ctx, span := p.tracer.Start(ctx, name, trace.WithAttributes(text("service", service)))
	return ctx, Span{span}
}

func (t *Tracer) pipeline() *pipeline {
	if t == nil {
		return nil
	}
	return t.live.Load()
}

func (t *Tracer) depth() float64 {
	if p := t.live.Load(); p != nil {
		return float64(p.pending.Load())
	}
	return 0
}

// Close sends the remaining spans, for at most a second or until ctx ends, and waits for the
// exporter. Spans that end later are lost.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	t.closed = true
	all := t.retired
	t.retired = nil
	if p := t.live.Swap(nil); p != nil {
		all = append(all, p)
	}
	t.mu.Unlock()
	return closeAll(ctx, all)
}

// Span is one step of a trace. The zero Span records nothing.
type Span struct {
	span trace.Span
}

// Attr adds an attribute. If the key names a secret, the value is hidden.
func (s Span) Attr(key, value string) {
	if s.span == nil {
		return
	}
	if secretKey(key) {
		value = hidden
	}
	s.span.SetAttributes(text(key, value))
}

// Int adds a number.
func (s Span) Int(key string, value int) {
	if s.span != nil {
		s.span.SetAttributes(attribute.Int(key, value))
	}
}

// Link links the span to the one in ctx, which it works for.
func (s Span) Link(ctx context.Context) {
	if s.span == nil {
		return
	}
	if l := trace.LinkFromContext(ctx); l.SpanContext.IsValid() {
		s.span.AddLink(l)
	}
}

// Fail records an error. A failed span is always sent, whatever the sampling rate. Fail(nil) is a
// no-op.
func (s Span) Fail(err error) {
	if s.span != nil && err != nil {
		s.span.SetStatus(codes.Error, spanText(err.Error()))
	}
}

// maxSpanText bounds a text of a span, in bytes.
const maxSpanText = 1024

// spanText returns s shortened, as valid UTF-8. An invalid text would spoil all spans of its batch.
func spanText(s string) string { return strings.ToValidUTF8(unit.Clip(s, maxSpanText), "\ufffd") }

func text(key, value string) attribute.KeyValue { return attribute.String(key, spanText(value)) }

// End ends the span. It never waits.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}
