package upkeep

import (
	"cmp"
	"context"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Resolution of the series: a point every 5 s for an hour, 75 KB in all.
const (
	seriesEvery  = 5 * time.Second
	seriesPoints = int(time.Hour / seriesEvery)
	seriesCount  = 12
)

// Columns of a point that the doctor reads. The used bytes are no series of their own.
const (
	columnP99  = 6
	columnUsed = seriesCount
)

// figures are the counters and gauges of the node at one time. Counters count from the start.
type figures struct {
	at       time.Time
	payments float64
	requests float64
	refused  float64
	failed   float64
	hits     float64
	reasons  map[refused]float64
	commits  store.CommitTimes

	// bytes, and the number of goroutines; NaN: unknown
	file, used, disk, memory, goroutines float64
}

// refused is a service and a reason for which it refuses.
type refused struct{ service, reason string }

// refusalsEvery is the number of turns between two counts of refusals that are kept.
const refusalsEvery = int(time.Minute / seriesEvery)

// refusalCounts holds the counts of refusals of the last hour, one a minute.
type refusalCounts struct {
	kept  [60]map[refused]float64 // by minute
	now   map[refused]float64
	turns int
}

// add notes the counts of a turn.
func (c *refusalCounts) add(now map[refused]float64) {
	if c.turns%refusalsEvery == 0 {
		c.kept[c.turns/refusalsEvery%len(c.kept)] = now
	}
	c.turns++
	c.now = now
}

// list returns the refusals since the oldest counts.
func (c *refusalCounts) list() []nodeapi.RefusalCount {
	oldest := map[refused]float64{}
	if minutes := (c.turns + refusalsEvery - 1) / refusalsEvery; minutes >= len(c.kept) {
		oldest = c.kept[minutes%len(c.kept)]
	}
	out := []nodeapi.RefusalCount{}
	for key, n := range c.now {
		if n = n - oldest[key]; n >= 1 {
			out = append(out, nodeapi.RefusalCount{Service: key.service, Reason: key.reason, Count: uint64(n)})
		}
	}
	slices.SortFunc(out, func(a, b nodeapi.RefusalCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Service, b.Service), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// point holds a value of each series, in the order of seriesNames, and the used bytes of the file.
// NaN is no value.
type point [seriesCount + 1]float64

// seriesNames returns the names and units of the series.
func seriesNames() [seriesCount]nodeapi.Series {
	return [...]nodeapi.Series{
		{Name: "payments_per_s", Unit: "1/s"},
		{Name: "requests_per_s", Unit: "1/s"},
		{Name: "refused_per_s", Unit: "1/s"},
		{Name: "errors_per_s", Unit: "1/s"},
		{Name: "commits_per_s", Unit: "1/s"},
		{Name: "commit_p50_ms", Unit: "ms"},
		{Name: "commit_p99_ms", Unit: "ms"},
		{Name: "file_bytes", Unit: "bytes"},
		{Name: "disk_free_bytes", Unit: "bytes"},
		{Name: "rss_bytes", Unit: "bytes"},
		{Name: "goroutines", Unit: "1"},
		{Name: "edge_hits_per_s", Unit: "1/s"},
	}
}

// pointBetween returns the point of the time between two figures.
func pointBetween(from, to *figures) point {
	seconds := to.at.Sub(from.at).Seconds()
	rate := func(before, after float64) float64 {
		if seconds <= 0 {
			return math.NaN()
		}
		return max(0, after-before) / seconds
	}
	commits := to.commits.Since(from.commits)
	ms := func(ns uint64) float64 {
		if commits.Count == 0 {
			return math.NaN()
		}
		return float64(ns) / float64(time.Millisecond)
	}
	return point{
		rate(from.payments, to.payments),
		rate(from.requests, to.requests),
		rate(from.refused, to.refused),
		rate(from.failed, to.failed),
		rate(0, float64(commits.Count)),
		ms(commits.P50),
		ms(commits.P99),
		to.file,
		to.disk,
		to.memory,
		to.goroutines,
		rate(from.hits, to.hits),
		to.used,
	}
}

// Series keeps the points of the last hour.
type Series struct {
	d    SeriesDeps
	tick *flow.Ticker
	from *figures              // of the last turn; owned by Run
	fail atomic.Pointer[error] // of the last turn
	mu   *flow.Mutex
	ring [seriesPoints]point // guarded by mu
	next int                 // position of the next point in ring; guarded by mu
	held int                 // points in ring; guarded by mu
	end  time.Time           // of the newest point; guarded by mu

	refusals refusalCounts // guarded by mu
}

// SeriesDeps are the neighbours of Series.
type SeriesDeps struct {
	Catalog *flow.Catalog
	Service string // whose task it is
	Metrics *obs.Metrics
	Store   *store.Store
	Wall    func() time.Time
	Own     func() float64 // requests that the node has made of itself, which do not count
}

// NewSeries returns empty series. It starts nothing.
func NewSeries(d SeriesDeps) *Series {
	return &Series{
		d: d,
		tick: flow.Every(d.Catalog, flow.Spec{
			Service: d.Service, Name: "series_tick", Consumers: []string{"series_recorder"},
			Doc: "takes a point of each series",
		}, seriesEvery),
		mu: flow.NewMutex(d.Catalog, d.Service, flow.RankCounters),
	}
}

// add appends a point. Points that were missed since the last one, for instance while the task
// restarted, have no values.
func (s *Series) add(at time.Time, p point) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held > 0 {
		missed := int(at.Sub(s.end).Round(seriesEvery)/seriesEvery) - 1
		for range min(missed, seriesPoints) {
			s.push(noPoint())
		}
	}
	s.push(p)
	s.end = at
}

// push appends a point. The caller holds mu.
func (s *Series) push(p point) {
	s.ring[s.next] = p
	s.next = (s.next + 1) % seriesPoints
	s.held = min(s.held+1, seriesPoints)
}

func noPoint() (p point) {
	for i := range p {
		p[i] = math.NaN()
	}
	return p
}

// points returns the points, oldest first, and the time of the newest.
func (s *Series) points() (out []point, end time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out = make([]point, s.held)
	for i := range out {
		out[i] = s.ring[(s.next-s.held+i+seriesPoints)%seriesPoints]
	}
	return out, s.end
}

// List returns the series of the last hour, or of a shorter time after a start.
func (s *Series) List() nodeapi.SeriesList {
	points, end := s.points()
	names := seriesNames()
	out := nodeapi.SeriesList{StepS: int(seriesEvery / time.Second), Series: names[:]}
	if !end.IsZero() {
		out.End = end.Unix()
	}
	s.mu.Lock()
	out.Refusals = s.refusals.list()
	s.mu.Unlock()
	for i := range out.Series {
		values, known := make([]*float64, len(points)), make([]float64, len(points))
		for j := range points {
			known[j] = math.Round(points[j][i]*1000) / 1000
			if !math.IsNaN(known[j]) && !math.IsInf(known[j], 0) {
				values[j] = &known[j]
			}
		}
		out.Series[i].Values = values
	}
	return out
}

// Run adds a point every 5 s.
func (s *Series) Run(ctx context.Context) error {
	defer s.tick.Stop()
	s.from = nil
	for {
		s.Turn()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.tick.C():
		}
	}
}

// Turn adds a point of the time since the last turn, if there was one. It leaves the point out if
// the metrics cannot be read; the next one stands for the time of both. It is called by one
// goroutine.
func (s *Series) Turn() {
	now, err := s.figures()
	s.fail.Store(&err)
	if err != nil {
		return // metrics_live reports it
	}
	if s.from != nil {
		s.add(now.at, pointBetween(s.from, &now))
	}
	s.mu.Lock()
	s.refusals.add(now.reasons)
	s.mu.Unlock()
	s.from = &now
}

// Err returns why the metrics could not be read at the last turn, or nil.
func (s *Series) Err() error {
	if err := s.fail.Load(); err != nil {
		return *err
	}
	return nil
}

// figures reads all metrics of the node, which takes a few milliseconds. It returns an error if a
// family cannot be read, because its counters would seem to start anew.
func (s *Series) figures() (figures, error) {
	families, err := s.d.Metrics.Registry().Gather()
	if err != nil {
		return figures{}, err
	}
	out := figures{
		reasons:    map[refused]float64{},
		at:         s.d.Wall(),
		commits:    s.d.Store.CommitTimes(),
		file:       float64(s.d.Store.Bytes()),
		goroutines: float64(runtime.NumGoroutine()),
		used:       math.NaN(),
		disk:       math.NaN(),
		memory:     math.NaN(),
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			out.count(f.GetName(), m)
		}
	}
	out.requests -= s.d.Own()
	return out, nil
}

// count adds one series of a family to the figures. A payment is an operation that the ledger
// accepted.
func (f *figures) count(family string, m *dto.Metric) {
	value := m.GetCounter().GetValue()
	switch family {
	case "ledger_accepted_total":
		f.payments = value
	case "http_requests_total":
		f.countRequests(m, value)
	case "rejected_total":
		f.reasons[refused{label(m, "service"), label(m, "reason")}] += value
	case "edge_hits_total":
		f.hits = value
	case "store_used_bytes":
		f.used = m.GetGauge().GetValue()
	case "store_disk_free_bytes":
		f.disk = m.GetGauge().GetValue()
	case "process_resident_memory_bytes":
		f.memory = m.GetGauge().GetValue()
	}
}

// countRequests adds the answers of a route with one status.
func (f *figures) countRequests(m *dto.Metric, value float64) {
	f.requests += value
	switch status := label(m, "status"); {
	case status == "429", status == "507":
		f.refused += value
	case strings.HasPrefix(status, "5"):
		f.failed += value
	}
}

// label returns the value of a label, or "".
func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
