package upkeep

import (
	"context"
	"errors"
	"io"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// The series hold an hour, oldest first, in less than 100 KB. Points that were missed are unknown.
func TestSeriesHoldAnHour(t *testing.T) {
	s := bareSeries()
	if size := unsafe.Sizeof(*s); size > 100_000 {
		t.Errorf("%d bytes", size)
	}
	if points, end := s.points(); len(points) != 0 || !end.IsZero() {
		t.Errorf("before the first point: %d until %v", len(points), end)
	}
	at := time.Unix(1000, 0)
	for i := range seriesPoints + 3 {
		s.add(at.Add(time.Duration(i)*seriesEvery), point{float64(i)})
	}
	points, end := s.points()
	if len(points) != seriesPoints || points[0][0] != 3 || points[seriesPoints-1][0] != float64(seriesPoints+2) {
		t.Errorf("%d points, %v to %v", len(points), points[0][0], points[len(points)-1][0])
	}
	s.add(end.Add(3*seriesEvery+time.Second), point{9})
	points, _ = s.points()
	for i, want := range []float64{float64(seriesPoints + 2), math.NaN(), math.NaN(), 9} {
		got := points[seriesPoints-4+i][0]
		if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("point %d after a gap: %v, want %v", i, got, want)
		}
	}
	s.add(end.Add(5*time.Hour), point{1})
	points, _ = s.points()
	if len(points) != seriesPoints || !math.IsNaN(points[0][0]) || points[seriesPoints-1][0] != 1 {
		t.Error("a gap of hours leaves old points")
	}
}

// bareSeries are series of a node with only what they are computed from.
func bareSeries() *Series {
	log, m := hclog.NewNullLogger(), obs.NewMetrics()
	c := flow.NewCatalog(nil, log)
	return NewSeries(SeriesDeps{
		Catalog: c, Service: "node", Metrics: m, Wall: time.Now, Own: func() float64 { return 0 },
		Store: store.New(store.DefaultConfig(), store.Options{Catalog: c, Metrics: m, Log: log, Now: time.Now}),
	})
}

func figuresOf(t testing.TB, n *Series) figures {
	t.Helper()
	f, err := n.figures()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The figures are those that the node counts anyway.
func TestFiguresFromTheMetrics(t *testing.T) {
	n := bareSeries()
	n.d.Metrics.Declare(obs.Family{Name: "edge_hits_total", Type: obs.Counter, Help: "Hits."})
	hit := n.d.Metrics.Counter("edge_hits_total", "edge")
	from := figuresOf(t, n)
	answered := func(service, route, status string, times int) {
		n.d.Metrics.Counter("http_requests_total", service, "route", route, "method", "GET", "status", status)(times)
	}
	answered("edge", "/edge/assets/*path", "200", 30)
	answered("edge", "/edge/catalog", "304", 21)
	answered("wallet", "/v1/transfer", "429", 5)
	answered("wallet", "/v1/transfer", "507", 1)
	answered("wallet", "/v1/transfer", "503", 2)
	answered("wallet", "/v1/transfer", "404", 1)
	hit(40)
	to := figuresOf(t, n)
	to.at, to.payments = from.at.Add(10*time.Second), from.payments+50
	got := map[string]float64{}
	p := pointBetween(&from, &to)
	for i, s := range seriesNames() {
		got[s.Name] = p[i]
	}
	for name, want := range map[string]float64{
		"payments_per_s":  5,
		"requests_per_s":  6,
		"refused_per_s":   .6,
		"errors_per_s":    .2,
		"commits_per_s":   0,
		"edge_hits_per_s": 4,
	} {
		if got[name] != want {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
	for _, name := range []string{"commit_p50_ms", "commit_p99_ms", "disk_free_bytes"} {
		if !math.IsNaN(got[name]) {
			t.Errorf("%s: %v of nothing", name, got[name])
		}
	}
	for _, name := range []string{"rss_bytes", "goroutines"} {
		if !(got[name] > 0) {
			t.Errorf("%s: %v", name, got[name])
		}
	}
	if same := pointBetween(&to, &to); !math.IsNaN(same[0]) {
		t.Errorf("a rate over no time: %v", same[0])
	}
}

// The task adds a point every 5 s, until it is cancelled. A point without a value is null.
func TestSeriesRecorder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := bareSeries()
		if empty := n.List(); empty.End != 0 || len(empty.Series) != seriesCount || empty.Series[0].Values == nil {
			t.Errorf("before the first point: %+v", empty)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.Run(ctx) }()
		time.Sleep(3*seriesEvery + time.Second)
		synctest.Wait()
		list := n.List()
		if want := time.Now().Add(-time.Second).Unix(); list.End != want || list.StepS != 5 {
			t.Errorf("end %d, want %d; step %d", list.End, want, list.StepS)
		}
		for _, s := range list.Series {
			if len(s.Values) != 3 {
				t.Errorf("%s: %d values", s.Name, len(s.Values))
				continue
			}
			unknown := []string{"commit_p50_ms", "commit_p99_ms", "disk_free_bytes"}
			if got := s.Values[2] == nil; got != slices.Contains(unknown, s.Name) {
				t.Errorf("%s: unknown %v", s.Name, got)
			}
		}
		cancel(io.EOF)
		if err := <-done; !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
	})
}

// broken is a collector that fails while it is set.
type broken struct{ atomic.Bool }

func (b *broken) Describe(chan<- *prometheus.Desc) {}

func (b *broken) Collect(to chan<- prometheus.Metric) {
	if b.Load() {
		to <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "", nil, nil), io.ErrUnexpectedEOF)
	}
}

// A rate is that since the point before. While the metrics cannot be read there are no points.
func TestSeriesRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, fails := bareSeries(), &broken{}
		must(t, n.d.Metrics.Registry().Register(fails))
		answered := n.d.Metrics.Counter("http_requests_total", "wallet", "route", "/", "method", "GET", "status", "200")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		fails.Store(true) // there is nothing to compare the first point with
		go func() { done <- n.Run(ctx) }()
		synctest.Wait()
		for _, step := range []struct {
			requests int
			fails    bool
		}{{100, false}, {50, false}, {100, true}, {0, false}, {0, false}} {
			answered(step.requests)
			fails.Store(step.fails)
			time.Sleep(seriesEvery)
			synctest.Wait()
		}
		want, got := []float64{10, -1, 10, 0}, []float64{}
		for _, v := range n.List().Series[1].Values {
			if v == nil {
				got = append(got, -1)
			} else {
				got = append(got, *v)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, want %v; -1 is unknown", got, want)
		}
		cancel(io.EOF)
		<-done
	})
}

// BenchmarkFigures measures a point of the series.
func BenchmarkFigures(b *testing.B) {
	n := bareSeries()
	b.ReportAllocs()
	for b.Loop() {
		figuresOf(b, n)
	}
}

// Refusals are those of the last hour, by service and reason, the most frequent first.
func TestRefusalsOfTheLastHour(t *testing.T) {
	var c refusalCounts
	funds, busy := refused{"wallet", "insufficient_funds"}, refused{"edge", "busy"}
	if got := c.list(); len(got) != 0 || got == nil {
		t.Errorf("before the first turn: %v", got)
	}
	turns := len(c.kept) * refusalsEvery
	for n := range turns {
		c.add(map[refused]float64{funds: 2, busy: float64(n)})
	}
	want := []nodeapi.RefusalCount{{Service: "edge", Reason: "busy", Count: uint64(turns - 1)}}
	if got := c.list(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for range turns { // an hour without one
		c.add(map[refused]float64{funds: 2, busy: float64(turns - 1)})
	}
	if got := c.list(); len(got) != 0 {
		t.Errorf("an hour later: %v", got)
	}
}
