package obs

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// spanCap bounds the spans that wait for the exporter, about 2 MiB.
	spanCap = 2048
	// spanBatch is how many go out in one request, and spanEvery how long the first of them waits.
	spanBatch = 512
	spanEvery = 2 * time.Second
	// exportTimeout bounds one request with its retries: a collector that hangs must not cost more
	// than a few batches.
	exportTimeout = 5 * time.Second
	// closeTimeout bounds the export of the last spans when the node stops.
	closeTimeout = time.Second
)

// SpanCap returns the bound of the waiting spans, for the catalogue.
func SpanCap() int {
	return spanCap
}

// pipeline sends spans to one collector. The batcher of the library runs its goroutine.
type pipeline struct {
	tracer   trace.Tracer
	provider *sdktrace.TracerProvider
	client   otlptrace.Client
	idle     func()
	next     sdktrace.SpanProcessor
	log      hclog.Logger
	dropped  func(n int)
	exporter sdktrace.SpanExporter

	pending atomic.Int64 // ended spans that the exporter has not received
}

func newPipeline(cfg OTelConfig, id TracerID, r *atomic.Pointer[rates], dropped func(int)) (*pipeline, error) {
	target, err := cfg.url()
	if err != nil {
		return nil, err
	}
	p := &pipeline{log: id.Log, dropped: dropped}
	if p.log == nil {
		p.log = hclog.NewNullLogger()
	}
	web := &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: closeTimeout}).DialContext,
			MaxIdleConnsPerHost: 1,
			IdleConnTimeout:     time.Minute,
			TLSHandshakeTimeout: closeTimeout,
			ForceAttemptHTTP2:   true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	p.idle = web.CloseIdleConnections
	p.client = otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(target), otlptracehttp.WithHTTPClient(web),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled:         true,
			InitialInterval: 250 * time.Millisecond,
			MaxInterval:     time.Second,
			MaxElapsedTime:  3 * time.Second,
		}))
	p.exporter = otlptrace.NewUnstarted(p.client) // nothing to start for OTLP over HTTP
	p.next = sdktrace.NewBatchSpanProcessor(p, sdktrace.WithMaxQueueSize(spanCap),
		sdktrace.WithMaxExportBatchSize(spanBatch), sdktrace.WithBatchTimeout(spanEvery),
		sdktrace.WithExportTimeout(exportTimeout))
	p.provider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler{r}), sdktrace.WithSpanProcessor(tail{p}),
		sdktrace.WithRawSpanLimits(spanLimits()), sdktrace.WithResource(id.resource()))
	p.tracer = p.provider.Tracer("ronbox")
	return p, nil
}

// resource describes the sender of the spans. It lacks the node's id, because the file with it is
// opened later.
func (id TracerID) resource() *resource.Resource {
	all := []attribute.KeyValue{
		attribute.String("service.name", "ronbox"),
		text("service.version", id.Version),
		attribute.Int("process.pid", os.Getpid()),
	}
	if name, err := os.Hostname(); err == nil {
		all = append(all, text("host.name", name))
	}
	return resource.NewSchemaless(all...)
}

// spanLimits bounds one span: a commit may link to at most as many requests as a page shows.
func spanLimits() sdktrace.SpanLimits {
	return sdktrace.SpanLimits{
		AttributeValueLengthLimit:   maxSpanText + len("…"),
		AttributeCountLimit:         32,
		EventCountLimit:             8,
		LinkCountLimit:              128,
		AttributePerEventCountLimit: 8,
		AttributePerLinkCountLimit:  8,
	}
}

// ExportSpans implements sdktrace.SpanExporter. Errors are counted and logged, so that the library
// does not print them.
func (p *pipeline) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	p.pending.Add(-int64(len(spans)))
	if err := p.exporter.ExportSpans(ctx, spans); err != nil {
		p.dropped(len(spans))
		p.log.Warn("spans lost", "spans", len(spans), "error", err)
	}
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (p *pipeline) Shutdown(ctx context.Context) error {
	defer p.idle()
	return p.exporter.Shutdown(ctx)
}

// tail decides whether an ended span is sent: it sends sampled spans and failed ones.
type tail struct {
	*pipeline
}

// kept is a span that counts as sampled.
type kept struct {
	sdktrace.ReadOnlySpan
}

func (k kept) SpanContext() trace.SpanContext {
	c := k.ReadOnlySpan.SpanContext()
	return c.WithTraceFlags(c.TraceFlags().WithSampled(true))
}

func (t tail) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd queues the span if there is room. The queue of the batcher also holds spanCap spans, so it
// never drops one.
func (t tail) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() && s.Status().Code != codes.Error {
		return
	}
	if t.pending.Add(1) > spanCap {
		t.pending.Add(-1)
		t.dropped(1)
		return
	}
	t.next.OnEnd(kept{s})
}

func (t tail) Shutdown(ctx context.Context) error   { return t.next.Shutdown(ctx) }
func (t tail) ForceFlush(ctx context.Context) error { return t.next.ForceFlush(ctx) }

// closeAll closes the pipelines concurrently, within closeTimeout, and waits for them.
func closeAll(ctx context.Context, all []*pipeline) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	var errs []error
	for _, p := range all {
		if p == nil {
			continue
		}
		errs = append(errs, p.close(ctx))
	}
	return errors.Join(errs...)
}

// close sends pending spans until ctx ends, then aborts the request in progress, so that the wait
// is short.
func (p *pipeline) close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.client.Stop(ctx) })
	defer stop()
	return p.provider.Shutdown(context.WithoutCancel(ctx))
}

// methodKey is the attribute with the method of a request.
const methodKey = "http.request.method"

// rates are the samplers of traces that begin in this node.
type rates struct {
	reads, writes sdktrace.Sampler
}

func newRates(cfg OTelConfig) *rates {
	return &rates{
		reads:  sdktrace.TraceIDRatioBased(cfg.SampleReads),
		writes: sdktrace.TraceIDRatioBased(cfg.SampleWrites),
	}
}

// sampler follows the parent of a span, or else the rates. Spans that are not sampled are recorded
// as well, because they may fail.
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
