package store

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"ronbox/appliance/obs"
)

// metrics are the store's own series.
type metrics struct {
	obs      *obs.Metrics
	phase    [len(phaseNames)]func(float64)
	pace     pace
	batch    func(float64)
	wait     [lanes]func(float64)
	timeout  func(int)
	slowView func(int)
	poisoned func(float64)
	snapshot func(float64)

	kinds map[string]*kindSeries // by kind, a closed set; owned by the committer
	last  *kindSeries            // the one looked up last, since a group is mostly of one kind; owned by the committer
}

// histogram bounds: 0.5 ms doubled up to 8 s, and group sizes up to GroupMax.
func doubling(from, to float64) []float64 {
	var out []float64
	for b := from; b <= to; b *= 2 {
		out = append(out, b)
	}
	return out
}

func families() []obs.Family {
	seconds := doubling(.0005, 8.2)
	return []obs.Family{
		{
			Name: "store_commit_seconds", Type: obs.Histogram, Labels: []string{"phase"}, Buckets: seconds,
			Help: "Time of one transaction: apply commands, spill rows to pages, grow the file, sync pages; commit is the last three.",
		},
		{Name: "store_batch_commands", Help: "Commands in one transaction.", Type: obs.Histogram, Buckets: doubling(1, 4096)},
		{Name: "store_wait_seconds", Help: "Time a command waited for the committer.", Type: obs.Histogram, Labels: []string{"lane"}, Buckets: seconds},
		{Name: "store_commands_total", Help: "Commands answered, by kind and result.", Type: obs.Counter, Labels: []string{"kind", "result"}},
		{Name: "store_command_panics_total", Help: "Commands refused because they panicked.", Type: obs.Counter, Labels: []string{"kind"}},
		{Name: "store_bytes", Help: "Length of the database file.", Type: obs.Gauge},
		{Name: "store_pages", Help: "Pages of the file that are used, free, or used and pending until older readers have gone.", Type: obs.Gauge, Labels: []string{"state"}},
		{Name: "store_used_bytes", Help: "Bytes of the file that hold something, pages that older readers pin included.", Type: obs.Gauge},
		{Name: "store_max_bytes", Help: "Used bytes of the file from which the store is full.", Type: obs.Gauge},
		{
			Name: "store_disk_free_bytes", Type: obs.Gauge,
			Help: "Free bytes of the file system that holds the file, as last looked at; NaN in memory, and where there is no limit or none is told.",
		},
		{
			Name: "store_disk_reserve_bytes", Type: obs.Gauge,
			Help: "Of the free bytes, what work may not use: with less the store is full; NaN where store_disk_free_bytes is.",
		},
		{Name: "store_read_tx_open", Help: "Read transactions open now.", Type: obs.Gauge},
		{Name: "store_read_tx_oldest_seconds", Help: "Age of the oldest read transaction open now.", Type: obs.Gauge},
		{Name: "store_read_tx_slow_total", Help: "Read transactions over their budget of 50 ms.", Type: obs.Counter},
		{Name: "store_poisoned", Help: "1 once the store has failed.", Type: obs.Gauge},
		{Name: "store_snapshot_seconds", Help: "Time of one snapshot, check included.", Type: obs.Histogram, Buckets: doubling(.0625, 1024)},
	}
}

func newMetrics(m *obs.Metrics, s *Store) *metrics {
	m.Declare(families()...)
	out := &metrics{
		obs:      m,
		batch:    m.Histogram("store_batch_commands", ownService),
		timeout:  m.Counter("io_timeouts_total", ownService, "op", "commit"),
		slowView: m.Counter("store_read_tx_slow_total", ownService),
		poisoned: m.Set("store_poisoned", ownService),
		snapshot: m.Histogram("store_snapshot_seconds", ownService),
		kinds:    map[string]*kindSeries{},
	}
	for i, name := range phaseNames {
		out.phase[i] = m.Histogram("store_commit_seconds", ownService, "phase", name)
	}
	for l := range out.wait {
		out.wait[l] = m.Histogram("store_wait_seconds", ownService, "lane", Lane(l).String())
	}
	m.Gauge("store_bytes", ownService, func() float64 { return float64(s.Bytes()) })
	m.Gauge("store_pages", ownService, func() float64 { return float64(s.usedBytes() / PageSize) }, "state", "used")
	m.Gauge("store_pages", ownService, func() float64 { return float64(s.pages().free) }, "state", "free")
	m.Gauge("store_pages", ownService, func() float64 { return float64(s.pages().pending) }, "state", "pending")
	s.room.gauges(m)
	m.Gauge("store_read_tx_open", ownService, func() float64 { return float64(s.views.open.Load()) })
	m.Gauge("store_read_tx_oldest_seconds", ownService, func() float64 { return time.Duration(s.views.oldest(s.mono())).Seconds() })
	return out
}

// gauges show the room as of the last look; NaN is not known, and no comparison with it holds.
func (m *room) gauges(reg *obs.Metrics) {
	gauge := func(name string, read func(p *space) int64, known func(p *space) bool) {
		reg.Gauge(name, ownService, func() float64 {
			if p := m.last.Load(); p != nil && known(p) {
				return float64(read(p))
			}
			return math.NaN()
		})
	}
	always, limited := func(*space) bool { return true }, func(p *space) bool { return p.disk >= 0 }
	gauge("store_used_bytes", func(p *space) int64 { return p.used }, always)
	gauge("store_max_bytes", func(p *space) int64 { return p.capacity * roomFull / 100 }, always)
	gauge("store_disk_free_bytes", func(p *space) int64 { return p.disk }, limited)
	gauge("store_disk_reserve_bytes", func(p *space) int64 { return p.reserve() }, limited)
}

// pace is what Stats tells of commits, whether there are metrics or not.
type pace struct {
	commit, sync, batch histogram
	commands            atomic.Uint64
}

// committed is the committer's.
func (m *metrics) committed(p phases, commands int) {
	for i, d := range [...]time.Duration{p.apply, p.spill, p.grow, p.sync, p.commit} {
		m.phase[i](d.Seconds())
	}
	m.batch(float64(commands))
	m.pace.commit.add(int64(p.commit))
	m.pace.sync.add(int64(p.sync))
	m.pace.batch.add(int64(commands))
	m.pace.commands.Add(uint64(commands))
}

// waited is called by the caller of Commit, to keep the committer's path short.
func (m *metrics) waited(l Lane, ns int64) { m.wait[l](time.Duration(ns).Seconds()) }

// kindSeries are the counters of one kind of command.
type kindSeries struct {
	kind                      string
	ok, refused, full, panics func(int)
}

func (m *metrics) kind(kind string) *kindSeries {
	if m.last != nil && m.last.kind == kind {
		return m.last
	}
	k := m.kinds[kind]
	if k == nil {
		answered := func(result string) func(int) {
			return m.obs.Counter("store_commands_total", ownService, "kind", kind, "result", result)
		}
		k = &kindSeries{
			kind: kind, ok: answered("ok"), refused: answered("refused"), full: answered("full"),
			panics: m.obs.Counter("store_command_panics_total", ownService, "kind", kind),
		}
		m.kinds[kind] = k
	}
	m.last = k
	return k
}

// result counts an answer. It is the committer's.
func (m *metrics) result(h *head) {
	k := m.kind(h.kind)
	switch {
	case h.err == nil:
		k.ok(1)
	case errors.Is(h.err, ErrFull):
		k.full(1)
	default:
		k.refused(1)
	}
}
