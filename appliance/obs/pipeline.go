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
	// spanCap bounds the spans that wait for the exporter, about 2 MiB of them.
	spanCap = 2048
	// spanBatch is how many go out in one request, and spanEvery how long the first of them waits.
	spanBatch = 512
	spanEvery = 2 * time.Second
	// exportTimeout bounds one request with its retries: a collector that hangs must not cost more than a few batches.
	exportTimeout = 5 * time.Second
	// closeTimeout is what the last spans get when the node stops.
	closeTimeout = time.Second
)

// SpanCap is the bound of the spans that wait, for the catalogue.
func SpanCap() int {
	return spanCap
}

// pipeline is the way of a span to one collector. Its goroutine is the library's batcher.
type pipeline struct {
	tracer   trace.Tracer
	provider *sdktrace.TracerProvider
	client   otlptrace.Client
	idle     func()
	next     sdktrace.SpanProcessor
	log      hclog.Logger
	dropped  func(n int)
	exporter sdktrace.SpanExporter

	pending atomic.Int64 // ended spans that the exporter has not been given
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
			DialContext: (&net.Dialer{Timeout: closeTimeout}).DialContext, MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: closeTimeout, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	p.idle = web.CloseIdleConnections
	p.client = otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(target), otlptracehttp.WithHTTPClient(web),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: 250 * time.Millisecond, MaxInterval: time.Second, MaxElapsedTime: 3 * time.Second,
		}))
	p.exporter = otlptrace.NewUnstarted(p.client) // over HTTP there is nothing to start
	p.next = sdktrace.NewBatchSpanProcessor(p, sdktrace.WithMaxQueueSize(spanCap), sdktrace.WithMaxExportBatchSize(spanBatch),
		sdktrace.WithBatchTimeout(spanEvery), sdktrace.WithExportTimeout(exportTimeout))
	p.provider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler{r}), sdktrace.WithSpanProcessor(tail{p}),
		sdktrace.WithRawSpanLimits(spanLimits()), sdktrace.WithResource(id.resource()))
	p.tracer = p.provider.Tracer("ronbox")
	return p, nil
}

// resource names the sender of the spans. The node's own id stands in the file, which is opened later.
func (id TracerID) resource() *resource.Resource {
	all := []attribute.KeyValue{attribute.String("service.name", "ronbox"), text("service.version", id.Version), attribute.Int("process.pid", os.Getpid())}
	if name, err := os.Hostname(); err == nil {
		all = append(all, text("host.name", name))
	}
	return resource.NewSchemaless(all...)
}

// spanLimits bound one span: a commit links to no more requests than a page shows.
func spanLimits() sdktrace.SpanLimits {
	return sdktrace.SpanLimits{
		AttributeValueLengthLimit: maxSpanText + len("…"), AttributeCountLimit: 32, EventCountLimit: 8, LinkCountLimit: 128,
		AttributePerEventCountLimit: 8, AttributePerLinkCountLimit: 8,
	}
}

// ExportSpans implements sdktrace.SpanExporter. It keeps the library from printing errors: they are counted and logged.
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

// tail decides at the end of a span whether it is sent: the sampled ones and those that failed.
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

// OnEnd hands the span on if there is room. The batcher's own queue holds spanCap too, so it never drops unseen.
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

// closeAll closes pipelines within closeTimeout together, and joins them.
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

// close sends what is pending until ctx ends, then cuts the request in flight: what is left fails at once, so the join is short.
func (p *pipeline) close(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.client.Stop(ctx) })
	defer stop()
	return p.provider.Shutdown(context.WithoutCancel(ctx))
}

// methodKey is the attribute of a request's method.
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
