package obs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// collector keeps the bodies that were sent to it. Strings stand in them as they are.
type collector struct {
	*httptest.Server
	mu   sync.Mutex
	got  strings.Builder
	path string
}

func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.path = r.URL.Path
		c.got.Write(body)
	}))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.got.String()
}

// to is the configuration that sends everything to url.
func to(url string) OTelConfig {
	return OTelConfig{Exporter: "otlp", Endpoint: url, SampleReads: 1, SampleWrites: 1}
}

func newTracer(t testing.TB, cfg OTelConfig, m *Metrics) *Tracer {
	t.Helper()
	tr, err := NewTracer(cfg, TracerID{Version: "1.2.3", Metrics: m})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

// flush sends the ended spans. A close has a second for them, too little for a busy machine.
func flush(t *testing.T, tr *Tracer) {
	t.Helper()
	if p := tr.live.Load(); p != nil {
		if err := p.provider.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func closeTracer(t testing.TB, tr *Tracer) {
	t.Helper()
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func request(method, parent string) *http.Request {
	r := httptest.NewRequest(method, "/registry/head", nil)
	if parent != "" {
		r.Header.Set("traceparent", parent)
	}
	return r
}

func TestOTelConfig(t *testing.T) {
	if err := DefaultOTelConfig().Validate(); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct {
		cfg  OTelConfig
		want []string
	}{
		{OTelConfig{Exporter: "jaeger", Endpoint: "http://h", SampleReads: 1}, []string{"otel.exporter"}},
		{OTelConfig{Exporter: "otlp", Endpoint: "h:4318"}, []string{"otel.endpoint"}},
		{OTelConfig{Exporter: "otlp", Endpoint: "http://u:p@h"}, []string{"otel.endpoint"}},
		{OTelConfig{Exporter: "otlp", Endpoint: "http://h?q"}, []string{"otel.endpoint"}},
		{OTelConfig{Exporter: "", Endpoint: "", SampleReads: -1, SampleWrites: 1.1}, []string{"otel.exporter", "otel.endpoint", "otel.sample_reads", "otel.sample_writes"}},
	} {
		err := fmt.Sprint(tt.cfg.Validate())
		for _, want := range tt.want {
			if !strings.Contains(err, want+" = ") {
				t.Errorf("%+v: %v lacks %s", tt.cfg, err, want)
			}
		}
		if strings.Contains(err, "u:p@h") || strings.Contains(err, "h?q") {
			t.Errorf("%v shows a password", err)
		}
		if strings.Count(err, "\n") != len(tt.want)-1 {
			t.Errorf("%+v: %v", tt.cfg, err)
		}
	}
}

// The spans of a request, of its waits and of its commit reach the collector, with the identity of
// the node and without secrets.
func TestSpansReachTheCollector(t *testing.T) {
	c := newCollector(t)
	tr := newTracer(t, to(c.URL), nil)
	ctx, req := tr.StartRequest(t.Context(), request("POST", ""), "registry")
	req.Attr("corr_id", "01J-corr")
	req.Attr("api_key", "hunter2")
	req.Int("http.response.status_code", 200)
	_, op := tr.Start(ctx, "svc.registry.propose", "registry")
	op.End()
	_, commit := tr.Start(t.Context(), "store.commit", "store")
	commit.Link(ctx)
	commit.Link(t.Context()) // no span in it
	commit.End()
	req.End()
	flush(t, tr)
	closeTracer(t, tr)
	got := c.text()
	for _, want := range []string{"http.request", "svc.registry.propose", "store.commit", "01J-corr", "api_key", hidden, "ronbox", "1.2.3", "process.pid", "http.request.method"} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in what was sent", want)
		}
	}
	if strings.Contains(got, "hunter2") || c.path != "/v1/traces" {
		t.Errorf("a secret was sent, or to the wrong place: %s", c.path)
	}
}

// The parent of a request decides, whatever the rates; without one they do; what fails is always
// sent.
func TestWhatIsSampled(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for _, tt := range []struct {
		doc, method, parent string
		reads, writes       float64
		fails, sent         bool
	}{
		{doc: "a read by its rate", method: "GET", reads: 1, sent: true},
		{doc: "a read by its rate, none", method: "GET", writes: 1},
		{doc: "HEAD reads", method: "HEAD", reads: 1, sent: true},
		{doc: "a write by its rate", method: "POST", writes: 1, sent: true},
		{doc: "a write by its rate, none", method: "POST", reads: 1},
		{doc: "a sampled parent", method: "GET", parent: "00-" + id + "-00f067aa0ba902b7-01", sent: true},
		{doc: "a parent that is not", method: "GET", parent: "00-" + id + "-00f067aa0ba902b7-00", reads: 1},
		{doc: "a garbled parent is none", method: "GET", parent: "00-zz-00f067aa0ba902b7-01", reads: 1, sent: true},
		{doc: "a failure", method: "GET", fails: true, sent: true},
		{doc: "a failure below a parent that is not", method: "GET", parent: "00-" + id + "-00f067aa0ba902b7-00", fails: true, sent: true},
	} {
		t.Run(tt.doc, func(t *testing.T) {
			c := newCollector(t)
			tr := newTracer(t,
				OTelConfig{Exporter: "otlp", Endpoint: c.URL, SampleReads: tt.reads, SampleWrites: tt.writes}, nil)
			ctx, span := tr.StartRequest(t.Context(), request(tt.method, tt.parent), "registry")
			_, child := tr.Start(ctx, "svc.registry.op", "registry")
			child.End()
			if tt.fails {
				span.Fail(errors.New("disk full"))
			}
			span.Fail(nil)
			span.End()
			flush(t, tr)
			closeTracer(t, tr)
			got := c.text()
			if sent := strings.Contains(got, "http.request"); sent != tt.sent {
				t.Errorf("sent is %v", sent)
			}
			if child := strings.Contains(got, "svc.registry.op"); child != (tt.sent && !tt.fails) {
				t.Errorf("the child was sent: %v", child)
			}
			raw, _ := hex.DecodeString(id)
			if tt.sent && strings.Contains(tt.parent, id) && !strings.Contains(got, string(raw)) {
				t.Error("the trace id of the parent is lost")
			}
		})
	}
}

// A tracer that is off does not allocate, whether it is nil or its exporter is "none".
func TestOffCostsNothing(t *testing.T) {
	r, ctx, err := request("GET", ""), t.Context(), errors.New("x")
	off := newTracer(t, DefaultOTelConfig(), nil)
	for name, tr := range map[string]*Tracer{"nil": nil, "none": off} {
		if n := testing.AllocsPerRun(100, func() { useTracer(ctx, tr, r, err) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		closeTracer(t, tr)
	}
}

func useTracer(ctx context.Context, tr *Tracer, r *http.Request, err error) {
	inner, span := tr.StartRequest(ctx, r, "registry")
	span.Attr("corr_id", "01J")
	_, op := tr.Start(inner, "svc.registry.head", "registry")
	op.Link(inner)
	op.Fail(err)
	op.End()
	span.Int("http.response.status_code", 200)
	span.End()
}

// A collector that hangs makes no request wait: spans beyond the bound are dropped and counted, and
// the close takes its second.
func TestCollectorThatHangs(t *testing.T) {
	release := make(chan struct{})
	asked := make(chan struct{}, 64)
	web := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}))
	defer web.Close()
	defer close(release)
	m := NewMetrics()
	tr := newTracer(t, to(web.URL), m)
	_, span := tr.Start(t.Context(), "store.commit", "store")
	span.End()
	const extra = 100
	fill := func(n int) {
		for range n {
			_, s := tr.Start(t.Context(), "store.commit", "store")
			s.End()
		}
	}
	fill(spanBatch - 1)
	<-asked // the exporter is stuck with the first batch, which counts as given
	fill(spanCap + extra)
	text := scrape(t, m)
	for _, want := range []string{
		fmt.Sprintf(`queue_dropped_total{queue="spans",service="node"} %d`, extra), fmt.Sprintf(`queue_depth{queue="spans",service="node"} %d`, SpanCap()),
		fmt.Sprintf(`queue_capacity{queue="spans",service="node"} %d`, SpanCap()),
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	began := time.Now()
	closeTracer(t, tr)
	if took := time.Since(began); took < closeTimeout/2 {
		t.Errorf("the last spans got %s", took)
	}
	if want := fmt.Sprintf(
		`queue_dropped_total{queue="spans",service="node"} %d`,
		spanBatch+spanCap+extra,
	); !strings.Contains(scrape(t, m), want) {
		t.Errorf("%s is missing", want)
	}
}

// Without a collector, spans are lost and counted, without other effects.
func TestNoCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.53.54:0") // an address that is not used elsewhere
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	m := NewMetrics()
	tr := newTracer(t, to("http://"+l.Addr().String()), m)
	_, span := tr.Start(t.Context(), "store.commit", "store")
	span.End()
	closeTracer(t, tr)
	closeTracer(t, tr) // once more does nothing
	if want := `queue_dropped_total{queue="spans",service="node"} 1`; !strings.Contains(scrape(t, m), want) {
		t.Errorf("%s is missing", want)
	}
	if _, _, err := tr.Prepare(t.Context(), DefaultOTelConfig()); !errors.Is(err, errTracerClosed) {
		t.Errorf("a change after the end: %v", err)
	}
}

// A reload turns the tracer on, over to another collector and off; an undone one leaves it as it
// was.
func TestTracerPrepare(t *testing.T) {
	one, two := newCollector(t), newCollector(t)
	tr := newTracer(t, DefaultOTelConfig(), nil)
	say := func(name string) {
		_, s := tr.Start(t.Context(), name, "store")
		s.End()
		flush(t, tr)
	}
	change := func(cfg OTelConfig, apply bool) {
		swap, undo, err := tr.Prepare(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if apply {
			swap()
		} else {
			undo()
		}
	}
	say("step.off")
	change(to(one.URL), false)
	say("step.undone")
	change(to(one.URL), true)
	say("step.one")
	change(to(two.URL), true)
	say("step.two")
	quiet := to(two.URL)
	quiet.SampleWrites = 0
	change(quiet, true)
	say("step.quiet")
	change(DefaultOTelConfig(), true)
	say("step.none")
	closeTracer(t, tr)
	if got := one.text(); !strings.Contains(got, "step.one") || strings.Count(got, "step.") != 1 {
		t.Errorf("the first collector has %q", got)
	}
	if got := two.text(); !strings.Contains(got, "step.two") || strings.Count(got, "step.") != 1 {
		t.Errorf("the second collector has %q", got)
	}
	if _, _, err := newTracer(t, DefaultOTelConfig(),
		nil).Prepare(t.Context(), OTelConfig{Exporter: "otlp"}); err == nil {
		t.Error("a bad endpoint passes")
	}
}

// A swap after Close is a no-op, because its pipeline would never be closed.
func TestSwapAfterClose(t *testing.T) {
	c := newCollector(t)
	for _, now := range []OTelConfig{DefaultOTelConfig(), to(c.URL)} {
		tr := newTracer(t, now, nil)
		swap, _, err := tr.Prepare(t.Context(), to(c.URL))
		if err != nil {
			t.Fatal(err)
		}
		closeTracer(t, tr)
		swap()
		if tr.live.Load() != nil {
			t.Error("a closed tracer makes spans")
		}
	}
}

func BenchmarkTracerOff(b *testing.B) {
	tr, r, ctx := newTracer(b, DefaultOTelConfig(), nil), request("GET", ""), b.Context()
	b.ReportAllocs()
	for b.Loop() {
		_, span := tr.StartRequest(ctx, r, "registry")
		span.Attr("corr_id", "01J")
		span.Int("http.response.status_code", 200)
		span.End()
	}
}

// A read that is not sampled is recorded until its end, in case it fails.
func BenchmarkTracerUnsampled(b *testing.B) {
	cfg := to("http://127.0.0.1:9")
	cfg.SampleReads = 0
	tr, r, ctx := newTracer(b, cfg, nil), request("GET", ""), b.Context()
	defer closeTracer(b, tr)
	b.ReportAllocs()
	for b.Loop() {
		_, span := tr.StartRequest(ctx, r, "registry")
		span.Attr("corr_id", "01J")
		span.Int("http.response.status_code", 200)
		span.End()
	}
}

// What a client sent and an error repeats cannot spoil the spans that go out with it, nor be of any
// length.
func TestSpansTakeAnyText(t *testing.T) {
	c := newCollector(t)
	tr := newTracer(t, to(c.URL), nil)
	_, good := tr.StartRequest(t.Context(), request("POST", ""), "registry")
	good.Attr("corr_id", "01J-corr")
	good.End()
	_, odd := tr.StartRequest(t.Context(), request("POST", ""), "reg\xffistry")
	odd.Attr("path", "/\xff\xfe")
	odd.Fail(errors.New("no such name: \xff" + strings.Repeat("x", 1<<20)))
	odd.End()
	flush(t, tr)
	closeTracer(t, tr)
	if got := c.text(); !strings.Contains(got, "01J-corr") || !strings.Contains(got, "no such name") ||
		len(got) > 64<<10 {
		t.Errorf("%d bytes were sent", len(got))
	}
}
